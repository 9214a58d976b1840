"""Features in a table of their entries: one row per node and feature that is not zero, `node, feature[, value]`.

Databases store sparse and multi-hot features like this: words of a text, tags of an item, items that a user bought. A node without entries
has a row of zeros, and features without entries are zero. Without values an entry is 1, and repeating it changes nothing; with values a
node has each feature once.

Features are numbers from 0 or names. Names are numbered in ascending order, text by its UTF-8 bytes, as nodes and classes are.

DuckDB sorts the entries by node id in its own limit of memory and on disk, and the rows are filled slice by slice as they come, so that
neither the entries nor the rows are ever held whole. The artifact has dense rows of N x F values, as training reads them.

Peak memory beside DuckDB's limit: two slices of 8 MiB, or two rows. Disk while building: 16 bytes per entry if ids and features are
numbers, for the staged table, and as much for the sort.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from graphmill.assets.sources.edges.config import MOST_FEATURES, EdgeTableKeys
from graphmill.assets.sources.edges.numbering import Numbering, id_kind, locate, no_id, require_one_sort, stage
from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.assets.sources.readers.table_features import rounded_values
from graphmill.assets.sources.readers.table_files import NUMBERS, TableFiles
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

KEY = "feature_entries"
NODE, FEATURE, VALUE = COLUMNS = ("node", "feature", "value")
"""Names of the columns if the configuration names none; `value` is read if the table has it."""


def entry_columns(table: TableFiles, config: EdgeTableKeys) -> list[str]:
    """Returns the names of the columns of node, feature and, if there are values, value; raises InputError if a file lacks a column."""
    names = list(config.entry_columns or COLUMNS[: 3 if VALUE in table.columns else 2])
    for name in names:
        table.require("entry_columns", name)
    return names


def entry_type(names: Sequence[str]) -> str:
    """Returns the type of the values: uint8 if every entry is 1, else float32."""
    return "float32" if len(names) == 3 else "uint8"


def has_names(table: TableFiles, config: EdgeTableKeys) -> bool:
    """Tells whether features are names instead of numbers of columns.

    Raises:
        InputError: the features are numbers that are not read as BIGINT; as names they would get other columns, in the order of text.
    """
    column = entry_columns(table, config)[1]
    kind = id_kind(table, "entry_columns", column, "auto")
    if kind in NUMBERS or kind.startswith("DECIMAL"):
        problem = f"{table.paths[0]}: column '{column}' is {kind}, which is neither a number of a column nor a name"
        raise InputError(problem, "cast it to BIGINT, or to text where the features are names")
    return kind != "integer"


class FeatureEntries:
    """The entries of a table, staged in its connection, checked once, and then read in the order of the nodes.

    Args:
        table: files of the entries, whose connection holds `ids` if ids are not integers.
        kind: "integer" or the SQL type of the ids of the graph.

    Raises:
        InputError: a node, feature or value is missing or not valid, with the first such row.
    """

    def __init__(self, table: TableFiles, config: EdgeTableKeys, numbering: Numbering, kind: str):
        self.duck, self.table, self.numbering = table.duck, table, numbering
        self.names = entry_columns(table, config)
        if not any(table.duck.rows(f"SELECT 1 FROM {table.source(n)} LIMIT 1") for n in range(len(table.paths))):
            raise InputError(f"{table.paths[0]}: has no entries", "give one, or leave feature_entries out")
        self.named = has_names(table, config)
        found = id_kind(table, "entry_columns", self.names[0], config.id_type)
        if kind != found and not (table.is_csv and kind != "integer"):
            shown = f"'{self.names[0]}' of {table.paths[0].name} is {found}, those of the graph are {kind}"
            problem = f"ids have different types: {shown}"
            raise InputError(problem, 'write them with one type, or set id_type = "text" in [graph]')
        self.files = self._staged(kind)
        if config.id_type == "auto":
            require_one_sort(table, self.files, "entries", {"node": self.names[0]}, kind, config.id_section)
        self._refuse_missing(config.id_section)
        self.width = self._named_width(config) if self.named else self._width(config)
        self._refuse_strangers()

    def block(self) -> FeatureBlock:
        """Returns the rows that the entries make, in the order of the node ids."""
        return FeatureBlock(
            where=f"{self.table.paths[0]}: entries",
            num_rows=self.numbering.num_nodes,
            width=self.width,
            dtype=np.dtype(entry_type(self.names)),
            slices=self.slices,
            place=self.place,
            recount=lambda columns: rounded_values(self.table, self.names[2:]),
        )

    def _staged(self, kind: str) -> list[int]:
        """Copies the entries into DuckDB's table `entries`, whose rowid is the number of the row."""
        node, feature, *value = self.names
        integer = kind == "integer"
        types = {"node": "BIGINT" if integer else kind, "feature": "VARCHAR" if self.named else "INTEGER"}
        expressions = [
            self.table.integer("entry_columns", node) if integer else f"CAST({self.table.field(node)} AS {kind})",
            f"CAST({self.table.field(feature)} AS VARCHAR)"
            if self.named
            else _clipped(self.table.integer("entry_columns", feature)),
        ]
        if value:
            types["value"] = "FLOAT"
            expressions.append(self.table.number("entry_columns", value[0], "FLOAT"))
        self.duck.rows("DROP TABLE IF EXISTS entries")
        return stage(self.table, "entries", types, expressions)

    def _first(self, condition: str) -> int | None:
        """Returns the first row for which a condition holds."""
        found = self.duck.rows(f"SELECT rowid FROM entries WHERE {condition} ORDER BY rowid LIMIT 1")
        return int(found[0][0]) if found else None

    def _refuse_missing(self, id_section: str) -> None:
        for role, name in zip(COLUMNS, self.names, strict=False):
            row = self._first(f"{role} IS NULL")
            if row is not None:
                file, place = locate(self.files, row)
                if role == NODE:
                    raise no_id(self.table, file, place, name, id_section)
                self._refuse(row, name, "a number" if role == VALUE else "the number or name of a feature")
        if len(self.names) == 3 and (row := self._first("NOT isfinite(value)")) is not None:
            self._refuse(row, self.names[2], "a finite number")

    def _refuse(self, row: int, name: str, wanted: str, remedy: str = FIX_FILE) -> None:
        raise self.table.refusal(*locate(self.files, row), name, f"not {wanted}", remedy)

    def _named_width(self, config: EdgeTableKeys) -> int:
        """Numbers the names of the features in ascending order; returns their number."""
        if config.num_features is not None:
            problem = f"num_features = {config.num_features}, but column '{self.names[1]}' holds names"
            raise InputError(problem, "leave it out: the features are those that entries name")
        self.duck.rows("DROP TABLE IF EXISTS feature_names")
        distinct = "SELECT DISTINCT feature AS name FROM entries"
        self.duck.rows(
            f"CREATE TABLE feature_names AS SELECT name, row_number() OVER (ORDER BY name) - 1 AS place FROM ({distinct})"
        )
        width = int(self.duck.rows("SELECT count(*) FROM feature_names")[0][0])
        if width > MOST_FEATURES:
            raise too_many(self.table, self.names[1], f"{width:,} different names")
        return width

    def _width(self, config: EdgeTableKeys) -> int:
        """Returns the number of features: that of the configuration, or one more than the largest feature."""
        most = config.num_features or MOST_FEATURES
        row = self._first(f"feature < 0 OR feature >= {most}")
        if row is not None and config.num_features is None and self._first("feature < 0") is None:
            file, place = locate(self.files, row)
            raise too_many(self.table, self.names[1], f"'{self.table.value(file, place, self.names[1])}'")
        if row is not None:
            self._refuse(
                row, self.names[1], f"a feature in [0, {most})", "number the features from 0, or set num_features"
            )
        largest = self.duck.rows("SELECT max(feature) FROM entries")[0][0]
        return config.num_features or int(largest) + 1

    def _refuse_strangers(self) -> None:
        """Refuses entries of nodes that the graph lacks."""
        if self.numbering.staged:
            sql = "SELECT count(*), min(e.rowid) FROM entries e LEFT JOIN ids i ON e.node = i.id WHERE i.id IS NULL"
            count, row = self.duck.rows(sql)[0]
        else:
            count, row = self._strange_integers()
        if count:
            file, place = locate(self.files, int(row))
            held = self.table.value(file, place, self.names[0])
            problem = (
                f"{count:,} entries name nodes that the graph lacks, first in {self.table.place(file, place)}: '{held}'"
            )
            raise InputError(problem, "add the nodes to the node tables, or leave the entries out")

    def _strange_integers(self) -> tuple[int, int]:
        """Returns the number of entries whose integers are not ids, and the first of these entries."""
        if self.numbering.ids is None:
            bounds = f"node < 0 OR node >= {self.numbering.num_nodes}"
            count, row = self.duck.rows(f"SELECT count(*), min(rowid) FROM entries WHERE {bounds}")[0]
            return int(count), int(row or 0)
        count, first = 0, None
        for nodes, rows, repeats in self.duck.batches("SELECT node, min(rowid), count(*) FROM entries GROUP BY node"):
            unknown = self.numbering.look_up(nodes.values)[1]
            if unknown.any():
                count += int(repeats.values[unknown].sum())
                least = int(rows.values[unknown].min())
                first = least if first is None else min(first, least)
        return count, first or 0

    def _sorted(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yields node ids, columns and values in ascending order of both; refuses a feature to which a node gives two values."""
        node, feature = ("i.node_id" if self.numbering.staged else "e.node"), ("f.place" if self.named else "e.feature")
        chosen = [node, feature, *(["e.value"] if len(self.names) == 3 else [])]
        joins = " JOIN ids i ON e.node = i.id" if self.numbering.staged else ""
        joins += " JOIN feature_names f ON e.feature = f.name" if self.named else ""
        before = np.full((2, 1), -1)
        for nodes, columns, *values in self.duck.batches(
            f"SELECT {', '.join(chosen)} FROM entries e{joins} ORDER BY 1, 2", str(self.table.paths[0])
        ):
            node_ids = nodes.values if self.numbering.staged else self.numbering.look_up(nodes.values)[0]
            if values:
                pairs = np.concatenate([before, [node_ids, columns.values]], axis=1)
                if (same := (pairs[:, 1:] == pairs[:, :-1]).all(axis=0)).any():
                    where = self.place(*pairs[:, 1:][:, np.argmax(same)].tolist())
                    remedy = "give every node one value per feature, for example their sum"
                    raise InputError(f"{where} occurs twice", remedy)
                before = pairs[:, -1:]
            yield node_ids, columns.values, values[0].values if values else np.ones(len(node_ids), np.uint8)

    def slices(self) -> Iterator[tuple[int, Array]]:
        """Yields (first node, rows of it and the next nodes), for all nodes in order."""
        dtype, batches = np.dtype(entry_type(self.names)), self._sorted()
        nodes, columns, values = batch = next(batches)
        for low, high in row_ranges(self.numbering.num_nodes, self.width * dtype.itemsize):
            rows = np.zeros((high - low, self.width), dtype)
            while batch:
                end = int(np.searchsorted(nodes, high))
                rows[nodes[:end] - low, columns[:end]] = values[:end]
                nodes, columns, values = nodes[end:], columns[end:], values[end:]
                if len(nodes):
                    break  # the rest belongs to later slices
                if batch := next(batches, None):
                    nodes, columns, values = batch
            yield low, rows

    def place(self, row: int, column: int) -> str:
        """Returns the entry of a value in words, for errors."""
        node: object = row if self.numbering.ids is None else int(self.numbering.ids[row])
        if self.numbering.staged:
            node = self.duck.rows(f"SELECT CAST(id AS VARCHAR) FROM ids WHERE node_id = {row}")[0][0]
        feature: object = column
        if self.named:
            feature = self.duck.rows(f"SELECT name FROM feature_names WHERE place = {column}")[0][0]
        return f"{self.table.paths[0]}: feature '{feature}' of node '{node}'"


def too_many(table: TableFiles, column: str, what: str) -> InputError:
    """Returns the error of more features than a row has."""
    return InputError(
        f"{table.paths[0]}: column '{column}' holds {what}, and rows have at most {MOST_FEATURES:,} features",
        "number the features that matter from 0, and leave the others out",
    )


def _clipped(number: str) -> str:
    """Returns the expression of a feature as INTEGER; an invalid one becomes another invalid one, which a later check finds."""
    return f"CAST(CASE WHEN {number} < 0 THEN -1 WHEN {number} > {MOST_FEATURES} THEN {MOST_FEATURES} ELSE {number} END AS INTEGER)"


def survey_entries(table: TableFiles, config: EdgeTableKeys) -> tuple[int, str]:
    """Returns (number of features, type of their values); counts the features if the configuration does not give their number.

    Raises:
        InputError: there are too many features.
    """
    names = entry_columns(table, config)
    if config.num_features is not None:
        return config.num_features, entry_type(names)
    named = has_names(table, config)
    column = table.field(names[1]) if named else table.integer("entry_columns", names[1])
    wanted = "count(DISTINCT v)" if named else "coalesce(max(v) + 1, 0)"
    sql = f"SELECT {wanted} FROM ({table.union(column, distinct=False)})"
    width = int(table.duck.rows(sql, str(table.paths[0]))[0][0])
    if width > MOST_FEATURES:
        raise too_many(table, names[1], f"{width:,} different names" if named else f"'{width - 1}'")
    return width, entry_type(names)
