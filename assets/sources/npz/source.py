"""Graphs in NumPy archives: `edge_index` files, and the CSR files of gnn-benchmark.

The first form, every array but `edge_index` optional:

    edge_index [2, E]        edges source -> destination
    num_nodes                without it: the length of y or x, else the largest id + 1
    x [N, F]                 features; or CSR x_indptr [N+1], x_indices, x_data, x_shape. Without: one column of ones
    y [N]                    labels 0 to C-1, -1 or NaN unknown, of any type of numbers; also [N, 1], and true and false; with
                             [task] kind = "multilabel" 0 and 1 [N, C], with "regression" numbers [N] or [N, T], NaN unknown
    edge_attr [E, F]         rows of edges, or [E], for a pipeline with [features.edges]
    train, val, test         node ids of the split, or masks [N]; or train_masks, val_masks, test_masks [S, N] or [N, S] with
                             `split = s`, or [N]. A mask is of true and false, or of 0 and 1
    class_names, node_names  fixed-width text, C (or T) and N of them

The second form (Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018): adj_indptr, adj_indices,
adj_shape; attr_indptr, attr_indices, attr_data, attr_shape (or attr_matrix); labels. Its weights and its pickled
names are not read; x, y and a split of the first form beside it are refused.

Peak memory: 24 bytes per edge of the file (int64 ids, then narrowed copies), the CSR arrays of sparse features whole,
and two slices of 8 MiB of dense features. A Fortran-ordered `x` is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.sources.arrays.archive import Archive, Header
from graphmill.assets.sources.arrays.array_files import to_two_rows
from graphmill.assets.sources.edge_marks import EdgeMarks
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.features.types import stored_type
from graphmill.assets.sources.interface import FEATURES_TOO, GraphConfig, RawGraph, TableConfig
from graphmill.assets.sources.npz.arrays import (
    EDGE_ROWS,
    LISTS,
    MASKS,
    NODE_TIMES,
    check_indptr,
    class_names,
    edge_header,
    edge_marks,
    edge_rows,
    endpoints,
    feature_blocks,
    feature_rows,
    node_times,
    num_labels,
    number_of_nodes,
    refuse_beside_adjacency,
    refuse_strangers,
    shared_ids,
    splits,
    texts,
    to_labels,
)
from graphmill.assets.sources.npz.shown import classes_line, meant_lines, splits_line, unread_arrays
from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.assets.sources.splits import one_split
from graphmill.assets.sources.spool import SORT_BYTES, EdgeColumns, EdgeSpool, record_dtype
from graphmill.assets.sources.survey import Survey, in_memory_bytes
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.assets.sources.unread import unread_notes
from graphmill.kernels.arrays import largest
from graphmill.kernels.errors import Attempts, InputError
from graphmill.kernels.types import Array, id_dtype

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress


@dataclass(frozen=True, kw_only=True)
class NpzConfig(GraphConfig):
    """`[graph]` with `source = "npz"`."""

    # names this kind of source
    source: str = field(default="npz", metadata=FEATURES_TOO)
    # the archive; relative to the pipeline file
    path: Path
    # row of train_masks, val_masks, test_masks, or a list of rows: one graph each; None takes the ids `train`, `val`, `test`, or row 0
    split: int | tuple[int, ...] | None = None

    example: ClassVar[Mapping[str, Any]] = {"path": "graph.npz"}
    tasks = ("classes", "multilabel", "regression")
    takes_edge_rows = has_edge_rows = True

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that edges get: ids, if they have rows."""
        return ("edge_ids",) if self.edge_rows else ()

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """All splits: the arrays of edges show when they are read."""
        return ("random", "time", "given")

    @property
    def node_timed(self) -> bool:
        """Whether nodes may have times: the arrays show when they are read."""
        return True

    @property
    def edge_columns(self) -> EdgeColumns:
        """What edges carry if they are sorted with their ids."""
        return EdgeColumns(edge_ids=self.edge_rows, times=self.times)

    @property
    def read_besides(self) -> tuple[str, ...]:
        """Names of arrays that only this pipeline reads."""
        return (*([NODE_TIMES] if self.timed_seeds else []), *([EDGE_ROWS] if self.edge_rows else []))

    @property
    def timed_seeds(self) -> bool:
        """Whether the times of nodes are read."""
        return self.times and self.links is None

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a split of nodes, which links do not have."""
        yield from super().problems()
        if self.links is not None and self.split is not None:
            yield KeyProblem("split", "split has no effect with [task] kind = 'links': leave it out")

    def brings_split(self) -> bool:
        """Tells it by the names of the arrays; the build reports an archive that cannot be read."""
        try:
            with Archive(self.path) as archive:
                return any(name in archive for name in (*LISTS, *MASKS))
        except InputError:
            return False

    def files(self) -> Mapping[str, Path]:
        """Returns the archive, which both the graph and its features need."""
        with Archive(self.path):
            return {"npz": self.path}

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[EdgeListSource | AdjacencySource]:
        """Opens the archive; only its headers are read here."""
        with Archive(self.path) as archive:
            adjacency = "adj_indptr" in archive and "edge_index" not in archive
            if adjacency and self.edge_rows:
                problem = f"{self.path}: has adj_indptr, whose edges have no order of their own for [features.edges]"
                raise InputError(problem, "save edge_index [2, E] in its place")
            yield AdjacencySource(self, archive) if adjacency else EdgeListSource(self, archive, folder)

    def survey(self) -> Survey:
        """Describes the archive from the headers of its arrays."""
        split = one_split(self.split)
        with Archive(self.path) as archive:
            headers = {name: archive.header(name) for name in archive.names if not archive.dtype(name).hasobject}
            contents = [f"{name} {header.dtype}{list(header.shape)}" for name, header in headers.items()]
            edges = headers.get("edge_index", headers.get("adj_indices"))
            if edges is None:
                refuse_strangers(archive)  # the array is missing or pickled
                raise InputError(f"{self.path}: has no edge_index; it holds {', '.join(headers)}", FIX_FILE)
            if len(edges.shape) not in (1, 2):
                raise InputError(f"{self.path}: the edges have the shape {list(edges.shape)}", FIX_FILE)
            num_nodes, width, value = _survey_nodes(archive, headers)
            contents += [*classes_line(archive, num_nodes, self.task), *splits_line(archive, split, num_nodes)]
            notes = [*meant_lines(archive), *unread_notes(unread_arrays(archive, split, self.marks, self.read_besides))]
        turned = len(edges.shape) == 2 and edges.shape[1] == 2 and edges.shape[0] != 2
        num_edges = edges.shape[0] if turned else edges.shape[-1]
        stored = num_edges * (2 if self.undirected else 1)
        return Survey(
            title=f"npz: {self.path}",
            contents=contents,
            num_nodes=num_nodes,
            num_edges=stored,
            num_features=width,
            dtype=stored_type(value, "as stored", self.normalize, str(self.path)),
            attributes=self.attributes,
            edge_bytes=8 * self.edge_rows,
            memory_bytes=in_memory_bytes(num_edges, num_nodes, stored) + SORT_BYTES * stored * self.edge_rows,
            scratch_bytes=(num_edges + stored) * record_dtype(num_nodes, self.edge_columns).itemsize * self.edge_rows,
            notes=[*notes, *(["edge_index is [E, 2] and cannot be built: save edge_index.T"] if turned else [])],
        )

    def edge_matrix(self) -> tuple[int, int, Any]:
        """Returns number, columns and type of `edge_attr`."""
        with Archive(self.path) as archive:
            header = edge_header(archive)
        return header.shape[0], header.shape[1] if len(header.shape) == 2 else 1, header.dtype


class ArchiveSource:
    """An open archive of either form; see `OpenSource`.

    Args:
        form: name of dense features, prefix of the arrays of CSR ones, or None without features.
    """

    node_of_row = None

    def __init__(self, config: NpzConfig, archive: Archive, form: str | None):
        self.config, self.archive, self._form = config, archive, form
        self.node_types: Mapping[str, int] = {}

    def counts(self) -> dict[str, int | tuple[int, ...]]:
        """Returns array -> number of nodes, or rows and columns of a square matrix, of the arrays beside the features that give it."""
        raise NotImplementedError

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes N, from the arrays that give it; arrays that disagree are refused."""
        said, rows = self.counts(), feature_rows(self.archive, self._form)
        if rows is not None:
            said[rows[0]] = rows[1]
        shapes = {name: (count, count) if isinstance(count, int) else count for name, count in said.items()}
        if len(set(shapes.values())) > 1:
            sizes = {name: shape[:1] if len({*shape}) == 1 else shape for name, shape in shapes.items()}
            listed = ", ".join(f"{name} {' x '.join(map(str, size))}" for name, size in sizes.items())
            form, counts = self._form, {each[0] for each in shapes.values()}
            turned = form is not None and form in self.archive and self.archive.header(form).shape[1] in counts
            remedy = f"{form} looks transposed: save {form}.T" if turned else FIX_FILE
            raise InputError(f"{self.archive.path}: the arrays disagree about the number of nodes: {listed}", remedy)
        return next(iter(shapes.values()))[0]

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the features, dense or CSR."""
        return feature_blocks(self.archive, self._form, self.num_nodes)


class EdgeListSource(ArchiveSource):
    """An archive of the `edge_index` form."""

    def __init__(self, config: NpzConfig, archive: Archive, folder: Path):
        refuse_strangers(archive)
        self.folder = folder
        super().__init__(config, archive, "x" if "x" in archive or "x_indptr" in archive else None)

    def counts(self) -> dict[str, int | tuple[int, ...]]:
        """Returns the number in `num_nodes` and the length of `y`; without both and without features, the largest id + 1."""
        said, archive = {}, self.archive
        if "num_nodes" in archive:
            said["num_nodes"] = number_of_nodes(archive)
        if "y" in archive:
            said["y"] = num_labels(archive, "y")
        return said if said or self._form else {"edge_index": int(self._edges().max()) + 1}

    def graph(self, progress: Progress) -> RawGraph:
        """Reads edges, labels, split and names."""
        archive, num_nodes, attempts = self.archive, self.num_nodes, Attempts()
        ends = attempts(self._ends)
        labels = attempts(to_labels, archive, "y", num_nodes, self.config.task)
        linked = self.config.links is not None
        parts = None if linked else attempts(splits, one_split(self.config.split), archive, num_nodes)
        asked = "[sampling] before = 'seed'" if self.config.times else ""
        marks = attempts(edge_marks, archive, self.config.marks, asked)
        times = attempts(node_times, archive, num_nodes) if self.config.timed_seeds else None
        node_names = attempts(texts, archive, "node_names", num_nodes)
        named = None if labels is None else attempts(class_names, archive, labels)
        attempts.settle()
        (src, dst), named = ends, named or ()
        spool = self._spooled(src, dst, marks) if self.config.edge_rows else None
        counted = self._form or any(name in archive for name in ("num_nodes", "y"))
        return RawGraph(
            num_nodes=num_nodes,
            src=src if spool is None else src[:0],
            dst=dst if spool is None else dst[:0],
            spool=spool,
            memory_bytes=0 if spool is None else 2 * SORT_BYTES * len(src),
            labels=labels,
            class_names=named,
            splits=parts,
            edge_marks=marks,
            node_times=times,
            node_names=node_names,
            numbers={} if counted else {"num_ids_of_both_ends": shared_ids((src, dst), num_nodes)},
            unread=self._unread(),
        )

    @property
    def num_edge_rows(self) -> int:
        """Number of columns of `edge_index`."""
        return self._edges().shape[1]

    @property
    def edge_relations(self) -> Sequence[tuple[str, int]]:
        """None: edges of several relations, if there are any, are mixed."""
        return ()

    def edge_blocks(self) -> Sequence[FeatureBlock]:
        """Returns `edge_attr`, by the columns of `edge_index`; raises InputError if it is missing, or has not a row for each edge."""
        return edge_rows(self.archive, self.num_edge_rows)

    def _spooled(self, src: Array, dst: Array, marks: EdgeMarks | None) -> EdgeSpool:
        """Returns the edges with their ids and times, which sorting keeps beside them."""
        config = self.config
        spool = EdgeSpool(
            self.folder,
            self.num_nodes,
            config.edge_columns,
            undirected=config.undirected,
            watched=config.counts_reverses(0),
        )
        spool.append(src, dst, tie=np.arange(len(src)), mark=None if marks is None else marks.values)
        return spool

    def _unread(self) -> list[str]:
        return unread_arrays(self.archive, one_split(self.config.split), self.config.marks, self.config.read_besides)

    def _ends(self) -> tuple[Array, Array]:
        """Reads (src, dst) as ids[E] below the number of nodes."""
        return endpoints(self.archive, self._edges(), self.num_nodes)

    def _edges(self) -> Array:
        """Reads integers [2, E]."""
        shape, path = self.archive.header("edge_index").shape, self.archive.path
        if len(shape) != 2 or shape[0] != 2:
            hint = "; it looks transposed" if len(shape) == 2 and shape[1] == 2 else ""
            problem = f"{path}: edge_index has shape {list(shape)}, not [2, E]{hint}"
            raise InputError(problem, to_two_rows(shape, "edge_index"))
        edges = self.archive.integers("edge_index", 2)
        if edges.shape[1] == 0:
            raise InputError(f"{path}: edge_index has no edges", "give a graph with at least one edge")
        return edges


class AdjacencySource(ArchiveSource):
    """An archive of the gnn-benchmark form, whose row u of the adjacency lists the targets of u."""

    def __init__(self, config: NpzConfig, archive: Archive):
        refuse_beside_adjacency(archive, one_split(config.split))
        form = "attr" if "attr_indptr" in archive else "attr_matrix" if "attr_matrix" in archive else None
        super().__init__(config, archive, form)

    def counts(self) -> dict[str, int | tuple[int, ...]]:
        """Returns the rows of the adjacency, its shape, and the number of labels."""
        archive = self.archive
        said: dict[str, int | tuple[int, ...]] = {"adj_indptr": len(archive.integers("adj_indptr", 1)) - 1}
        if "adj_shape" in archive:
            said["adj_shape"] = tuple(archive.integers("adj_shape", 1).tolist())
        if "labels" in archive:
            said["labels"] = num_labels(archive, "labels")
        return said

    def graph(self, progress: Progress) -> RawGraph:
        """Reads edges and labels."""
        archive, num_nodes = self.archive, self.num_nodes
        if self.config.times:
            problem = f"{archive.path}: [sampling] before = 'seed', and the form with adj_indptr has no times"
            raise InputError(problem, "save edge_index, edge_time and node_time")
        indptr, targets = archive.integers("adj_indptr", 1), archive.integers("adj_indices", 1)
        check_indptr(archive, "adj_indptr", indptr, len(targets))
        if len(targets) == 0:
            raise InputError(f"{archive.path}: adj_indices has no edges", "give a graph with at least one edge")
        sources = np.repeat(np.arange(num_nodes, dtype=id_dtype(num_nodes)), np.diff(indptr))
        src, dst = endpoints(archive, (sources, targets), num_nodes)
        labels = to_labels(archive, "labels", num_nodes, self.config.task)
        names, unread = class_names(archive, labels), unread_arrays(archive, one_split(self.config.split))
        return RawGraph(num_nodes=num_nodes, src=src, dst=dst, labels=labels, class_names=names, unread=unread)


def _survey_nodes(archive: Archive, headers: dict[str, Header]) -> tuple[int, int, np.dtype[Any]]:
    """Returns (N, F, feature type)."""
    form = next((name for name in ("x", "attr_matrix", "x_data", "attr_data") if name in headers), None)
    value = headers[form].dtype if form else np.dtype(np.uint8)

    def shape(name: str, ndim: int) -> tuple[int, ...]:
        found = tuple(headers[name].shape)
        if len(found) != ndim:
            raise InputError(f"{archive.path}: {name} has the shape {list(found)}, not {ndim} dimensions", FIX_FILE)
        return found

    if form in ("x_data", "attr_data"):
        sizes = archive.integers(form.replace("data", "shape"), 1).tolist()
        if len(sizes) != 2:
            problem = f"{archive.path}: {form.replace('data', 'shape')} holds {sizes}, not rows and columns"
            raise InputError(problem, FIX_FILE)
        return sizes[0], sizes[1], value
    if form is not None:
        feature_rows(archive, form)  # refuses another shape
        return (*headers[form].shape, value)  # pyright: ignore[reportReturnType]
    if "num_nodes" in headers:
        return number_of_nodes(archive), 1, value
    for name in ("y", "labels"):
        if name in headers:
            return num_labels(archive, name), 1, value
    if "adj_indptr" in headers:
        return shape("adj_indptr", 1)[0] - 1, 1, value
    return largest(archive.integers("edge_index", 2)) + 1, 1, value
