"""The arrays of an npz graph, each with its checks: edges, features (dense, CSR or none), labels, splits, names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

import numpy as np

from graphmill.assets.sources.arrays.archive import Archive, Header
from graphmill.assets.sources.edge_marks import EdgeMarks, of_node_times, of_times
from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.named.arrays import MEANT
from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.assets.sources.splits import is_mask, mask_ids, part_meant
from graphmill.assets.sources.targets import column_names, read_labels
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.assets.tasks.labels import CLASSES, Kind, no_labels
from graphmill.kernels.errors import Attempts, InputError
from graphmill.kernels.types import Array, id_dtype

KNOWN = (
    "edge_index", "num_nodes", "x", "x_indptr", "x_indices", "x_data", "x_shape", "y",
    "train", "val", "test", "train_masks", "val_masks", "test_masks", "class_names", "node_names",
)  # fmt: skip
"""Arrays of the `edge_index` form."""

ADJACENCY = (
    "adj_indptr", "adj_indices", "adj_data", "adj_shape", "attr_indptr", "attr_indices", "attr_data", "attr_shape",
    "attr_matrix", "labels", "class_names",
)  # fmt: skip
"""Arrays of the gnn-benchmark form."""

EDGE_ROWS = "edge_attr"
"""The array of rows of edges of the `edge_index` form."""

OF_EDGES = {"time": "edge_time", "given": "edge_split"}
"""Split of links -> the array of edges that has it: times, or 0 train, 1 valid, 2 test, -1 none."""

NODE_TIMES = "node_time"
"""The array of the times of seeds."""

LISTS, MASKS = ("train", "val", "test"), ("train_masks", "val_masks", "test_masks")
"""Names of the arrays that hold a split, as ids and as masks."""


def refuse_strangers(archive: Archive) -> None:
    """Refuses pickled members and names that mean a missing array; other arrays are ignored.

    Raises:
        InputError: `edge_index` is missing, an array is pickled, or a name means a missing array.
    """
    if "edge_index" not in archive:
        held = ", ".join([*archive.names, *archive.others]) or "no arrays"
        raise InputError(f"{archive.path}: has no edge_index; it holds {held}", "save edge_index [2, E] in the archive")
    attempts = Attempts()
    for name in archive.names:
        attempts(archive.header, name)
        if near := meant_by(name, archive):
            meant = f"{archive.path}: array '{name}' is not read (did you mean '{near}'?)"
            attempts.errors.append(InputError(meant, "rename it, or leave it out"))
    attempts.settle()


def refuse_beside_adjacency(archive: Archive, split: int | None) -> None:
    """Refuses features, labels and splits of the `edge_index` form beside an adjacency, whose form has other names and no split.

    Raises:
        InputError: the archive has such arrays, or the key `split` is set.
    """
    if split is not None:
        raise InputError(f"{archive.path}: split = {split}, but an adjacency has no masks", "leave `split` out")
    others = [name for name in archive.names if name not in ADJACENCY]
    found = [name for name in others if name.lower() in ("x", "y", *MASKS, *ADJACENCY, *MEANT["y"]) or part_meant(name)]
    if found:
        edges = "scipy.sparse.csr_matrix((np.ones(len(adj_indices)), adj_indices, adj_indptr)).nonzero()"
        remedy = (
            f"leave them out; or save edge_index = np.stack({edges}), with x and y, in place of the other form's arrays"
        )
        raise InputError(f"{archive.path}: not read beside adj_indptr: {', '.join(found)}", remedy)


def meant_by(name: str, archive: Archive) -> str | None:
    """Returns the missing array that an unread name probably means; None if it means none."""
    if name in KNOWN:
        return None
    missing, part = [known for known in KNOWN if known not in archive], part_meant(name)
    of_part = f"{part}_masks" if "mask" in name.lower() else part
    meant = [known for known in missing if known == of_part or name.lower() in (known, *MEANT.get(known, ()))]
    return next(iter(meant or difflib.get_close_matches(name, missing, n=1, cutoff=0.85)), None)


def endpoints(archive: Archive, edges: Array | Sequence[Array], num_nodes: int) -> tuple[Array, Array]:
    """Returns (src, dst) as ids[E] after checking their range.

    Raises:
        InputError: an id is outside [0, num_nodes), with the first edges that have one.
    """
    src, dst = edges[0], edges[1]
    if min(src.min(), dst.min()) < 0 or max(src.max(), dst.max()) >= num_nodes:
        bad = np.flatnonzero((src < 0) | (src >= num_nodes) | (dst < 0) | (dst >= num_nodes))
        shown = ", ".join(f"edge {e} is {src[e]} -> {dst[e]}" for e in bad[:3].tolist())
        problem = f"{archive.path}: {len(bad)} of {len(src)} edges have node ids outside [0, {num_nodes}): {shown}"
        raise InputError(problem, FIX_FILE)
    ids = id_dtype(num_nodes)
    return src.astype(ids), dst.astype(ids)


def shared_ids(edges: Sequence[Array], num_nodes: int) -> int:
    """Returns the number of ids that stand at both ends of edges: in both of two ids[E] in [0, num_nodes)."""
    ends = np.zeros((2, num_nodes), bool)
    ends[0, edges[0]] = ends[1, edges[1]] = True
    return int(np.count_nonzero(ends[0] & ends[1]))


def check_indptr(archive: Archive, name: str, indptr: Array, num_entries: int) -> None:
    """Raises InputError unless a CSR row pointer starts at 0, never falls, and ends at `num_entries`."""
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != num_entries:
        ends = f"{indptr[0]} to {indptr[-1]}" if len(indptr) else "nothing"
        raise InputError(f"{archive.path}: {name} runs from {ends}, not from 0 to {num_entries}", FIX_FILE)
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        raise InputError(f"{archive.path}: {name} falls after row {falls[0]}", FIX_FILE)


def feature_rows(archive: Archive, form: str | None) -> tuple[str, int] | None:
    """Returns the array that gives the number of feature rows, and the number; None without features.

    Args:
        form: name of a dense matrix, or prefix of CSR arrays, or None.

    Raises:
        InputError: a dense array is not a matrix, or a CSR array is missing.
    """
    if form is None:
        return None
    if form in archive:
        shape = archive.header(form).shape
        if len(shape) != 2:
            remedy = f"save {form}.reshape(-1, 1)" if len(shape) == 1 else FIX_FILE
            raise InputError(f"{archive.path}: {form} has shape {list(shape)}, not [N, F]", remedy)
        return form, shape[0]
    parts = [f"{form}_{part}" for part in ("indptr", "indices", "data", "shape")]
    missing = [part for part in parts if part not in archive]
    if missing:
        raise InputError(f"{archive.path}: sparse features lack {', '.join(missing)}", FIX_FILE)
    return f"{form}_indptr", archive.header(f"{form}_indptr").shape[0] - 1


def feature_blocks(archive: Archive, form: str | None, num_nodes: int) -> Sequence[FeatureBlock]:
    """Returns the features [N, F] of any form as a block, whose slices are read while the archive is open; none without features.

    Raises:
        InputError: CSR arrays do not fit together.
    """
    if form is None:
        return ()
    if form in archive:
        header = archive.header(form)
        width, dtype = header.shape[1], header.dtype
    else:
        shape = archive.integers(f"{form}_shape", 1).tolist()
        if len(shape) != 2 or shape[0] != num_nodes or shape[1] < 0:
            raise InputError(f"{archive.path}: {form}_shape is {shape}, not [{num_nodes}, F]", FIX_FILE)
        width, dtype = shape[1], archive.header(f"{form}_data").dtype

    def slices() -> Iterator[tuple[int, Array]]:
        return archive.rows(form) if form in archive else _dense_slices(archive, form, num_nodes, width)

    return (FeatureBlock(where=f"{archive.path}: {form}", num_rows=num_nodes, width=width, dtype=dtype, slices=slices),)


def _dense_slices(archive: Archive, form: str, num_nodes: int, width: int) -> Iterator[tuple[int, Array]]:
    """Yields (first row, rows[n, F]) of CSR features."""
    indptr, columns = archive.integers(f"{form}_indptr", 1), archive.integers(f"{form}_indices", 1)
    data = archive.read(f"{form}_data")
    if data.shape != columns.shape:
        raise InputError(f"{archive.path}: {form}_data has {data.shape} values for {columns.shape} columns", FIX_FILE)
    check_indptr(archive, f"{form}_indptr", indptr, len(columns))
    if len(columns) and (columns.min() < 0 or columns.max() >= width):
        entry = int(np.flatnonzero((columns < 0) | (columns >= width))[0])
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise InputError(f"{archive.path}: {form} row {row} has column {columns[entry]} of {width}", FIX_FILE)
    for low, high in row_ranges(num_nodes, width * data.dtype.itemsize):
        first, last = int(indptr[low]), int(indptr[high])
        row = np.repeat(np.arange(high - low), np.diff(indptr[low : high + 1]))
        out = np.zeros((high - low, width), data.dtype)
        out[row, columns[first:last]] = data[first:last]
        filled = np.zeros(out.shape, bool)
        filled[row, columns[first:last]] = True
        if np.count_nonzero(filled) != last - first:
            twice = low + int(np.flatnonzero(filled.sum(axis=1) != np.diff(indptr[low : high + 1]))[0])
            problem = f"{archive.path}: {form} row {twice} has a column twice"
            raise InputError(problem, "sum the entries: csr.sum_duplicates()")
        yield low, out


def number_of_nodes(archive: Archive) -> int:
    """Returns the number in `num_nodes`; raises InputError if it is not a number of nodes."""
    found = int(archive.integers("num_nodes", 0))
    if found < 0:
        raise InputError(f"{archive.path}: num_nodes is {found}, not a number of nodes", "correct it, or leave it out")
    return found


def num_labels(archive: Archive, name: str) -> int:
    """Returns the number of nodes that an array of labels is for: its length, or the long side of [N, 1] and [1, N].

    Raises:
        InputError: the array is a single number.
    """
    shape = archive.header(name).shape
    if not shape:
        raise InputError(f"{archive.path}: {name} is one number, not a label for each node", f"leave {name} out")
    return max(shape) if 1 in shape else shape[0]


def to_labels(archive: Archive, name: str, num_nodes: int, kind: Kind = CLASSES) -> Array:
    """Returns the labels in an array (assets/tasks/labels.py), all unknown if the archive lacks it."""
    if name not in archive:
        return no_labels(kind, num_nodes)
    return read_labels(kind, archive.read(name), num_nodes, f"{archive.path}: {name}", name)


def class_names(archive: Archive, labels: Array) -> tuple[str, ...]:
    """Returns the archive's names of classes, labels or targets if they are plain text, else the numbers."""
    numbered = column_names(labels)
    if "class_names" not in archive or archive.dtype("class_names").kind not in "US":
        return numbered
    names = texts(archive, "class_names", None if labels.ndim == 1 else len(numbered)) or ()
    if len(names) < len(numbered):
        raise InputError(f"{archive.path}: class_names has {len(names)} names for {len(numbered)} classes", FIX_FILE)
    return tuple(names)


def texts(archive: Archive, name: str, count: int | None) -> list[str] | None:
    """Reads a list of texts, or None if the archive has none; raises InputError if the array is not a list of text, or not `count` long."""
    if name not in archive:
        return None
    header = archive.header(name)
    if header.dtype.kind not in "US" or len(header.shape) != 1:
        raise InputError(f"{archive.path}: {name} is {header.dtype}{list(header.shape)}, not a list of text", FIX_FILE)
    if count is not None and header.shape[0] != count:
        raise InputError(f"{archive.path}: {name} has {header.shape[0]} entries for {count} nodes", FIX_FILE)
    found = archive.read(name)
    try:
        return (np.char.decode(found, "utf-8") if found.dtype.kind == "S" else found).tolist()
    except UnicodeDecodeError as error:
        problem = f"{archive.path}: {name} is not UTF-8: {error.reason}"
        raise InputError(problem, f"save {name} as np.array(names, dtype=str)") from error


def node_times(archive: Archive, num_nodes: int) -> Array:
    """Returns f64[N], the times of the nodes, NaN for none; raises InputError if the array is missing or does not fit."""
    if NODE_TIMES not in archive:
        problem = f"{archive.path}: [sampling] before = 'seed' needs an array {NODE_TIMES}"
        raise InputError(problem, "save the time of each seed, NaN for other nodes")
    return of_node_times(archive.read(NODE_TIMES), num_nodes, f"{archive.path}: {NODE_TIMES}")


def edge_marks(archive: Archive, marks: LinkSplit | None, asked: str = "") -> EdgeMarks | None:
    """Returns the times or parts of the edges of the `edge_index` form; None if they are not asked for.

    Args:
        asked: the key that asks for them; "" for `split` of [task].

    Raises:
        InputError: the array is missing, of another shape or type, or has another value.
    """
    if marks is None:
        return None
    name, num_edges = OF_EDGES[marks], archive.header("edge_index").shape[-1]
    where = f"{archive.path}: {name}"
    if name not in archive:
        remedy = "save it, or leave the key out" if asked else "save it, or draw the split"
        asked = asked or f"[task] split = '{marks}'"
        raise InputError(f"{archive.path}: {asked} needs an array {name}", remedy)
    values = archive.read(name)
    if marks == "time":
        found = of_times(values, num_edges, where)
    else:
        if values.shape != (num_edges,) or values.dtype.kind not in "iu":
            problem = f"{where} is {values.dtype}{list(values.shape)}, not integers [{num_edges}]"
            raise InputError(problem, "give 0 train, 1 valid, 2 test, and -1 for edges of no part")
        wrong = np.flatnonzero((values < -1) | (values > 2))
        if len(wrong):
            problem = f"{where}: edge {wrong[0]} is {values[wrong[0]]}"
            raise InputError(problem, "give 0 train, 1 valid, 2 test, -1 none")
        found = np.where(values < 0, np.nan, values)
    return EdgeMarks(values=found, place=lambda number: f"{archive.path}: edge_index column {number}")


def edge_header(archive: Archive) -> Header:
    """Returns the header of `edge_attr`; raises InputError if the archive has none, or it holds no numbers."""
    if EDGE_ROWS not in archive:
        problem = f"{archive.path}: has no {EDGE_ROWS}, which [features.edges] reads"
        raise InputError(problem, f"save {EDGE_ROWS} [E, F] in the archive, or give [features.edges] a file")
    header = archive.header(EDGE_ROWS)
    if len(header.shape) not in (1, 2) or header.dtype.kind not in "biuf":
        problem = f"{archive.path}: {EDGE_ROWS} is {header.dtype}{list(header.shape)}, not numbers [E, F]"
        raise InputError(problem, "save real numbers, such as array.astype('float32')")
    return header


def edge_rows(archive: Archive, num_edges: int) -> Sequence[FeatureBlock]:
    """Returns `edge_attr` as a block, whose slices are read while the archive is open.

    Raises:
        InputError: it is missing, or has not a row for each edge.
    """
    header, where = edge_header(archive), f"{archive.path}: {EDGE_ROWS}"
    if header.shape[0] != num_edges:
        problem = f"{where} has {header.shape[0]:,} rows for {num_edges:,} edges"
        raise InputError(problem, "save a row for each column of edge_index")
    width = header.shape[1] if len(header.shape) == 2 else 1

    def slices() -> Iterator[tuple[int, Array]]:
        if len(header.shape) == 2:
            return archive.rows(EDGE_ROWS)
        return iter([(0, archive.read(EDGE_ROWS)[:, None])])

    return (FeatureBlock(where=where, num_rows=num_edges, width=width, dtype=header.dtype, slices=slices),)


def splits(split: int | None, archive: Archive, num_nodes: int) -> tuple[Array, Array, Array] | None:
    """Returns the archive's split (train, valid, test) as ids in any order, or None if it has none.

    Args:
        split: row of the masks, or None: the id lists, else row 0 of the masks.

    Raises:
        InputError: a part is missing, a mask has another shape or type, or the row does not exist.
    """
    chosen = LISTS if split is None and any(name in archive for name in LISTS) else MASKS
    missing = [name for name in chosen if name not in archive]
    if len(missing) == 3:
        if split is None:
            return None
        problem = f"{archive.path}: split = {split} needs train_masks, val_masks, test_masks"
        raise InputError(problem, "leave `split` out")
    if missing:
        problem = f"{archive.path}: the split lacks {', '.join(missing)}"
        raise InputError(problem, "save all three parts, an empty one too")
    attempts = Attempts()
    if chosen == LISTS:
        train, valid, test = (attempts(_listed, archive, name, num_nodes) for name in LISTS)
    else:
        train, valid, test = (attempts(_masked, archive, name, num_nodes, split) for name in MASKS)
    attempts.settle()
    return train, valid, test


def _masked(archive: Archive, name: str, num_nodes: int, split: int | None) -> Array:
    """Returns the ids of a part, which is saved as masks; one beside several masks of the other parts is that of every split."""
    values = archive.read(name)
    several = any(len(archive.header(mask).shape) > 1 for mask in MASKS)
    number = None if several and values.ndim == 1 else split
    return mask_ids(values, num_nodes, number, f"{archive.path}: {name}", name)


def _listed(archive: Archive, name: str, num_nodes: int) -> Array:
    """Returns the ids of a part, which is saved as ids or as a mask."""
    if archive.header(name).dtype.kind in "biuf" and is_mask(values := archive.read(name), num_nodes):
        return mask_ids(values, num_nodes, None, f"{archive.path}: {name}", name)
    return archive.integers(name, 1)
