"""One relation: its table, whose ends are looked up among the ids of two node types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from graphmill.assets.sources.edges.edge_columns import NOTHING, Marking, type_names
from graphmill.assets.sources.edges.edge_tables import Dangling, End, checked_edges, stage_edges
from graphmill.assets.sources.edges.numbering import id_kind, locate, no_id, refuse_lost_rows
from graphmill.assets.sources.edges.open_table import named_by, named_columns, unread_of
from graphmill.assets.sources.edges.remarks import edge_remarks
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.file_digests import table_digests
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.tables.config import OF_RELATION, RelationTable
from graphmill.assets.sources.tables.node_type import NodeType
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation, value_name
from graphmill.assets.tasks.labels import OF_LABEL
from graphmill.kernels.errors import InputError, refused_by

ENDS = ("source_column", "target_column")
"""Keys of the columns with the ids of the ends."""


class RelationFiles:
    """A relation whose files are open.

    Args:
        name, keys: `[graph.edges.NAME]`.
        marking: what the task reads of single edges; the names of classes follow from the table.

    Attributes:
        dangling: the edges without both ends, of the last time that the edges were read.
        wrong: keys of ends whose column is wrong.

    Raises:
        InputError: a pattern names no file, or a file has no readable header.
    """

    def __init__(self, duck: Duck, name: str, keys: RelationTable, marking: Marking = NOTHING):
        self.given = marking
        self.duck, self.name, self.keys, self.key, self.wrong = duck, name, keys, f"edges.{name}", set[str]()
        self.table = TableFiles(duck, keys.files, self.key, keys.form(self.key))
        self.dangling = Dangling(drop=keys.dangling == "drop")

    @property
    def ends(self) -> tuple[str, str]:
        """The node types of the two ends."""
        return self.keys.source_type, self.keys.target_type

    def column_checks(self) -> Sequence[tuple[str, Callable[[], object]]]:
        """Returns (key, check) for each column that a key names: it is there and of a type that serves."""
        named = named_columns(self.keys, OF_RELATION)
        weight = named.pop("weight_column", None)
        numbers = [] if weight is None else [partial(self.table.number, "weight_column", weight, "FLOAT")]
        return (
            *((role, partial(self._require, role, name)) for role, name in named.items()),
            *(("weight_column", number) for number in numbers),
            ("type_column", lambda: self.values),
            ("label_column", lambda: self.classes),
        )

    def _require(self, role: str, name: str) -> None:
        self.table.require(role, name)
        if role in ENDS and not self.dangling.drop and (gap := self.table.first_gap(name)):
            raise no_id(self.table, *gap, name, "")

    def leave_out(self) -> list[InputError]:
        """Returns the errors of the columns that keys name; the keys are without these columns from then on, except the ends."""
        found: dict[str, list[InputError]] = {}
        for key, check in self.column_checks():
            found[key] = [*found.get(key, ()), *refused_by([check])]
        wrong = {key for key, errors in found.items() if errors}
        self.wrong = wrong & {*ENDS}
        self.keys = replace(self.keys, **dict.fromkeys(wrong - {*ENDS}))  # pyright: ignore[reportArgumentType]
        for name in ("values", "classes"):
            vars(self).pop(name, None)
        return [error for errors in found.values() for error in errors]

    @cached_property
    def values(self) -> list[str]:
        """The values of the column of relations, in the order of their edge types; none without such a column.

        Raises:
            InputError: there are more than 256, or two that have one name as edge types.
        """
        column = self.keys.type_column
        values = [] if column is None else type_names(self.table, column)
        named = {value_name(value): value for value in values}
        if len(named) < len(values):
            other = next(value for value in values if named[value_name(value)] != value)
            same = f"{other!r} and {named[value_name(other)]!r}"
            problem = f"{self.table.paths[0]}: relations {same} of column '{column}' have one name"
            raise InputError(problem, "rename one")
        return values

    @cached_property
    def classes(self) -> list[str]:
        """Names of the labels of its edges: of classes in their order, or of the column of numbers; none without labels.

        Raises:
            InputError: there are more than 256 classes, or the column does not hold numbers.
        """
        column = self.keys.label_column if self.given.kind in OF_LABEL else None
        if column is None:
            return []
        if self.given.kind == "edge_classes":
            return type_names(self.table, column, "label_column")
        self.table.number("label_column", column, "DOUBLE")
        return [column]

    @property
    def marking(self) -> Marking:
        """What the task reads of single edges."""
        return self.given._replace(classes=self.classes)

    def require_kind(self, role: str, node_type: NodeType) -> None:
        """Refuses ids of an end, `role` among `ENDS`, of another type than the node type's.

        Raises:
            InputError: a Parquet column has another type, or one that no ids have.
        """
        name = getattr(self.keys, role)
        kind = id_kind(self.table, role, name, node_type.keys.id_type)
        if not self.table.is_csv and kind != node_type.kind:
            has = self.table.columns.get(name, kind)
            ids = "whole numbers" if node_type.kind == "integer" else node_type.kind
            where = f"{self.table.paths[0]}: column '{name}' is {has}"
            section = node_type.id_section
            text = f', or set id_type = "text" in {section}' if section else ""
            problem = f"{where}, but the ids of the node type '{node_type.name}' are {ids}"
            raise InputError(problem, f"write both with one type{text}")

    def relation(self, source: NodeType, target: NodeType, *, weighted: bool, keeps: bool = False) -> Relation:
        """Returns the edges, which are read when they are asked for.

        Args:
            weighted: whether edges get weights, which are 1 without a column.
            keeps: whether an edge that the table has twice counts twice.
        """
        files = self.table.counts()
        return Relation(
            kind=(source.name, self.name, target.name),
            num_edges=sum(files),
            batches=lambda: self._batches(source, target, weighted=weighted),
            place=lambda row: self.table.place(*locate(files, row)),
            values=self.values,
            dropped=lambda: self.dangling.count,
            remarks=lambda largest: edge_remarks(self.table, self.keys.weight_column, largest, keeps=keeps),
        )

    def _batches(self, source: NodeType, target: NodeType, *, weighted: bool) -> Iterator[EdgeBatch]:
        ends = (_end(source), _end(target))
        staged = self._stage(source, target) if any(end.numbering.staged for end in ends) else None
        self.dangling.count = self.dangling.num_rows = 0
        for batch in checked_edges(self.table, self.keys, self.values, ends, staged, self.dangling, self.marking):
            weight = np.ones(len(batch.rows), np.float32) if weighted and batch.weight is None else batch.weight
            yield EdgeBatch(batch.src, batch.dst, weight, batch.rows, batch.type, batch.mark, batch.label)
        if staged is not None:
            self.duck.rows("DROP TABLE staged")

    def _stage(self, source: NodeType, target: NodeType) -> list[int]:
        """Copies the edges into DuckDB's table `staged`; returns the number of rows of each file."""
        for node_type, name in ((source, self.keys.source_column), (target, self.keys.target_column)):
            if node_type.numbering.staged:
                refuse_lost_rows(self.table, (name,), node_type.numbering.staged)
        self.duck.rows("DROP TABLE IF EXISTS staged")
        strict = (source.keys.id_type == "auto", target.keys.id_type == "auto")
        sections = (source.id_section, target.id_section)
        kinds = (source.kind, target.kind)
        return stage_edges(self.table, self.keys, self.values, kinds, strict, sections, self.marking)

    def of_end(self, role: str) -> RelationFiles:
        """Returns the relation with one end in place of both; `role` is among `ENDS`."""
        node_type, column = self.ends[ENDS.index(role)], getattr(self.keys, role)
        ends = {"source_type": node_type, "target_type": node_type, "source_column": column, "target_column": column}
        return self._with_keys(ends)

    def unweighted(self) -> RelationFiles:
        """Returns the relation without weights."""
        return self._with_keys({"weight_column": None})

    def _with_keys(self, changed: Mapping[str, str | None]) -> RelationFiles:
        keys = copy(self.keys)
        for key, value in changed.items():  # not by `replace`, since a file may not name one column twice
            object.__setattr__(keys, key, value)
        return RelationFiles(self.duck, self.name, keys, self.given)

    def digests(self) -> dict[str, str]:
        """Returns the digests of the columns that decide the graph, of each file together."""
        roles = named_columns(self.keys, OF_RELATION)
        return table_digests(self.duck, self.keys.files, self.key, self.keys.form(self.key), roles)

    def unread(self) -> list[str]:
        """Returns phrases about the columns that no key names."""
        return unread_of(self.table, {*named_by(self.keys, OF_RELATION)}, self.key)


def _end(node_type: NodeType) -> End:
    numbering = node_type.numbering
    place = f"0 to {numbering.num_nodes - 1}, the nodes of type '{node_type.name}'"
    nodes = place if node_type.table is None else f"the tables of {node_type.key}"
    return End(numbering=numbering, nodes=nodes, section=node_type.id_section)
