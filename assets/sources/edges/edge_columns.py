"""The columns of edge tables as SQL expressions: weights, types, and what a task reads of single edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from graphmill.assets.sources.edges.node_tables import split_code, time_number
from graphmill.assets.sources.readers.duck import literal
from graphmill.assets.sources.readers.table_files import WHOLE_NUMBER, TableFiles
from graphmill.assets.tasks.labels import CLASSES, OF_LABEL, Kind
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.sources.task_table import LinkSplit


class EdgeKeys(Protocol):
    """The keys that name columns of edge tables."""

    @property
    def source_column(self) -> str: ...  # noqa: D102
    @property
    def target_column(self) -> str: ...  # noqa: D102
    @property
    def weight_column(self) -> str | None: ...  # noqa: D102
    @property
    def type_column(self) -> str | None: ...  # noqa: D102
    @property
    def time_column(self) -> str | None: ...  # noqa: D102
    @property
    def split_column(self) -> str | None: ...  # noqa: D102
    @property
    def label_column(self) -> str | None: ...  # noqa: D102


class Marking(NamedTuple):
    """What a task reads of single edges; a table without the columns has nothing of them."""

    # What splits links, times or parts; None for nothing.
    split: LinkSplit | None = None
    # The kind of the task, which tells whether edges have labels.
    kind: Kind = CLASSES
    # Names of the classes of edges, in their order.
    classes: Sequence[str] = ()


NOTHING = Marking()


def type_names(edges: TableFiles, column: str, key: str = "type_column") -> list[str]:
    """Returns the distinct edge types, or classes of edges, as text: whole numbers in ascending order, else by their UTF-8 bytes.

    Args:
        key: the key that names the column, "type_column" or "label_column".

    Raises:
        InputError: the column is missing, or has more than 256 values.
    """
    what, text = ("type", _text_of) if key == "type_column" else ("class", _class_of)
    if (kind := edges.require(key, column)).endswith(("]", ")")) and not kind.startswith("DECIMAL"):
        problem = f"{edges.paths[0]}: column '{column}' is {kind}, and an edge has one {what}"
        raise InputError(problem, f"write a row for each {what} of an edge")
    sql = f"{edges.union(text(edges, column))} WHERE v IS NOT NULL ORDER BY v LIMIT 258"
    found = [str(row[0]) for row in edges.duck.rows(sql, str(edges.paths[0]))]
    if len(found) > 256:
        shown = ", ".join(f"'{name}'" for name in found[:5])
        several = "edge types" if what == "type" else "classes of edges"
        problem = f"{edges.paths[0]}: column '{column}' has more than 256 {several}: {shown}, ..."
        how = "edge types are stored in one byte: " if what == "type" else ""
        raise InputError(problem, f"{how}merge rare ones, or choose another {key}")
    return sorted(found, key=int) if all(WHOLE_NUMBER.fullmatch(name) for name in found) else found


def _text_of(edges: TableFiles, column: str) -> str:
    return f"CAST({edges.field(column)} AS VARCHAR)"


def _class_of(edges: TableFiles, column: str) -> str:
    """Returns the SQL expression of the class in a column; NULL, blanks and NaN are unknown."""
    text = f"trim({_text_of(edges, column)})"
    return f"CASE WHEN lower({text}) NOT IN ('', 'nan') THEN {text} END"


def _label_value(edges: TableFiles, column: str, marking: Marking) -> str:
    """Returns the SQL expression of the number of an edge's class, NULL if unknown; or of its number, NaN if unknown and NULL for texts."""
    if marking.kind == "edge_classes":
        names = ", ".join(literal(name) for name in marking.classes) or "''"
        return f"CAST(list_position([{names}], {_class_of(edges, column)}) - 1 AS DOUBLE)"
    number = edges.number("label_column", column, "DOUBLE")
    return f"CASE WHEN {_class_of(edges, column)} IS NULL THEN CAST('nan' AS DOUBLE) ELSE {number} END"


ROLES = {
    "weight": "weight_column",
    "type": "type_column",
    "time": "time_column",
    "given": "split_column",
    "label": "label_column",
}
"""Attribute of an edge -> the key that names its column."""


def attribute_expressions(
    edges: TableFiles, keys: EdgeKeys, relations: Sequence[str], marking: Marking = NOTHING
) -> dict[str, tuple[str, str]]:
    """Returns name -> (SQL expression, SQL type) of the attributes that edges carry."""
    found = {}
    if keys.weight_column is not None:
        found["weight"] = (edges.number("weight_column", keys.weight_column, "FLOAT"), "FLOAT")
    if keys.type_column is not None:
        names = ", ".join(literal(name) for name in relations) or "''"
        text = _text_of(edges, keys.type_column)
        found["type"] = (f"CAST(list_position([{names}], {text}) - 1 AS UTINYINT)", "UTINYINT")
    if marking.split == "time" and keys.time_column is not None:
        found["time"] = (time_number(edges, keys.time_column), "DOUBLE")
    if marking.split == "given" and keys.split_column is not None:
        found["given"] = (split_code(edges, keys.split_column), "TINYINT")
    if marking.kind in OF_LABEL and keys.label_column is not None:
        found["label"] = (_label_value(edges, keys.label_column, marking), "DOUBLE")
    return found
