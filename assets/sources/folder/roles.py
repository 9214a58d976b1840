"""How the tables of a folder name one another: which have a row per thing, which column names the rows of another, and what is the label.

A table with a column of unique ids is a node type. A column of another table whose values are ids of it is a reference. Names decide where
values do not: whole numbers from 0 are ids of every table that is long enough. What is found is a guess, said as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphmill.assets.sources.edges.node_tables import SPLITS
from graphmill.assets.sources.folder.tables import ColumnProfile, FoundTable
from graphmill.assets.sources.markers import OF_CLASSES, marked_texts

KEY_WORDS = frozenset(("id", "ids", "key", "code", "uuid", "guid", "index", "no", "number", "nr", "pk", "fk"))
"""Words of the names of columns that hold ids."""
END_WORDS = frozenset(
    ("src", "dst", "source", "target", "destination", "from", "to", "head", "tail", "u", "v", "parent", "child", "follower", "followee",
     "sender", "receiver", "recipient", "citing", "cited", "buyer", "seller", "start", "end", "node1", "node2", "a", "b")
)  # fmt: skip
"""Words of the names of columns that hold an end of an edge."""
LABEL_WORDS = (
    ("label", "labels", "class", "classes", "target", "y", "fraud", "churn", "churned", "segment", "category", "outcome"),
    ("topic", "field", "genre", "tier", "community", "group", "kind", "type", "risk", "default", "grade", "status", "level", "subject",
     "sector", "department", "diagnosis", "toxic", "spam", "bot", "licit", "illicit"),
)  # fmt: skip
"""Words of the names of columns that hold classes, more certain ones first."""
NAME_WORDS = ("name", "title")
RELATION_WORDS = frozenset(
    ("relation", "relations", "rel", "predicate", "type", "kind", "event", "action", "interaction", "verb", "property")
)
"""Words of the names of columns that say which relation an edge has."""
MOST_RELATIONS = 50
"""Most different values of a column that is taken for one of relations."""
MOST_CLASSES = 256
"""Most different values of a column that is taken for classes."""
FEWEST_PER_CLASS = 5
"""Rows that a column of classes has for each of them, on average."""
CONTAINED = 0.98
"""Share of the different values of a reference that are ids of the table."""


@dataclass(frozen=True)
class TableReference:
    """A column that names rows of another table.

    Attributes:
        values, inside: number of its different values, and of those that are ids there.
    """

    table: FoundTable
    column: str
    to: FoundTable
    key: str
    values: int
    inside: int

    @property
    def said(self) -> str:
        """What was found, such as "user_id is id of users: 99.8% of 12,000 different values"."""
        share = self.inside / self.values
        return f"{self.column} is {self.key} of {self.to.name}: {share:.1%} of {self.values:,} different values"


def words(name: str) -> list[str]:
    """Returns the words of a name in small letters: ["user", "id"] of userID, user_id and User-Id."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [each.lower() for each in re.split(r"[^A-Za-z0-9]+", parts) if each]


def singular(word: str) -> str:
    """Returns a word without its ending of the plural, which need not be right: only equal ones are compared."""
    if word.endswith(("ie", "ies")):
        return f"{word.removesuffix('s')[:-2]}y"
    return word[:-2] if word.endswith(("sses", "xes", "ches", "shes")) else word.removesuffix("s")


def id_column(table: FoundTable) -> tuple[int, str] | None:
    """Returns the column with an id per row: whole numbers or text, unique and without gaps, by its name or as the first column.

    With it comes how little its name says so, from 0; None if no column has ids.
    """
    candidates = [
        (rank, place, column.name)
        for place, column in enumerate(table.columns)
        if column.kind in ("whole", "text") and not column.gaps and column.rows and 0.9 * column.rows < column.distinct
        if (rank := _id_rank(table, column.name, place)) is not None
    ]
    return next(((rank, name) for rank, _, name in sorted(candidates) if _unique(table, name)), None)


def _id_rank(table: FoundTable, name: str, place: int) -> int | None:
    """Returns how little the name of a column says that it has the ids of its table; None if nothing does."""
    said, own = words(name), {singular(each) for each in words(table.name)}
    rest = [singular(each) for each in said if each not in KEY_WORDS]
    if said and not rest:
        return 0
    if len(rest) < len(said):
        return 1 if {*rest} <= own else 2 if place == 0 else 3
    return (2 if {*rest} <= own else 4) if place == 0 else None


def _unique(table: FoundTable, name: str) -> bool:
    column = table.files.field(name)
    sql = f"SELECT count(*) = count(DISTINCT v) FROM ({table.files.union(column, distinct=False)})"
    return bool(table.files.duck.rows(sql, str(table.files.paths[0]))[0][0])


def references(table: FoundTable, entities: dict[str, tuple[FoundTable, str]], own: str | None) -> list[TableReference]:
    """Returns the columns of a table that name rows of tables, each with the one that it names best, in the order of the columns.

    Args:
        entities: name -> (table, its column of ids).
        own: the table's column of ids, which names no others; None without one.
    """
    found = []
    for column in table.columns:
        if column.name == own or column.kind not in ("whole", "text") or not column.distinct:
            continue
        fitting = [
            (rank, -each.inside, each.to.rows, each.to.name, each)
            for other, key in entities.values()
            if (rank := _reference_rank(column, other, key)) is not None
            if (each := _looked_up(table, column, other, key)).inside >= CONTAINED * each.values > 0
        ]
        if fitting:
            found.append(min(fitting, key=lambda each: each[:4])[-1])
    return found


def is_reference(table: FoundTable, column: str, other: FoundTable, key: str) -> bool:
    """Tells whether a column names rows of a table whose ids are in the column `key`."""
    profile = table.column(column)
    if _reference_rank(profile, other, key) is None:
        return False
    found = _looked_up(table, profile, other, key)
    return found.inside >= CONTAINED * found.values > 0


def _reference_rank(column: ColumnProfile, other: FoundTable, key: str) -> int | None:
    """Returns how little the name of a column says that it names rows of a table; None if it cannot, by kind or name."""
    ids = other.column(key)
    if ids.kind != column.kind:
        return None
    said = words(column.name)
    rest = {singular(each) for each in said if each not in KEY_WORDS}
    own = {singular(each) for each in words(other.name)} | {
        singular(each) for each in words(key) if each not in KEY_WORDS
    }
    if (rest and rest <= own) or (column.name == key and {*words(key)} - KEY_WORDS):
        return 0
    if rest & own:
        return 1
    key_like = bool({*said} & (KEY_WORDS | END_WORDS))
    if column.kind == "text":
        return 2 if key_like or column.distinct >= 10 else None
    return 3 if key_like else None


def _looked_up(table: FoundTable, column: ColumnProfile, other: FoundTable, key: str) -> TableReference:
    values = table.files.union(table.files.field(column.name))
    ids = other.files.union(other.files.field(key), distinct=False)
    sql = f"SELECT count(*), count(*) FILTER (v IN ({ids})) FROM ({values}) WHERE v IS NOT NULL"
    total, inside = table.files.duck.rows(sql, str(table.files.paths[0]))[0]
    return TableReference(table, column.name, other, key, int(total), int(inside))


def label_column(tables: Iterable[FoundTable], taken: dict[str, set[str]]) -> tuple[FoundTable, str] | None:
    """Returns the table and column that look most like classes; None without one.

    Args:
        taken: table -> columns that are ids and references.
    """
    found = [
        (rank, -table.rows, -place, table, column.name)
        for table in tables
        for place, column in enumerate(table.columns)
        if column.name not in taken[table.name] and column.name != split_column(table)
        if (rank := _label_rank(column)) is not None
    ]
    best = min(found, key=lambda each: each[:3], default=None)
    return None if best is None else (best[3], best[4])


def _label_rank(column: ColumnProfile) -> int | None:
    """Returns how little a column looks like one of classes; None if it cannot be one."""
    few = 2 <= column.distinct <= MOST_CLASSES and column.distinct * FEWEST_PER_CLASS <= column.rows - column.gaps
    if column.kind not in ("whole", "text", "truth") or not few or column.name.endswith("*"):
        return None
    said = {*words(column.name)}
    for rank, names in enumerate(LABEL_WORDS):
        if said & {*names}:
            return rank
    return 3 if column.gaps else 4 if column.kind == "text" else 5 if column.distinct <= 50 else None


def no_label_words(table: FoundTable, column: str) -> list[str]:
    """Returns those values of a column of classes that mean no label, such as "unknown", as they are written."""
    sql = f"{table.files.union(f'CAST({table.files.field(column)} AS VARCHAR)')} WHERE v IS NOT NULL ORDER BY v"
    names = [str(row[0]) for row in table.files.duck.rows(sql, str(table.files.paths[0]))]
    return [names[place] for place in marked_texts(names, OF_CLASSES, 3)]


def relation_column(table: FoundTable, taken: set[str]) -> str | None:
    """Returns the column of a table of edges that says which relation each of them has; None without one."""
    for column in table.columns:
        few = 2 <= column.distinct <= min(MOST_RELATIONS, column.rows // FEWEST_PER_CLASS) and not column.gaps
        if few and column.kind == "text" and column.name not in taken and {*words(column.name)} & RELATION_WORDS:
            return column.name
    return None


def split_column(table: FoundTable) -> str | None:
    """Returns the column that holds train, valid or test in each of its rows that has a value; None without one."""
    for column in table.columns:
        if column.kind == "text" and 1 < column.distinct <= len(SPLITS) and column.example.lower() in SPLITS:
            values = table.files.union(table.files.field(column.name))
            found: Sequence[tuple[str]] = table.files.duck.rows(f"SELECT v FROM ({values}) WHERE v IS NOT NULL")  # type: ignore[assignment]
            if {text for (text,) in found} <= SPLITS.keys():
                return column.name
    return None


def name_column(table: FoundTable, taken: set[str]) -> str | None:
    """Returns a column of texts that names the rows for people; None without one."""
    for column in table.columns:
        named = column.name not in taken and {*words(column.name)} & {*NAME_WORDS}
        if named and column.kind == "text" and 2 * column.distinct > column.rows:
            return column.name
    return None
