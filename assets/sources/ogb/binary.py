"""The binary forms of an OGB folder: NumPy archives (ogbn-papers100M), and NumPy files by type (MAG240M)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graphmill.assets.sources.arrays.archive import Archive
from graphmill.assets.sources.arrays.array_files import check_matrix
from graphmill.assets.sources.arrays.mapped_arrays import STEP_EDGES, array_block, array_relation, open_plain
from graphmill.assets.sources.classes import known_labels
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.named.arrays import MEANT
from graphmill.assets.sources.ogb.split_dict import NAME as SPLIT_DICT
from graphmill.assets.sources.ogb.split_dict import in_range, load_split
from graphmill.assets.sources.ogb.text import ONLY, Parts, read_split, refuse_other_spelling, required
from graphmill.assets.sources.readers.duck import FIX_FILE, Duck
from graphmill.assets.sources.splits import PARTS
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation, first_ids
from graphmill.assets.tasks.labels import LINKS, no_labels
from graphmill.kernels.arrays import largest
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

INSTEAD = "write split/<scheme>/paper/{train,valid,test}.csv.gz instead, one id per line"


def read_binary(path: Path, duck: Duck, *, labelled: bool = True) -> Parts:
    """Reads raw/data.npz and raw/node-label.npz; see `graphmill.assets.sources.ogb.source.read`."""
    with Archive(path / "raw" / "data.npz") as archive:
        num_nodes, num_edges = (_one_count(archive, name) for name in ("num_nodes_list", "num_edges_list"))
        relation = _archive_relation(archive, num_edges)
        blocks = [_archive_features(archive, num_nodes)] if "node_feat" in archive else []
        other = next((name for name in archive.names if name.lower() in ("x", "node_feat", *MEANT["x"])), "")
        if other and not blocks:
            problem = f"{archive.path}: array '{other}' is not read (did you mean 'node_feat'?)"
            raise InputError(problem, "save it as node_feat, or leave it out")
    if not labelled:
        return {ONLY: num_nodes}, [relation], blocks, no_labels(LINKS, num_nodes)
    with Archive(required(path / "raw" / "node-label.npz")) as archive:
        labels = known_labels(archive.read("node_label"), num_nodes, f"{archive.path}: node_label", "node_label")
    return {ONLY: num_nodes}, [relation], blocks, labels


def _one_count(archive: Archive, name: str) -> int:
    counts = archive.integers(name, 1)
    if len(counts) != 1 or counts[0] < 0:
        problem = f"{archive.path}: {name} has {len(counts)} counts, not one"
        raise InputError(problem, "give a folder with one graph (ogbn-*)")
    return int(counts[0])


def _archive_relation(archive: Archive, num_edges: int) -> Relation:
    path, name = archive.path, "edge_index"
    header = archive.header(name)
    if header.dtype.kind not in "iu" or header.shape != (2, num_edges):
        shape = f"{header.dtype}{list(header.shape)}"
        raise InputError(f"{path}: edge_index is {shape}, not integers [2, {num_edges}]", FIX_FILE)

    def batches() -> Iterator[EdgeBatch]:
        with (
            Archive(path) as one,
            Archive(path) as two,
        ):  # the rows lie one after the other: two readers walk side by side
            if header.fortran:
                for pairs in one.elements(name, 0, 2 * num_edges, 2 * STEP_EDGES):
                    yield EdgeBatch(pairs[0::2], pairs[1::2])
                return
            sources = one.elements(name, 0, num_edges, STEP_EDGES)
            targets = two.elements(name, num_edges, 2 * num_edges, STEP_EDGES)
            for src, dst in zip(sources, targets, strict=True):
                yield EdgeBatch(src, dst)

    return Relation(
        kind=(ONLY, "edge", ONLY),
        num_edges=num_edges,
        batches=batches,
        place=lambda row: f"{path}: edge_index column {row}",
    )


def _archive_features(archive: Archive, num_nodes: int) -> FeatureBlock:
    path, name = archive.path, "node_feat"
    header, where = archive.header(name), f"{path}: {name}"
    check_matrix(header.shape, header.dtype, num_nodes, where)

    def slices() -> Iterator[tuple[int, Array]]:
        with Archive(path) as opened:
            yield from opened.rows(name)

    return FeatureBlock(where=where, num_rows=num_nodes, width=header.shape[1], dtype=header.dtype, slices=slices)


def read_arrays(path: Path, duck: Duck, *, labelled: bool = True) -> Parts:
    """Reads processed/<type> and processed/<source>___<relation>___<destination> (MAG240M).

    See `graphmill.assets.sources.ogb.source.read`.
    """
    folder, relations = path / "processed", []
    triplets = sorted(tuple(path.name.split("___")) for path in folder.iterdir() if path.name.count("___") == 2)
    if not triplets:
        raise InputError(f"{folder} holds no folder SOURCE___RELATION___DESTINATION", "restore the folder")
    for source, name, target in triplets:
        file = folder / "___".join((source, name, target)) / "edge_index.npy"
        relations.append(array_relation(open_plain(file), (source, name, target), str(file)))
    node_types = _count_nodes(folder, relations)
    starts, blocks = first_ids(node_types), []
    labels = np.full(sum(node_types.values()), -1, np.int32)
    for name, count in node_types.items():
        if (file := folder / name / "node_feat.npy").is_file():
            blocks.append(array_block(open_plain(file), starts[name], count, str(file)))
        else:
            refuse_other_spelling(file)
        if labelled and (file := folder / name / "node_label.npy").is_file():
            labels[starts[name] : starts[name] + count] = known_labels(open_plain(file), count, str(file), "labels")
    return node_types, relations, blocks, labels


def _count_nodes(folder: Path, relations: list[Relation]) -> dict[str, int]:
    """Returns the number of nodes of each type: the rows of its features or labels, else the largest id of an edge + 1."""
    counts: dict[str, int] = {}
    for name in sorted({kind for relation in relations for kind in relation.kind[::2]}):
        arrays = [path for file in ("node_feat", "node_label") if (path := folder / name / f"{file}.npy").is_file()]
        if arrays:
            counts[name] = len(open_plain(arrays[0]))
            continue
        most = -1
        for relation in relations:
            for batch in relation.batches():
                ends = [batch.src] * (relation.kind[0] == name) + [batch.dst] * (relation.kind[2] == name)
                most = max([most, *map(largest, ends)])
        counts[name] = most + 1
    return counts


def array_split(
    root: Path, scheme: str | None, duck: Duck, node_types: dict[str, int], labels: Array
) -> tuple[tuple[Array, Array, Array] | None, dict[str, int]]:
    """Reads split/ or split_dict.pt. Test nodes whose labels are withheld are left out and counted."""
    path = root / SPLIT_DICT
    if scheme == "random" or (root / "split").is_dir() or not path.is_file():
        return read_split(root, scheme, duck, node_types, typed=True), {}
    if "paper" not in node_types:
        problem = f"{path}: splits nodes of type 'paper', which the graph lacks"
        raise InputError(problem, 'set split = "random" in [graph]')
    found, first = load_split(path, INSTEAD), first_ids(node_types)["paper"]
    found.setdefault("test", found.get("test-whole", np.zeros(0, np.int64)))
    parts = []
    for part in PARTS:
        ids = found.get(part)
        if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise InputError(f"{path}: has no ids '{part}'", f"copy it again, or {INSTEAD}")
        parts.append(in_range(ids.astype(np.int64), node_types["paper"], path) + first)
    labelled = parts[2][labels[parts[2]] >= 0]
    return (parts[0], parts[1], labelled), {"num_test_withheld": len(parts[2]) - len(labelled)}
