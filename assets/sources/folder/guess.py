"""What a folder of tables is taken for: node types, relations, classes and features, as a guess from values and names.

Tables with ids are node types, and the references among tables are relations: a table with two references or more links them, as purchases
link users and items; a table with ids of its own is linked to what it names, as papers to their venues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from graphmill.assets.sources.folder.roles import (
    TableReference,
    id_column,
    is_reference,
    label_column,
    name_column,
    no_label_words,
    references,
    relation_column,
    split_column,
)
from graphmill.assets.sources.folder.tables import ColumnProfile, FoundTable, find_tables, plain_name
from graphmill.assets.sources.readers.duck import literal, scratch_duck
from graphmill.kernels.errors import InputError, one_line

MEMORY = 1 << 30
"""Working memory of DuckDB while the tables are looked at, in bytes."""
NUMBERED = 0.98
"""Share of different values from which a column of whole numbers has a number per row, which a model can learn nothing from."""
FEW = 40
"""Most different texts that get a column each."""


@dataclass(frozen=True)
class GuessedRelation:
    """Rows of `table` as edges, from nodes of `source` to those that a reference names.

    Attributes:
        first: the reference to the source; None if the table is that of the source.
        type_column: the column that says which relation an edge has; None without one.
    """

    name: str
    table: FoundTable
    source: FoundTable
    source_column: str
    to: TableReference
    first: TableReference | None = None
    type_column: str | None = None

    @property
    def target(self) -> FoundTable:
        """The node type that the edges lead to."""
        return self.to.to

    @property
    def references(self) -> list[TableReference]:
        """The references of its ends."""
        return [each for each in (self.first, self.to) if each is not None]

    @cached_property
    def dangling(self) -> int:
        """Number of its edges with an end that is missing, or that has no row."""
        if not self.lacking():
            return 0
        fields = {each.column: self.table.files.field(each.column) for each in self.references}
        ids = {
            each.column: each.to.files.union(each.to.files.field(each.key), distinct=False) for each in self.references
        }
        whole = " AND ".join(f"coalesce({field} IN ({ids[column]}), false)" for column, field in fields.items())
        rows = [self.table.files.source(number) for number in range(len(self.table.files.paths))]
        counts = " UNION ALL ".join(f"SELECT count(*) FILTER (NOT ({whole})) AS n FROM {each}" for each in rows)
        return int(self.table.files.duck.rows(f"SELECT sum(n) FROM ({counts})", str(self.table.files.paths[0]))[0][0])

    def lacking(self) -> list[str]:
        """Returns phrases about ends that are missing, or that have no row."""
        gaps = [(each.column, self.table.column(each.column).gaps) for each in self.references]
        found = [f"{count:,} rows have no {column}" for column, count in gaps if count]
        return found + [
            f"{each.values - each.inside:,} values of {each.column} have no row in {each.to.name}"
            for each in self.references
            if each.inside < each.values
        ]

    def said(self) -> str:
        """Returns the references that join the tables, and how many edges and nodes without any there are."""
        none = [] if self.first is None else [(self.source.rows - self.first.inside, self.source.name, "leads from")]
        none.append((self.target.rows - self.to.inside, self.target.name, "leads to"))
        without = "".join(f"; none {where} {count:,} {name}" for count, name, where in none if count)
        joined = "; ".join(each.said for each in self.references)
        return (
            f"{joined}; {self.table.rows / max(1, self.source.rows):.1f} edges for each of {self.source.name}{without}"
        )


class Guess:
    """The tables of a folder, whose files are open, and what they are taken for.

    Args:
        problems: lines about files that could not be read.

    Attributes:
        ids: name of a table -> its column of ids.
        links: name of a table -> its references.
        label: table and column of the classes; None without one.

    Raises:
        InputError: no table has ids that another one names.
    """

    def __init__(self, folder: Path, tables: Sequence[FoundTable], problems: Sequence[str]):
        self.tables, self.problems = tables, problems
        self.ids = _ids(tables)
        entities = {each.name: (each, self.ids[each.name]) for each in tables if each.name in self.ids}
        self.links = {each.name: references(each, entities, self.ids.get(each.name)) for each in tables}
        taken = {
            each.name: {self.ids.get(each.name, "")} | {r.column for r in self.links[each.name]} for each in tables
        }
        self.label = label_column([entity for entity, _ in entities.values()], taken)
        self.relations = [*self._relations()]
        if not self.relations:
            seen = "; ".join(f"{each.name} ({', '.join(c.name for c in each.columns[:8])})" for each in tables)
            what = f"has no table whose columns name rows of others: {one_line(seen)}" if tables else "has no tables"
            raise InputError(f"{folder} {what}", 'write [graph] by hand: graphmill new NAME --from tables, or "edges"')

    @property
    def typed(self) -> bool:
        """Whether there are several node types or relations."""
        several = len(self.relations) > 1 or any(each.type_column is not None for each in self.relations)
        return len(self.node_types) > 1 or several

    @cached_property
    def node_types(self) -> list[FoundTable]:
        """The tables that are node types: those that a relation names, or that have the classes."""
        named = {each.name for relation in self.relations for each in (relation.source, relation.target)}
        return [each for each in self.tables if each.name in named or self._is_labelled(each)]

    @cached_property
    def reach(self) -> int:
        """Number of relations from the node type with the classes to the farthest one; 0 without classes."""
        steps = {self.label[0].name: 0} if self.label is not None else {}
        pairs = [(each.source.name, each.target.name) for each in self.relations]
        for _ in pairs:
            for one, other in [*pairs, *((other, one) for one, other in pairs)]:
                if one in steps:
                    steps[other] = min(steps.get(other, len(pairs)), steps[one] + 1)
        return max(steps.values(), default=0)

    def _relations(self) -> Iterator[GuessedRelation]:
        for table in self.tables:
            found = self.links[table.name]
            if self._is_node_type(table):
                for each in found:
                    yield GuessedRelation(
                        plain_name(f"{table.name}_{each.column}"), table, table, self.ids[table.name], each
                    )
            elif len(found) > 1:
                first, kinds = found[0], relation_column(table, {each.column for each in found})
                for each in found[1:]:
                    name = table.name if len(found) == 2 else plain_name(f"{table.name}_{each.column}")
                    yield GuessedRelation(name, table, first.to, first.column, each, first, kinds)

    def _is_node_type(self, table: FoundTable) -> bool:
        """Tells whether a table has things, and not events between two things that nothing else names."""
        named = any(each.to is table for found in self.links.values() for each in found)
        return table.name in self.ids and (named or self._is_labelled(table) or len(self.links[table.name]) < 2)

    def _is_labelled(self, table: FoundTable) -> bool:
        return self.label is not None and self.label[0] is table

    def roles(self, table: FoundTable) -> Mapping[str, str]:
        """Returns column -> what it is taken for: "id", "label", "split", "name", "feature", what it names, or why nothing reads it.

        Columns of edges are "of an edge" if they are none of these, and nothing reads them.
        """
        found = {each.column: f"{each.key} of {each.to.name}" for each in self.links[table.name]}
        if table.name in self.ids:
            found = {self.ids[table.name]: "id"} | found
        if self.label is not None and self._is_labelled(table):
            found |= {self.label[1]: "label"}
            found |= {split: "split"} if (split := split_column(table)) is not None else {}
        if (name := name_column(table, {*found})) is not None:
            found |= {name: "name"}
        if table not in self.node_types:
            found |= {
                each.type_column: "relation" for each in self.relations if each.table is table and each.type_column
            }
            return {each.name: found.get(each.name, "of an edge") for each in table.columns}
        return {each.name: found.get(each.name) or _left_out(each) or "feature" for each in table.columns}

    def encoders(self, table: FoundTable) -> Mapping[str, str]:
        """Returns feature column -> its encoder, of a node type; titles and references of few values are features, too."""
        roles = self.roles(table)
        titles = {each.name for each in table.columns if each.kind == "text" and each.example.count(" ") > 1}
        features = {name for name, role in roles.items() if role == "feature" or (role == "name" and name in titles)}
        groups = {each.column for each in self.links[table.name] if table.column(each.column).distinct <= FEW}
        found = {each.name: "onehot" if each.name in groups else encoder_of(each) for each in table.columns}
        return {name: encoder for name, encoder in found.items() if name in features | groups}

    @cached_property
    def num_labelled(self) -> int:
        """Number of rows with a class; 0 without a column of classes."""
        if self.label is None:
            return 0
        table, column = self.label
        values = table.files.union(f"CAST({table.files.field(column)} AS VARCHAR)", distinct=False)
        unknown = ", ".join(map(literal, ("", *no_label_words(table, column))))
        sql = f"SELECT count(*) FROM ({values}) WHERE v IS NOT NULL AND v NOT IN ({unknown})"
        return int(table.files.duck.rows(sql)[0][0])


@contextmanager
def guessed(folder: Path) -> Iterator[Guess]:
    """Looks at the tables of a folder: all of their columns are read, those of ids several times.

    Raises:
        InputError: there are no tables, or none with ids that another names.
    """
    with scratch_duck(MEMORY, "tables") as duck:
        yield Guess(folder, *find_tables(folder, duck))


def encoder_of(column: ColumnProfile) -> str:
    """Returns the encoder that fits what a column holds; "" for a column that a model can learn nothing from (`_left_out`)."""
    if column.kind == "text":
        return "onehot" if column.distinct <= FEW else "text"
    if column.kind == "truth":
        return "number" if column.numeric and not column.gaps else "onehot"
    number = "log" if column.skewed else "standard"
    found = {"whole": number, "number": number, "time": "time", "list": "auto" if column.numeric else ""}
    return found.get(column.kind, "list" if column.type == "VARCHAR[]" else "")


def _left_out(column: ColumnProfile) -> str:
    """Returns why a column is no feature; "" if it is one."""
    different = column.distinct > NUMBERED * column.rows and "*" not in column.name
    if not encoder_of(column) or column.type.startswith(("TIME_", "TIME ", "INTERVAL")) or column.type == "TIME":
        return column.type.lower()
    if column.gaps == column.rows:
        return "empty"
    if column.kind == "whole" and different:
        return "a number per row"
    return "a word per row" if column.kind == "text" and different and " " not in column.example else ""


def _ids(tables: Sequence[FoundTable]) -> dict[str, str]:
    """Returns table -> its column of ids; of columns whose names say little, those that are no ids of another table."""
    ranked = [(*found, table) for table in tables if (found := id_column(table)) is not None]
    sure = {table.name: (table, column) for rank, column, table in ranked if rank < 2}
    found = {}
    for rank, column, table in ranked:
        others = [pair for name, pair in sure.items() if name != table.name]
        if rank < 2 or not any(is_reference(table, column, *pair) for pair in others):
            found[table.name] = column
    return found
