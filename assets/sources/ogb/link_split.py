"""Splits of links that OGB saves with torch: `split/SCHEME/train.pt`, `valid.pt` and `test.pt` of the ogbl-* datasets.

    edge [n, 2]                                            ogbl-ppa, ogbl-collab, ogbl-ddi, ogbl-vessel
    source_node [n], target_node [n]                       ogbl-citation2
    head, tail [n], relation [n], head_type, tail_type     ogbl-biokg: ids within the types, numbers of relations

The edges of the graph are those to train on; the two other files have the rest. Negatives and weights of the files are not read, and
neither is train.pt, whose edges the graph has. Format: `ogb/linkproppred/dataset.py` of github.com/snap-stanford/ogb.

Peak memory: 16 bytes per edge of the two files, beside the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def with_held_out(relations: Sequence[Relation], root: Path, scheme: str | None, duck: Duck) -> list[Relation]:
    """Returns the relations with the links to validate and to test behind their edges, and marks for each.

    Args:
        scheme: folder in split/; None for the only one.

    Raises:
        InputError: a file is missing or cannot be read, there are several schemes and none was chosen, or a link is of no relation.
    """
    top = root / "split"
    schemes = sorted({path.parent.name for path in top.glob("*/test.pt")})
    if (scheme or "") not in schemes and not (scheme is None and len(schemes) == 1):
        problem = f"split = {scheme}: {top} holds {', '.join(schemes) or 'no folder with test.pt'}"
        raise InputError(problem, "name one of these as `split` in [graph], or set split = 'random' in [task]")
    kinds = _numbered(relations, root, duck) if len(relations) > 1 else {}
    found: dict[tuple[str, str, str], list[tuple[Path, int, Array]]] = {each.kind: [] for each in relations}
    for name, part in HELD_OUT.items():
        path = required(top / (scheme or schemes[0]) / name)
        values = load_split(path, AGAIN)
        if len(relations) == 1:
            found[relations[0].kind].append((path, part, _pairs(values, path)))
            continue
        for kind, pairs in _typed_pairs(values, path, kinds):
            found[kind].append((path, part, pairs))
    return [_extended(each, found[each.kind]) for each in relations]


def _pairs(values: Mapping[str, Any], path: Path) -> Array:
    """Returns i64[n, 2], the ends of the links of a graph without types."""
    if "edge" in values:
        return _whole(values["edge"], path, "edge", 2).reshape(-1, 2)
    ends = next((ends for ends in (("source_node", "target_node"), ("head", "tail")) if ends[0] in values), None)
    if ends is None or ends[1] not in values:
        has = ", ".join(values) or "nothing"
        raise InputError(f"{path}: holds {has}, and neither 'edge' nor 'source_node' and 'target_node'", AGAIN)
    source, target = (_whole(values[end], path, end, 1) for end in ends)
    _require_lengths(path, {ends[0]: source, ends[1]: target})
    return np.stack([source, target], axis=1)


def _typed_pairs(
    values: Mapping[str, Any], path: Path, kinds: Mapping[int, tuple[str, str, str]]
) -> Iterator[tuple[tuple[str, str, str], Array]]:
    """Yields (kind, i64[n, 2]) of the links of each relation."""
    if missing := [name for name in ("head", "relation", "tail") if name not in values]:
        raise InputError(f"{path}: lacks {', '.join(missing)}", AGAIN)
    head, relation, tail = (_whole(values[name], path, name, 1) for name in ("head", "relation", "tail"))
    _require_lengths(path, {"head": head, "relation": relation, "tail": tail})
    for number in np.unique(relation).tolist():
        rows = np.flatnonzero(relation == number)
        if number not in kinds:
            raise InputError(f"{path}: row {rows[0]}: {number} is the number of no relation of the graph", AGAIN)
        yield kinds[number], np.stack([head[rows], tail[rows]], axis=1)


def _whole(values: Any, path: Path, name: str, ndim: int) -> Array:
    found = np.asarray(values)
    if found.dtype.kind not in "iu" or found.ndim != ndim or (ndim == 2 and found.shape[1] != 2):
        shape = "[n, 2]" if ndim == 2 else "[n]"
        raise InputError(f"{path}: '{name}' is {found.dtype}{list(found.shape)}, not integers {shape}", AGAIN)
    return found.astype(np.int64)


def _require_lengths(path: Path, arrays: Mapping[str, Array]) -> None:
    if len({len(each) for each in arrays.values()}) > 1:
        shown = ", ".join(f"{len(each)} of '{name}'" for name, each in arrays.items())
        raise InputError(f"{path}: holds {shown}", AGAIN)


def _numbered(relations: Sequence[Relation], root: Path, duck: Duck) -> dict[int, tuple[str, str, str]]:
    """Returns the number of each relation, which its edge_reltype.csv.gz repeats for each edge."""
    found: dict[int, tuple[str, str, str]] = {}
    for each in relations:
        path = required(root / "raw" / "relations" / "___".join(each.kind) / "edge_reltype.csv.gz")
        table = TableFiles(duck, [path], "path", BARE)
        numbers = duck.rows(f"SELECT DISTINCT {table.integer('path', 'c0')} FROM {table.source(0)} LIMIT 2", str(path))
        if len(numbers) != 1 or numbers[0][0] is None or numbers[0][0] in found:
            raise InputError(f"{path}: does not hold the number of one relation", FIX_FILE)
        found[int(numbers[0][0])] = each.kind
    return found


def _extended(relation: Relation, held_out: Sequence[tuple[Path, int, Array]]) -> Relation:
    """Returns a relation with links behind its edges."""

    def batches() -> Iterator[EdgeBatch]:
        for batch in relation.batches():
            yield batch._replace(mark=np.zeros(len(batch.src)))
        for _, part, pairs in held_out:
            yield EdgeBatch(pairs[:, 0], pairs[:, 1], mark=np.full(len(pairs), float(part)))

    def place(row: int) -> str:
        if row < relation.num_edges:
            return relation.place(row)
        row -= relation.num_edges
        for path, _, pairs in held_out:
            if row < len(pairs):
                return f"{path}: row {row}"
            row -= len(pairs)
        return f"{relation.place(relation.num_edges)}"

    total = relation.num_edges + sum(len(pairs) for *_, pairs in held_out)
    return replace(relation, num_edges=total, batches=batches, place=place)
