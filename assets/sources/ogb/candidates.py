"""Candidates that OGB saves beside the links of `split/SCHEME/valid.pt` and `test.pt`, and ranks these among.

    edge_neg [m, 2]                            pairs that all links are compared with: ogbl-ppa, ogbl-collab, ogbl-ddi, ogbl-vessel
    target_node_neg [n, k]                     targets for each link: ogbl-citation2
    head_neg [n, k], tail_neg [n, k]           sources and targets for each link: ogbl-wikikg2, ogbl-biokg; ids within the types

Format: `ogb/linkproppred/dataset.py` of github.com/snap-stanford/ogb.

Peak memory: 24 bytes per candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphmill.assets.sources.candidates import EndCandidates, Given, SharedPairs
from graphmill.assets.sources.ogb.link_split import AGAIN, HeldOut, held_out, whole_numbers
from graphmill.assets.sources.typed_graph import Relation, first_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import Side
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.sources.readers.duck import Duck

ENDS: Mapping[Side, tuple[str, ...]] = {"target": ("target_node_neg", "tail_neg"), "source": ("head_neg",)}
"""Side -> names of its array."""
PAIRS = "edge_neg"


def given_candidates(
    node_types: dict[str, int], relations: Sequence[Relation], root: Path, scheme: str | None, duck: Duck
) -> list[Given]:
    """Returns the candidates of a folder.

    Args:
        scheme: folder in split/; None for the only one.

    Raises:
        InputError: a file has no candidates, or they do not fit its links or the nodes.
    """
    found = [_of_links(node_types, relations, each) for each in held_out(relations, root, scheme, duck)]
    return [each for given in found for each in given]


def _of_links(node_types: dict[str, int], relations: Sequence[Relation], links: HeldOut) -> list[Given]:
    if PAIRS in links.values and len(relations) == 1:
        pairs = whole_numbers(links.values[PAIRS], links.path, PAIRS, 2)
        _require_nodes(pairs, node_types[relations[0].kind[0]], links.path, PAIRS, np.arange(len(pairs)))
        return [SharedPairs(pairs=pairs, part=links.part)]
    firsts, kind = first_ids(node_types), relations[links.relation].kind
    types: dict[Side, str] = {"source": kind[0], "target": kind[2]}
    starts, ends = {}, {}
    for side, names in ENDS.items():
        for name in (each for each in names if each in links.values):
            table = whole_numbers(links.values[name], links.path, name, 2, width=None)
            if len(links.rows) and len(table) <= links.rows.max():
                raise InputError(f"{links.path}: '{name}' has {len(table)} rows, fewer than there are links", AGAIN)
            table = table[links.rows]
            _require_nodes(table, node_types[types[side]], links.path, name, links.rows)
            starts[side] = np.arange(len(table) + 1) * table.shape[1]
            ends[side] = table.reshape(-1) + firsts[types[side]]
    if not ends:
        wanted = ", ".join((PAIRS, *(name for names in ENDS.values() for name in names)))
        raise InputError(f"{links.path}: has no candidates: none of {wanted}", "leave source_candidates out of [task]")
    return [
        EndCandidates(
            source=links.pairs[:, 0] + firsts[kind[0]],
            target=links.pairs[:, 1] + firsts[kind[2]],
            relation=np.full(len(links.rows), links.relation, np.uint8) if len(relations) > 1 else None,
            starts=starts,
            ends=ends,
            place=lambda row: f"{links.path}: row {links.rows[row]}",
        )
    ]


def _require_nodes(table: Array, count: int, path: Path, name: str, rows: Array) -> None:
    """Refuses ids [n, k] outside [0, count), with their row."""
    wrong = np.flatnonzero(((table < 0) | (table >= count)).any(axis=1))
    if len(wrong):
        row = table[wrong[0]]
        problem = f"{path}: row {rows[wrong[0]]} of '{name}' has the node {row[(row < 0) | (row >= count)][0]}, and there are {count}"
        raise InputError(f"{problem}; {len(wrong):,} such rows", AGAIN)
