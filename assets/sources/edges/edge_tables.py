"""Reads the rows of edge tables: looks up ends, checks weights and types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphmill.assets.sources.edges.edge_columns import NOTHING, ROLES, EdgeKeys, Marking, attribute_expressions
from graphmill.assets.sources.edges.node_tables import UNKNOWN_SPLIT
from graphmill.assets.sources.edges.numbering import Numbering, end_columns, locate, no_id, require_one_sort, stage
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.plain_text import Numbers, select_numbers
from graphmill.assets.sources.readers.table_files import WHOLE_NUMBER, TableFiles
from graphmill.assets.sources.spool import EdgeSpool
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.sources.edges.config import EdgeTableKeys

EXAMPLES = 3

Where = Callable[[int], tuple[int, int]]
"""Row of a batch -> (file, row in it)."""

Batches = Iterator[tuple[dict[str, Any], Array, Where]]
"""Name -> column, the rows of the whole table, and their places."""


@dataclass(kw_only=True)
class Dangling:
    """The rule for edges with an end that is missing or that has no row among the nodes, and their number.

    Attributes:
        drop: whether these edges are left out; otherwise they are refused.
        count, num_rows: number of these edges, and of all edges, that were read.
    """

    drop: bool = False
    count: int = 0
    num_rows: int = 0

    def remarks(self, place: str) -> list[str]:
        """Returns a sentence about the edges that are left out; none if there are no such edges."""
        left_out = f"{place}: {self.count:,} of {self.num_rows:,} edges have an end without a node"
        return [f'{left_out}, and are left out by dangling = "drop"'] if self.drop and self.count else []


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of all edges of a table.

    Attributes:
        numbering: map from ids of the tables to the node ids of this end.
        nodes: words for the place of these nodes, for errors.
        section: the table of the pipeline file whose `id_type` decides the ids, for remedies; "" without one.
    """

    numbering: Numbering
    nodes: str
    section: str


class EdgeSlice(NamedTuple):
    """A batch of edges: their ends i64[n], rows i64[n] of the whole table, weights f32[n], types u8[n], marks and labels f64[n] or None."""

    src: Array
    dst: Array
    rows: Array
    weight: Array | None
    type: Array | None
    mark: Array | None
    label: Array | None


def stage_edges(
    edges: TableFiles,
    keys: EdgeKeys,
    relations: Sequence[str],
    kinds: tuple[str, str],
    strict: tuple[bool, bool],
    sections: tuple[str, str],
    marking: Marking = NOTHING,
) -> list[int]:
    """Copies ends and attributes into DuckDB's table `staged`, to be joined with ids; returns the number of rows of each file.

    Args:
        kinds: "integer" or the SQL type of the ids of each end.
        strict: whether text of an end that looks like a number is refused.
        sections: the tables of the pipeline file whose `id_type` decides the ids of each end, "" without one.

    Raises:
        InputError: a column is missing, or text looks like a number.
    """
    roles = {"src": ("source_column", keys.source_column), "dst": ("target_column", keys.target_column)}
    types, expressions = {}, []
    for (side, (role, name)), kind in zip(roles.items(), kinds, strict=True):
        types[side] = "BIGINT" if kind == "integer" else kind
        whole = kind == "integer"
        expressions.append(edges.integer(role, name) if whole else f"CAST({edges.field(name)} AS {kind})")
    extra = attribute_expressions(edges, keys, relations, marking)
    types |= {name: sql_type for name, (_, sql_type) in extra.items()}
    files = stage(edges, "staged", types, expressions + [expression for expression, _ in extra.values()])
    named = {(kind, section): {} for kind, section in zip(kinds, sections, strict=True)}
    for (side, (_, name)), kind, checked, section in zip(roles.items(), kinds, strict, sections, strict=True):
        if checked:
            named[kind, section][side] = name
    for (kind, section), columns in named.items():
        require_one_sort(edges, files, "staged", columns, kind, section)
    return files


def spool_edges(
    edges: TableFiles,
    config: EdgeTableKeys,
    relations: list[str],
    numbering: Numbering,
    staged: list[int] | None,
    spool: EdgeSpool,
    progress: Progress,
    marking: Marking,
) -> Dangling:
    """Appends every edge to the spool; returns the edges without both ends."""
    part = _parts_of_files(edges, config, staged) if config.split_files else None
    total = sum(staged) if staged is not None else None if edges.is_csv else edges.count()
    nodes = f"0 to {numbering.num_nodes - 1}" if config.num_nodes is not None else "the node tables"
    end = End(numbering=numbering, nodes=nodes, section=config.id_section)
    dangling = Dangling(drop=config.dangling == "drop")
    progress.start("read edges", total, "edges")
    for batch in checked_edges(edges, config, relations, (end, end), staged, dangling, marking):
        batch = batch if part is None else batch._replace(mark=part(batch.rows))
        spool.append(
            batch.src,
            batch.dst,
            tie=batch.rows,
            weight=batch.weight,
            type=batch.type,
            mark=batch.mark,
            label=batch.label,
        )
        progress.advance(len(batch.rows))
    progress.done()
    return dangling


def _parts_of_files(edges: TableFiles, config: EdgeTableKeys, staged: list[int] | None) -> Callable[[Array], Array]:
    """Returns a function rows i64[n] -> the parts f64[n] of the files that hold them."""
    parts, ends = config.part_of_files(), np.cumsum(edges.counts() if staged is None else staged)
    of_file = np.array([parts[path] for path in edges.paths], np.float64)
    return lambda rows: of_file[np.searchsorted(ends, rows, "right")]


def checked_edges(
    edges: TableFiles,
    keys: EdgeKeys,
    relations: Sequence[str],
    ends: tuple[End, End],
    staged: list[int] | None,
    dangling: Dangling,
    marking: Marking = NOTHING,
) -> Iterator[EdgeSlice]:
    """Yields the edges of all files, in any order.

    Args:
        edges: files of the edge tables, whose connection holds `staged` and the ids that are not integers.
        ends: the nodes of sources and of targets.
        staged: number of rows of each file of DuckDB's table `staged`; None: ids of both ends are integers and read from the files.
        dangling: the rule for edges without both ends; their number is counted in it.

    Raises:
        InputError: an end or an attribute is missing or does not fit, with the first row; or edges name unknown nodes, with examples.
    """
    checks = _Checks(edges, keys, ends, dangling, marking)
    extra = attribute_expressions(edges, keys, relations, marking)
    batches = _from_files(edges, keys, extra) if staged is None else _joined(edges.duck, [*extra], ends, staged)
    for columns, rows, where in batches:
        yield checks.take(columns, rows, where)
    checks.refuse_dangling()


def _from_files(edges: TableFiles, keys: EdgeKeys, extra: Mapping[str, tuple[str, str]]) -> Batches:
    wanted = end_columns(edges, keys.source_column, keys.target_column)
    for name, (expression, _) in extra.items():
        column = getattr(keys, ROLES[name])
        wanted.append(Numbers(name=column, expression=expression, decimal=True if name == "weight" else None))
    for rows in select_numbers(edges, wanted):
        tie = np.arange(rows.start, rows.start + rows.count)
        yield dict(zip(("src", "dst", *extra), rows.columns, strict=True)), tie, rows.locate


def _joined(duck: Duck, extra: Sequence[str], ends: tuple[End, End], staged: list[int]) -> Batches:
    chosen, joins = ["e.rowid", *(f"e.{name}" for name in extra)], ""
    for side, end in zip(("src", "dst"), ends, strict=True):
        ids = end.numbering.staged
        chosen.append(f"{side}_ids.node_id" if ids else f"e.{side}")
        joins += f" LEFT JOIN {ids} {side}_ids ON e.{side} = {side}_ids.id" if ids else ""
    for columns in duck.batches(f"SELECT {', '.join(chosen)} FROM staged e{joins}"):
        named = dict(zip(("rowid", *extra, "src", "dst"), columns, strict=True))
        tie = named["rowid"].values
        yield named, tie, lambda index, tie=tie: locate(staged, int(tie[index]))


class _Checks:
    """Checks batches; remembers edges whose ends are not nodes."""

    def __init__(self, edges: TableFiles, keys: EdgeKeys, ends: tuple[End, End], dangling: Dangling, marking: Marking):
        self.edges, self.keys, self.ends, self.dangling, self.marking = edges, keys, ends, dangling, marking
        self.examples: list[tuple[int, int]] = []
        self.missing: dict[str, None] = {}

    def take(self, columns: dict[str, Any], rows: Array, where: Where) -> EdgeSlice:
        """Returns the edges of a batch whose ends are nodes; no edges once an edge is to be refused."""
        self.dangling.num_rows += len(rows)
        found = [
            self._end(end, columns[key], where, role)
            for end, key, role in zip(self.ends, ("src", "dst"), ("source", "target"), strict=True)
        ]
        weight = self._weights(columns["weight"], where) if "weight" in columns else None
        types = self._present(columns["type"], where, "type") if "type" in columns else None
        mark, label = self._marks(columns, where), self._labels(columns["label"], where) if "label" in columns else None
        bad = found[0][1] | found[1][1]
        if bad.any():
            places = np.flatnonzero(bad)
            self.dangling.count += len(places)
            self.examples += [where(index) for index in places[: EXAMPLES - len(self.examples)].tolist()]
            self.missing |= {end.nodes: None for end, (_, lost) in zip(self.ends, found, strict=True) if lost.any()}
        whole = EdgeSlice(found[0][0], found[1][0], rows, weight, types, mark, label)
        if not self.dangling.count:
            return whole
        kept = ~bad if self.dangling.drop else slice(0)
        return EdgeSlice(*(None if values is None else values[kept] for values in whole))  # pyright: ignore[reportArgumentType]

    def _end(self, end: End, column: Column, where: Where, role: str) -> tuple[Array, Array]:
        """Returns the node ids, and bool[n], true for rows whose node does not exist."""
        name = getattr(self.keys, f"{role}_column")
        joined, bad = bool(end.numbering.staged), np.zeros(len(column.values), bool)
        if column.nulls is not None:
            file, row = where(int(np.flatnonzero(column.nulls)[0]))
            if not self.dangling.drop and (not joined or self.edges.value(file, row, name) is None):
                raise no_id(self.edges, file, row, name, end.section)
            bad |= column.nulls
        if joined:
            return column.values, bad
        node_ids, unknown = end.numbering.look_up(column.values)
        return node_ids, bad | unknown

    def _weights(self, column: Column, where: Where) -> Array:
        values = self._present(column, where, "weight")
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            file, row = where(int(wrong[0]))
            name = str(self.keys.weight_column)
            held = str(self.edges.value(file, row, name))
            what = (
                f"holds {held}, beyond the range of float32" if re.search(r"[1-9]", held) else f"is {values[wrong[0]]}"
            )
            problem = f"{self.edges.place(file, row)}: column '{name}' {what}"
            raise InputError(problem, "give every edge a finite weight")
        return values

    def _marks(self, columns: dict[str, Any], where: Where) -> Array | None:
        """Returns the times, or the parts of a given split, NaN for none."""
        if "time" in columns:
            values, nulls = columns["time"].values, columns["time"].nulls
            wrong = ~np.isfinite(values) if nulls is None else nulls | ~np.isfinite(values)
            why, remedy = "neither a number nor a time", "give every edge of the table its time"
        elif "given" in columns:
            values = columns["given"].values.astype(np.float64)
            wrong, values[values < 0] = values == UNKNOWN_SPLIT, np.nan
            why, remedy = "not a part of a split", "write train, valid or test, and nothing for edges of no part"
        else:
            return None
        if wrong.any():
            name = str(self.keys.time_column if "time" in columns else self.keys.split_column)
            raise self.edges.refusal(*where(int(np.flatnonzero(wrong)[0])), name, why, remedy)
        return values

    def _labels(self, column: Column, where: Where) -> Array:
        """Returns the numbers of classes, or numbers; NaN for unknown ones."""
        values = np.array(column.values, np.float64)
        if self.marking.kind == "edge_classes":
            if column.nulls is not None:
                values[column.nulls] = np.nan
            return values
        with np.errstate(over="ignore"):
            wrong = np.isinf(values.astype(np.float32))
        wrong = wrong if column.nulls is None else wrong | column.nulls
        if wrong.any():
            why, remedy = (
                "not a finite number of float32",
                "correct it, and leave the field empty where it is not known",
            )
            raise self.edges.refusal(*where(int(np.flatnonzero(wrong)[0])), str(self.keys.label_column), why, remedy)
        return values

    def _present(self, column: Column, where: Where, key: str) -> Array:
        if column.nulls is None:
            return column.values
        file, row = where(int(np.flatnonzero(column.nulls)[0]))
        name = getattr(self.keys, f"{key}_column")
        raise self.edges.no_number(file, row, name) if key == "weight" else self.edges.refusal(file, row, name, "")

    def refuse_dangling(self) -> None:
        """Raises InputError when edges named nodes that do not exist."""
        if not self.dangling.count or self.dangling.drop:
            return
        shown, alike = [], ""
        for file, row in sorted(self.examples):
            names = (self.keys.source_column, self.keys.target_column)
            ends = [self.edges.value(file, row, name) for name in names]
            shown.append(f"{self.edges.place(file, row)}: {ends[0]} -> {ends[1]}")
            alike = alike or self._alike(ends)
        nodes, remedy = " or ".join(self.missing), "add the missing nodes, or remove these edges"
        problem = f"{self.dangling.count} of {self.dangling.num_rows} edges name a node that is not in {nodes}: {'; '.join(shown)}"
        raise InputError(problem, f"write ids alike in all tables ({alike}), or {remedy}" if alike else remedy)

    def _alike(self, ends: list[Any]) -> str:
        """Returns how a missing node is written in the tables of nodes; "" if they have nothing like it."""
        for end, value in zip(self.ends, ends, strict=True):
            text = str(value).strip()
            number = int(text) if end.numbering.staged == "" and WHOLE_NUMBER.fullmatch(text) else value
            looked_up = end.numbering.look_up(np.array([number], np.int64))[1][0] if number is not value else True
            if looked_up and (found := end.numbering.alike(self.edges.duck, number)):
                return found
        return ""
