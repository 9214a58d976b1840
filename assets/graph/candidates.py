"""Candidates that links to validate and to test are ranked among, in addition to all nodes: those of the source, or of a file.

The file is a Parquet file with a row for each link:

    source, target          ids of the raw data
    relation                name of the relation; only if several relations are predicted
    target_candidates       list of ids that stand in the place of the target, the target among them
    source_candidates       the same for the source; one of the two lists will do

A part of the split has candidates for all of its links, or for none. A link that is stored in the other direction (assets/tasks/links.py)
takes the candidates of its sources as those of its targets, and the reverse.

Memory: 24 bytes per candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.graph.find_nodes import find_nodes
from graphmill.assets.sources.candidates import EndCandidates, SharedPairs
from graphmill.assets.sources.interface import RawGraph
from graphmill.assets.sources.task_table import TaskTable
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.tasks.links import LinkCandidates, Links, Ranges, end_ranges
from graphmill.assets.tasks.relations import named_relations
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import Side
from graphmill.kernels.links.splits import PARTS, TRAIN
from graphmill.kernels.links.triples import Triples
from graphmill.kernels.types import Array, id_dtype

if TYPE_CHECKING:
    import polars

LISTS: Mapping[Side, str] = {"target": "target_candidates", "source": "source_candidates"}
"""Side -> column of a file."""
OTHER: Mapping[Side, Side] = {"target": "source", "source": "target"}
GIVE_ALL = (
    "give candidates for all links of a part, or for none; split = 'given' and 'time' in [task] do not draw the parts"
)
GIVE = "give source, target and target_candidates or source_candidates, lists of ids (docs/own-data.md#candidates)"


def link_candidates(raw: RawGraph, task: TaskTable, links: Links) -> LinkCandidates | None:
    """Returns the candidates that `[task]` asks for; None if it asks for none.

    Raises:
        InputError: the file cannot be read, or the candidates do not fit the links; names the row.
    """
    if task.candidates is not None:
        return stored_candidates(links, raw.num_nodes, [read_candidates(task.candidates, raw, links)])
    return stored_candidates(links, raw.num_nodes, raw.candidates) if task.source_candidates else None


def read_candidates(path: Path, raw: RawGraph, links: Links) -> EndCandidates:
    """Reads a file of candidates.

    Raises:
        InputError: it cannot be read, has other columns, or names a relation or a node that is not there.
    """
    import polars

    several = links.relation is not None and len(links.predicted) > 1
    columns = ["source", "target", *(["relation"] if several else [])]
    try:
        file = polars.scan_parquet(path, glob=False)
        schema = file.collect_schema()
        lists: dict[Side, str] = {side: name for side, name in LISTS.items() if name in schema}
        if problem := _mistake(schema, columns, list(lists.values())):
            raise InputError(f"the candidates in {path}: {problem}", GIVE)
        arrays = [polars.col(name).arr.to_list() for name in lists.values() if isinstance(schema[name], polars.Array)]
        table = file.select(*columns, *lists.values()).with_columns(arrays).collect()
    except (OSError, polars.exceptions.PolarsError) as error:
        raise InputError(f"the candidates in {path} cannot be read: {error}", GIVE) from error
    if not len(table):
        raise InputError(f"the candidates in {path}: the file has no rows", GIVE)
    rows = _File(path, table, polars.Series(np.arange(raw.num_nodes)) if raw.original_ids is None else raw.original_ids)
    kinds = rows.relations(links, list(raw.numbers.get("edge_types", ()))) if several else None
    ranges = end_ranges(links, raw.num_nodes, raw.node_type_ptr)
    of_row = np.full(len(table), min(links.predicted)) if kinds is None else kinds
    starts, ends = dict[Side, Array](), dict[Side, Array]()
    for side, name in lists.items():
        starts[side], ends[side] = rows.lists(name, side, of_row, ranges)
    return EndCandidates(
        source=rows.nodes("source", of_row, ranges),
        target=rows.nodes("target", of_row, ranges),
        relation=None if links.relation is None else of_row.astype(np.uint8),
        starts=starts,
        ends=ends,
        place=rows.place,
        complete=True,
    )


def _mistake(schema: Mapping[str, Any], columns: Sequence[str], lists: Sequence[str]) -> str:
    """Returns what is wrong with the columns of a file; "" for nothing.

    Args:
        columns: names of the columns of one id, or name, per row.
        lists: names of the columns of lists that it has.
    """
    import polars

    if lacking := [name for name in columns if name not in schema] or ([] if lists else [*LISTS.values()]):
        return f"lacks {' and '.join(lacking)}"
    for name in lists:
        found = schema[name]
        if not isinstance(found, polars.List | polars.Array):
            return f"column {name} holds no lists"
        if found.inner.is_nested():  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            return f"column {name} holds lists of {found.inner}, not of ids"
    wrong = next((name for name in columns if schema[name].is_nested()), None)
    return "" if wrong is None else f"column {wrong} holds {schema[wrong]}, not ids"


class _File:
    """The rows of a file of candidates.

    Args:
        original: ids of all nodes in the raw data.
    """

    def __init__(self, path: Path, table: polars.DataFrame, original: Any):
        import polars

        self.path, self.table, self.original = path, table, polars.Series(original)

    def place(self, row: int) -> str:
        """Returns a row in words."""
        return f"{self.path}, row {row + 1}: {self.table['source'][row]} -> {self.table['target'][row]}"

    def relations(self, links: Links, names: Sequence[str]) -> Array:
        """Returns i64[n], the relation of each row."""
        given = [str(name) for name in self.table["relation"]]
        number = {}
        for name in dict.fromkeys(given):
            found = named_relations([name], names, f"{self.path}, row {given.index(name) + 1}: relation")
            if len(found) > 1 or found[0] not in links.predicted:
                problem = "names several relations" if len(found) > 1 else "is not predicted"
                raise InputError(
                    f"{self.place(given.index(name))}: {name!r} {problem}", "name one that [task] predicts"
                )
            number[name] = found[0]
        return np.array([number[name] for name in given], np.int64)

    def nodes(self, side: Side, of_row: Array, ranges: Ranges) -> Array:
        """Returns i64[n], the nodes of a column of ends."""
        found = find_nodes(self.original, self.table[side], of_row, ranges[side])
        if (missing := np.flatnonzero(found < 0)).size:
            self._refuse(missing, f"the {side} is no node that such an edge can have there")
        return found

    def lists(self, name: str, side: Side, of_row: Array, ranges: Ranges) -> tuple[Array, Array]:
        """Returns (i64[n + 1], i64[k]): where the nodes of each row begin, and the nodes of a column of lists."""
        counts = self.table[name].list.len().fill_null(0).to_numpy().astype(np.int64)
        if (empty := np.flatnonzero(counts == 0)).size:
            self._refuse(empty, f"{name} is empty")
        flat, row = self.table[name].explode(), np.repeat(np.arange(len(counts)), counts)
        found = find_nodes(self.original, flat, of_row[row], ranges[side])
        if (missing := np.flatnonzero(found < 0)).size:
            said = f"{name} has {flat[int(missing[0])]}, which is no node that such an edge can have there"
            self._refuse(np.unique(row[missing]), said)
        return np.concatenate([[0], np.cumsum(counts)]), found

    def _refuse(self, rows: Array, problem: str) -> None:
        more = f"; {len(rows):,} such rows" if len(rows) > 1 else ""
        raise InputError(f"{self.place(int(rows[0]))}: {problem}{more}", "give ids of the raw data")


@dataclass(frozen=True)
class _Segments:
    """Candidates of one side: link i64[n], count i64[n] of each segment, ids i64[k] of all segments one after another."""

    link: Array
    count: Array
    ids: Array


def stored_candidates(links: Links, num_nodes: int, given: Sequence[EndCandidates | SharedPairs]) -> LinkCandidates:
    """Orders candidates by the links of a graph.

    Raises:
        InputError: rows that are to be complete miss a link or its own end, name a link twice, or one that is not held out.
    """
    triples = Triples(num_nodes=num_nodes, reverse_of=links.reverse_of)
    parts: dict[Side, list[_Segments]] = {"target": [], "source": []}
    for each in given:
        if isinstance(each, EndCandidates):
            _add(parts, each, links, triples)
    starts, ends, ids = {}, {}, id_dtype(num_nodes)
    for side, segments in parts.items():
        if sum(len(each.link) for each in segments):
            starts[side], found = _by_link(segments, len(links.split))
            ends[side] = found.astype(ids)
    pairs = [each for each in given if isinstance(each, SharedPairs)]
    return LinkCandidates(
        starts=starts,
        ends=ends,
        pairs=np.concatenate([each.pairs for each in pairs]).astype(ids) if pairs else None,
        part=np.concatenate([np.full(len(each.pairs), each.part, np.uint8) for each in pairs]) if pairs else None,
    )


def _add(parts: dict[Side, list[_Segments]], given: EndCandidates, links: Links, triples: Triples) -> None:
    """Adds the segments of rows to those of each side."""
    numbers = triples.links(links.source, links.target, links.relation)
    wanted, order = triples.links(given.source, given.target, given.relation), np.argsort(numbers, kind="stable")
    link = order[np.minimum(np.searchsorted(numbers, wanted, sorter=order), len(numbers) - 1)]
    held_out = (numbers[link] == wanted) & (np.asarray(links.split)[link] != TRAIN)
    first = np.zeros(len(wanted), bool)
    first[np.unique(wanted, return_index=True)[1]] = True
    if given.complete:
        _require_complete(given, links, link, held_out, first)
    rows = np.flatnonzero(held_out & first)
    turned = given.source[rows] != links.source[link[rows]]
    for side, starts in given.starts.items():
        of_row = np.repeat(np.arange(len(given.source)), np.diff(starts))
        others = given.ends[side] != (given.target if side == "target" else given.source)[of_row]
        if given.complete:
            _require_own(
                given, side, *(np.bincount(of_row[each], minlength=len(given.source)) for each in (~others, others))
            )
        ways: tuple[tuple[Side, Array], ...] = (side, rows[~turned]), (OTHER[side], rows[turned])
        for into, chosen in ways:
            places = _places(starts[chosen], starts[chosen + 1] - starts[chosen])
            places = places[others[places]]
            kept = np.bincount(of_row[places], minlength=len(given.source))[chosen]
            parts[into].append(_Segments(link[chosen], kept, given.ends[side][places]))


def _places(first: Array, count: Array) -> Array:
    """Returns i64[sum of count], the places of segments that begin at i64[n]."""
    ends = np.cumsum(count)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - count), count)


def _by_link(segments: Sequence[_Segments], num_links: int) -> tuple[Array, Array]:
    """Returns (i64[E + 1], i64[k]), the candidates in the order of links."""
    link, count = (np.concatenate([getattr(each, name) for each in segments]) for name in ("link", "count"))
    order = np.argsort(link, kind="stable")
    first = np.cumsum(count) - count
    starts = np.zeros(num_links + 1, np.int64)
    np.add.at(starts, link + 1, count)
    ids = np.concatenate([each.ids for each in segments])
    return np.cumsum(starts), ids[_places(first[order], count[order])]


def _require_complete(given: EndCandidates, links: Links, link: Array, held_out: Array, first: Array) -> None:
    """Refuses rows of a link that is not held out, or of one link twice, and a part of which a link has no row."""
    for wrong, problem in ((~held_out, "is not a link to validate or to test"), (~first, "has candidates twice")):
        if wrong.any():
            more = f"; {np.count_nonzero(wrong):,} such rows" if np.count_nonzero(wrong) > 1 else ""
            remedy = "give each link of a part one row, in either direction"
            raise InputError(f"{given.place(int(np.argmax(wrong)))} {problem}{more}", remedy)
    split, has = np.asarray(links.split), np.zeros(len(links.split), bool)
    has[link] = True
    for part in np.unique(split[link]).tolist():
        lacking = np.count_nonzero((split == part) & ~has)
        if lacking:
            problem = f"{lacking:,} of {np.count_nonzero(split == part):,} {PARTS[part]} links have no candidates"
            raise InputError(f"{given.place(len(given.source) - 1)} is the last row: {problem}", GIVE_ALL)


def _require_own(given: EndCandidates, side: Side, own: Array, others: Array) -> None:
    """Refuses rows whose candidates lack the link's own end, or are nothing else.

    Args:
        own, others: i64[n], how often a row's candidates are its own end, and other nodes.
    """
    for counts, problem, remedy in (
        (own, "do not have the {side} itself", "list the right end among its candidates"),
        (others, "have nothing but the {side} itself", "list other nodes, too"),
    ):
        if len(rows := np.flatnonzero(counts == 0)):
            more = f"; {len(rows):,} such rows" if len(rows) > 1 else ""
            told = f"{given.place(int(rows[0]))}: {LISTS[side]} {problem.format(side=side)}{more}"
            raise InputError(told, remedy)


def save_candidates(candidates: LinkCandidates, writer: Writer) -> None:
    """Writes the arrays of the candidates."""
    for side, starts in candidates.starts.items():
        writer.save(f"{side}_candidate_starts", starts)
        writer.save(f"{side}_candidates", candidates.ends[side])
    if candidates.pairs is not None and candidates.part is not None:
        writer.save("candidate_pairs", candidates.pairs)
        writer.save("candidate_pairs_part", candidates.part)
