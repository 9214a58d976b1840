"""Splits of links that OGB saves with torch: `split/SCHEME/train.pt`, `valid.pt` and `test.pt` of the ogbl-* datasets.

    edge [n, 2]                                            ogbl-ppa, ogbl-collab, ogbl-ddi, ogbl-vessel
    source_node [n], target_node [n]                       ogbl-citation2
    head, tail [n], relation [n], head_type, tail_type     ogbl-biokg: ids within the types, numbers of relations

The edges of the graph are those to train on; the two other files have the rest. Negatives of the files are candidates
(assets/sources/ogb/candidates.py), weights are not read, and neither is train.pt, whose edges the graph has. A link that is an edge to
train on as well, as an author who works with another one again in ogbl-collab, is left out and counted: a model would only repeat what it
has seen.

Format: `ogb/linkproppred/dataset.py` of github.com/snap-stanford/ogb.

Peak memory: 16 bytes per edge of the graph, and as many per link of the two files, beside the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphmill.assets.sources.ogb.split_dict import load_split
from graphmill.assets.sources.ogb.text import BARE, required
from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.sources.readers.duck import Duck

HELD_OUT = {"valid.pt": 1, "test.pt": 2}
"""File -> its part."""
AGAIN = "unzip the dataset again"


def with_held_out(
    relations: Sequence[Relation], root: Path, scheme: str | None, duck: Duck, *, undirected: bool
) -> list[Relation]:
    """Returns the relations with the links to validate and to test behind their edges, and marks for each.

    Args:
        scheme: folder in split/; None for the only one.
        undirected: whether the reverse of an edge is the same link.

    Raises:
        InputError: a file is missing or cannot be read, there are several schemes and none was chosen, or a link is of no relation.
    """
    found: dict[tuple[str, str, str], list[tuple[Path, int, Array]]] = {each.kind: [] for each in relations}
    for each in held_out(relations, root, scheme, duck):
        found[relations[each.relation].kind].append((each.path, each.part, each.pairs))
    return [
        _Extended(each, found[each.kind], both_ways=undirected and each.kind[0] == each.kind[2]).found()
        for each in relations
    ]


class HeldOut(NamedTuple):
    """Links of one file and relation.

    Attributes:
        part: 1 valid, 2 test.
        rows: i64[n], rows of the links in the file; pairs: i64[n, 2], their ends within the node types.
        values: arrays of the file by name.
    """

    path: Path
    part: int
    relation: int
    rows: Array
    pairs: Array
    values: Mapping[str, Any]


def held_out(relations: Sequence[Relation], root: Path, scheme: str | None, duck: Duck) -> Iterator[HeldOut]:
    """Yields the links to validate and to test; arguments and errors as of `with_held_out`."""
    top = root / "split"
    schemes = sorted({path.parent.name for path in top.glob("*/test.pt")})
    if (scheme or "") not in schemes and not (scheme is None and len(schemes) == 1):
        problem = f"split = {scheme}: {top} holds {', '.join(schemes) or 'no folder with test.pt'}"
        raise InputError(problem, "name one of these as `split` in [graph], or set split = 'random' in [task]")
    kinds = _numbered(relations, root, duck) if len(relations) > 1 else {}
    for name, part in HELD_OUT.items():
        path = required(top / (scheme or schemes[0]) / name)
        values = load_split(path, AGAIN)
        if len(relations) == 1:
            pairs = _pairs(values, path)
            yield HeldOut(path, part, 0, np.arange(len(pairs)), pairs, values)
            continue
        for relation, rows, pairs in _typed_pairs(values, path, kinds):
            yield HeldOut(path, part, relation, rows, pairs, values)


def _pairs(values: Mapping[str, Any], path: Path) -> Array:
    """Returns i64[n, 2], the ends of the links of a graph without types."""
    if "edge" in values:
        return whole_numbers(values["edge"], path, "edge", 2).reshape(-1, 2)
    ends = next((ends for ends in (("source_node", "target_node"), ("head", "tail")) if ends[0] in values), None)
    if ends is None or ends[1] not in values:
        has = ", ".join(values) or "nothing"
        raise InputError(f"{path}: holds {has}, and neither 'edge' nor 'source_node' and 'target_node'", AGAIN)
    source, target = (whole_numbers(values[end], path, end, 1) for end in ends)
    _require_lengths(path, {ends[0]: source, ends[1]: target})
    return np.stack([source, target], axis=1)


def _typed_pairs(values: Mapping[str, Any], path: Path, kinds: Mapping[int, int]) -> Iterator[tuple[int, Array, Array]]:
    """Yields (relation, rows i64[n], ends i64[n, 2]) of the links of each relation."""
    if missing := [name for name in ("head", "relation", "tail") if name not in values]:
        raise InputError(f"{path}: lacks {', '.join(missing)}", AGAIN)
    head, relation, tail = (whole_numbers(values[name], path, name, 1) for name in ("head", "relation", "tail"))
    _require_lengths(path, {"head": head, "relation": relation, "tail": tail})
    for number in np.unique(relation).tolist():
        rows = np.flatnonzero(relation == number)
        if number not in kinds:
            raise InputError(f"{path}: row {rows[0]}: {number} is the number of no relation of the graph", AGAIN)
        yield kinds[number], rows, np.stack([head[rows], tail[rows]], axis=1)


def whole_numbers(values: Any, path: Path, name: str, ndim: int, width: int | None = 2) -> Array:
    """Returns i64[n], or i64[n, width] with any width for None, of an array of a file.

    Raises:
        InputError: the array has another shape or type.
    """
    found = np.asarray(values)
    if found.dtype.kind not in "iu" or found.ndim != ndim or (ndim == 2 and width not in (None, found.shape[1])):
        shape = f"[n, {width or 'k'}]" if ndim == 2 else "[n]"
        raise InputError(f"{path}: '{name}' is {found.dtype}{list(found.shape)}, not integers {shape}", AGAIN)
    return found.astype(np.int64)


def _require_lengths(path: Path, arrays: Mapping[str, Array]) -> None:
    if len({len(each) for each in arrays.values()}) > 1:
        shown = ", ".join(f"{len(each)} of '{name}'" for name, each in arrays.items())
        raise InputError(f"{path}: holds {shown}", AGAIN)


def _numbered(relations: Sequence[Relation], root: Path, duck: Duck) -> dict[int, int]:
    """Returns number in a relation's edge_reltype.csv.gz, which repeats it for each edge -> place of the relation."""
    found: dict[int, int] = {}
    for place, each in enumerate(relations):
        path = required(root / "raw" / "relations" / "___".join(each.kind) / "edge_reltype.csv.gz")
        table = TableFiles(duck, [path], "path", BARE)
        numbers = duck.rows(f"SELECT DISTINCT {table.integer('path', 'c0')} FROM {table.source(0)} LIMIT 2", str(path))
        if len(numbers) != 1 or numbers[0][0] is None or numbers[0][0] in found:
            raise InputError(f"{path}: does not hold the number of one relation", FIX_FILE)
        found[int(numbers[0][0])] = place
    return found


class _Extended:
    """A relation with links behind its edges.

    Args:
        held_out: file, part, and ends i64[n, 2] of its links.
        both_ways: whether the reverse of an edge is the same link.
    """

    def __init__(self, relation: Relation, held_out: Sequence[tuple[Path, int, Array]], *, both_ways: bool):
        self.relation, self.held_out, self.both_ways = relation, held_out, both_ways
        self.left_out: dict[Path, int] = {}

    def found(self) -> Relation:
        """Returns the relation."""
        total = self.relation.num_edges + sum(len(pairs) for *_, pairs in self.held_out)
        dropped = lambda: sum(self.left_out.values())  # noqa: E731
        return replace(
            self.relation,
            num_edges=total,
            batches=self._batches,
            place=self._place,
            dropped=dropped,
            remarks=lambda _: [
                f"{path}: {count:,} links are edges to train on as well, and are left out"
                for path, count in self.left_out.items()
                if count
            ],
        )

    def _batches(self) -> Iterator[EdgeBatch]:
        self.left_out, trained = {}, [np.zeros(0, np.uint64)]
        for batch in self.relation.batches():
            trained.append(_numbers(batch.src, batch.dst))
            yield batch._replace(mark=np.zeros(len(batch.src)))
        known, first = np.unique(np.concatenate(trained)), self.relation.num_edges
        for path, part, pairs in self.held_out:
            again = np.isin(_numbers(pairs[:, 0], pairs[:, 1]), known)
            if self.both_ways:
                again |= np.isin(_numbers(pairs[:, 1], pairs[:, 0]), known)
            rows = np.flatnonzero(~again)
            self.left_out[path] = self.left_out.get(path, 0) + len(pairs) - len(rows)
            mark = np.full(len(rows), float(part))
            yield EdgeBatch(pairs[rows, 0], pairs[rows, 1], rows=first + rows, mark=mark)
            first += len(pairs)

    def _place(self, row: int) -> str:
        if row < self.relation.num_edges:
            return self.relation.place(row)
        row -= self.relation.num_edges
        for path, _, pairs in self.held_out:
            if row < len(pairs):
                return f"{path}: row {row}"
            row -= len(pairs)
        return self.relation.place(self.relation.num_edges)


def _numbers(source: Array, target: Array) -> Array:
    """Returns u64[n], a number of each pair; ids have 32 bits."""
    return (np.asarray(source).astype(np.uint64) << np.uint64(32)) + np.asarray(target).astype(np.uint64)
