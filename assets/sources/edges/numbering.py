"""Maps the ids of a table to node ids 0 to N-1: integer ids 0 to N-1 stay, others are numbered in ascending order.

One rule covers all: node ids are the ranks of the original ids. Ids that are 0 to N-1 already are their own ranks.
Integers are ranked in memory (kernels/graph/id_set.py); ids of other types (text, UUIDs, dates, ...) are ranked by DuckDB, in the
order of their type, text by its UTF-8 bytes.

Peak memory beside DuckDB's limit: 64 MiB and 41 N bytes for integers, 8 N for other types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphmill.assets.sources.readers.duck import Duck, literal
from graphmill.assets.sources.readers.plain_text import Numbers, select_numbers
from graphmill.assets.sources.readers.table_files import INTEGERS, TableFiles
from graphmill.assets.storage.files.encodings import through
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.id_set import IdSet, RankIndex
from graphmill.kernels.types import Array

UNFIT = ("FLOAT", "DOUBLE", "BOOLEAN")
LIKE_A_NUMBER = r"[+-]?[0-9][0-9.,]*([eE][+-]?[0-9]+)?"
FIX_IDS = "correct the tables; every node has one row, with an id of its own"
FIX_ENDS = "give each row both ends, or leave rows without them out"


@dataclass(kw_only=True)
class Numbering:
    """The map from original ids to node ids.

    Attributes:
        ids: i64[N] integer ids in ascending order; None if they are 0 to N-1 or not integers.
        staged: DuckDB's table with rows (id, node_id) of the ids; "" if they are integers.
        node_of_row: i64[N] node ids of the rows of the node tables; None if they are in order.
        num_shared: number of ids that stand at both ends of edges, if edges alone name the nodes; else None.
    """

    num_nodes: int
    ids: Array | None = None
    staged: str = ""
    node_of_row: Array | None = None
    num_shared: int | None = None
    threads: int = 1

    def look_up(self, given: Array) -> tuple[Array, Array]:
        """Returns (node ids of integer ids i64[n], bool[n] true for ids without a node)."""
        if self._ranks is None:
            return given, (given < 0) | (given >= self.num_nodes)
        place = self._ranks.look_up(given, self.threads)
        return place, place < 0

    def of_numbers(self, given: Array) -> tuple[Array, Array]:
        """Returns the nodes of ids as `look_up` does; raises InputError if the ids of the tables are not whole numbers."""
        if self.staged:
            remedy = "save the rows in the order of the node table, and without ids"
            raise InputError("ids beside features are whole numbers, and those of the tables are not", remedy)
        return self.look_up(given)

    def alike(self, duck: Duck, value: object) -> str:
        """Returns an id that is another way to write a text, or another number of one that counts from 0 or 1; "" without one."""
        if not self.staged:
            first = 0 if self.ids is None else int(self.ids[0])
            counts = self.ids is None or int(self.ids[-1]) - first == len(self.ids) - 1
            wanted = {0: self.num_nodes, 1: 0}.get(first) if counts else None
            return f"ids of nodes are {first} to {first + self.num_nodes - 1}" if value == wanted else ""
        plain = "regexp_replace(regexp_replace(lower(trim(nfc_normalize(CAST({} AS VARCHAR)))), '^0+([0-9])', '\\1'), '\\.0+$', '')"
        same = f"SELECT id FROM {self.staged} WHERE {plain.format('id')} = {plain.format(literal(str(value)))} LIMIT 1"
        found = duck.rows(same)
        return f"the tables of nodes have {str(found[0][0])!r} for {str(value)!r}" if found else ""

    @cached_property
    def _ranks(self) -> RankIndex | None:
        return None if self.ids is None else RankIndex(self.ids)


def id_kind(table: TableFiles, role: str, name: str, id_type: str) -> str:
    """Returns "integer" or the SQL type of the ids in a column.

    Raises:
        InputError: the column is missing, or values of its type cannot be ids.
    """
    kind = table.require(role, name)
    if table.is_csv:
        whole = id_type == "integer" or (id_type == "auto" and table.begins_with_integer(name))
        return "integer" if whole else "VARCHAR"
    if kind in UNFIT or "[" in kind or "(" in kind.replace("DECIMAL(", ""):
        problem = f"{table.paths[0]}: column '{name}' is {kind}, which is no type of ids"
        raise InputError(problem, "cast it to BIGINT or text")
    return "integer" if kind in INTEGERS and id_type != "text" else "VARCHAR" if id_type == "text" else kind


def number_by_nodes(nodes: TableFiles, column: str, kind: str, id_type: str, staged: str = "ids") -> Numbering:
    """Numbers the rows of the node tables.

    Args:
        kind: "integer", or the SQL type of the ids.
        id_type: the key of the configuration; with "auto", text that looks like a number is refused.
        staged: name of the table that DuckDB gets for ids that are not integers.

    Raises:
        InputError: an id is missing or occurs twice, or ids are text and numbers.
    """
    if kind != "integer":
        return _number_in_duck(nodes, column, kind, id_type, staged)
    ids, files = _integer_ids(nodes, column)
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    repeats = np.flatnonzero(ranked[1:] == ranked[:-1])
    if len(repeats):
        pairs = [(int(order[i]), int(order[i + 1]), int(ranked[i])) for i in repeats[:3].tolist()]
        raise _repeated(nodes, files, pairs, len(repeats))
    in_order = bool((order[1:] > order[:-1]).all())
    dense = ranked[0] == 0 and ranked[-1] == len(ids) - 1
    node_of_row = None
    if not in_order:
        node_of_row = np.empty(len(ids), np.int64)
        node_of_row[order] = np.arange(len(ids))
    return Numbering(
        num_nodes=len(ids), ids=None if dense else ranked, node_of_row=node_of_row, threads=nodes.duck.threads
    )


def number_by_edges(edges: TableFiles, ends: tuple[str, str], kind: str) -> Numbering:
    """Numbers the ids that edges name, without node tables; ids other than integers are read from DuckDB's table `staged`."""
    duck = edges.duck
    if kind != "integer":
        rows = "SELECT src AS id, 1 AS side FROM staged UNION ALL SELECT dst, 2 FROM staged"
        duck.rows(f"CREATE TABLE named AS SELECT id, bit_or(side) = 3 AS shared FROM ({rows}) GROUP BY id")
        shared = int(duck.rows("SELECT count(*) FROM named WHERE shared")[0][0])
        duck.rows("CREATE TABLE ids AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS node_id FROM named")
        duck.rows("DROP TABLE named")
        count = int(duck.rows("SELECT count(*) FROM ids")[0][0])
        return Numbering(num_nodes=count, staged="ids", num_shared=shared)
    found = IdSet()
    for rows in select_numbers(edges, end_columns(edges, *ends)):
        for side, column in enumerate(rows.columns):
            # An end that is missing is refused when the edges are read.
            found.add(column.values if column.nulls is None else column.values[~column.nulls], side)
    ids, num_shared = found.sorted()
    dense = len(ids) == 0 or (ids[0] == 0 and ids[-1] == len(ids) - 1)
    return Numbering(num_nodes=len(ids), ids=None if dense else ids, num_shared=num_shared, threads=duck.threads)


def end_columns(edges: TableFiles, source: str, target: str) -> list[Numbers]:
    """Returns the columns of the ends of edges, whose ids are integers."""
    named = (("source_column", source), ("target_column", target))
    return [Numbers(name=name, expression=edges.integer(role, name)) for role, name in named]


def _integer_ids(nodes: TableFiles, column: str) -> tuple[Array, list[int]]:
    """Returns i64[N] ids in the order of the rows, and the number of rows of each file."""
    found, files = [], [0] * len(nodes.paths)
    for rows in select_numbers(nodes, [Numbers(name=column, expression=nodes.integer("id_column", column))]):
        ids, nulls = rows.columns[0].values, rows.columns[0].nulls
        if nulls is not None:
            raise no_id(nodes, rows.file, rows.first + int(np.flatnonzero(nulls)[0]), column, nodes.section)
        found.append(ids.copy())
        files[rows.file] += rows.count
    if not found:
        raise InputError(f"{nodes.paths[0]}: the node tables have no rows", "give a table with a row for each node")
    return np.concatenate(found), files


def no_id(table: TableFiles, file: int, row: int, column: str, section: str) -> InputError:
    """Returns the error of a row whose id is missing or not a whole number.

    Args:
        section: the table of the pipeline file whose `id_type` decides the ids, "" without one.
    """
    value = table.value(file, row, column)
    if value is None or not str(value).strip():
        remedy = FIX_IDS if table.key.partition(".")[0] == "nodes" else FIX_ENDS
        return InputError(f"{table.place(file, row)}: column '{column}' is empty", remedy)
    if table.is_csv and str(value).strip() == column:
        problem = (
            f"{table.place(file, row)}: column '{column}' holds '{value}': the line of names stands among the rows"
        )
        first = table.layouts[file].skipped + 1
        again = through(str(table.paths[file]), f"awk 'NR == {first} {{names = $0}} NR <= {first} || $0 != names'")
        return InputError(problem, f"keep the first one: {again} > NEW.csv, and name the new file")
    why = why_not_whole(str(value)) or "not a whole number like the ids before it"
    remedy = _or_text(_of_no_number(why) or "correct the file", section)
    return InputError(f"{table.place(file, row)}: column '{column}' holds '{value}', {why}", remedy)


def _or_text(remedy: str, section: str) -> str:
    """Returns a remedy with the key that takes ids as they are written, unless digits are lost."""
    if remedy == EXACT_IDS:
        return remedy
    return f'{remedy}, or set id_type = "text" in {section}' if section else remedy


def why_not_whole(text: str) -> str:
    """Returns why a text that looks like a number is not the id of a node; "" for plain whole numbers, and for other texts."""
    text = text.strip()
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) > 19 or not -(2**63) <= int(text) < 2**63:
            return f"which is beyond {2**63 - 1}, the largest whole number in a text file"
        plain = str(int(text)) == text
        return "" if plain else "a number with a sign" if text[0] == "+" else "a number with leading zeros"
    if not re.fullmatch(LIKE_A_NUMBER, text, re.ASCII):
        return ""
    return ROUNDED if "e" in text.lower() else "a number with a point, a comma or an exponent"


def _number_in_duck(nodes: TableFiles, column: str, kind: str, id_type: str, staged: str) -> Numbering:
    duck = nodes.duck
    files = stage(nodes, "node_rows", {"id": kind}, [f"CAST({nodes.field(column)} AS {kind})"])
    if id_type == "auto":
        require_one_sort(nodes, files, "node_rows", {"id": column}, kind, nodes.section)
    empty = duck.rows("SELECT rowid FROM node_rows WHERE id IS NULL ORDER BY rowid LIMIT 1")
    if empty:
        raise no_id(nodes, *locate(files, empty[0][0]), column, nodes.section)
    twice = "SELECT id, min(rowid) AS a, max(rowid) AS b, count(*) AS n FROM node_rows GROUP BY id HAVING n > 1"
    total = duck.rows(f"SELECT count(*) FROM ({twice})")[0][0]
    if total:
        raise _repeated(nodes, files, [(a, b, i) for i, a, b, _ in duck.rows(f"{twice} ORDER BY a LIMIT 3")], total)
    ranks = "SELECT id, rowid AS row, row_number() OVER (ORDER BY id) - 1 AS node_id FROM node_rows"
    duck.rows(f"CREATE TABLE {staged} AS {ranks}")
    duck.rows("DROP TABLE node_rows")
    parts = [batch[0].values.copy() for batch in duck.batches(f"SELECT node_id FROM {staged} ORDER BY row")]
    if not parts:
        raise InputError(f"{nodes.paths[0]}: the node tables have no rows", "give a table with a row for each node")
    node_of_row = np.concatenate(parts)
    return Numbering(num_nodes=len(node_of_row), staged=staged, node_of_row=node_of_row)


def stage(table: TableFiles, name: str, types: dict[str, str], expressions: list[str]) -> list[int]:
    """Copies columns of all files into a DuckDB table whose rowid is the row's number; returns the number of rows of each file."""
    table.duck.rows(f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in types.items())})")
    files = []
    for number, path in enumerate(table.paths):
        sql = f"INSERT INTO {name} SELECT {', '.join(expressions)} FROM {table.source(number)}"
        files.append(int(table.duck.rows(sql, str(path))[0][0]))
    return files


def require_one_sort(
    table: TableFiles, files: list[int], staged: str, columns: dict[str, str], kind: str, section: str
) -> None:
    """Refuses ids of a CSV file that look like numbers if ids are text: 1 and 01, or 1 and 1.0, would be two nodes.

    Args:
        columns: column of that table -> column of the files.
        kind: SQL type of the ids; only text is checked.
        section: the table of the pipeline file whose `id_type` decides the ids, "" without one.

    Raises:
        InputError: an id looks like a number; the error names the first such row, and another one that is not a whole number.
    """
    if not table.is_csv or kind != "VARCHAR":
        return
    for name, column in columns.items():
        sql = f"SELECT rowid, {name} FROM {staged} WHERE regexp_full_match({name}, '{LIKE_A_NUMBER}') ORDER BY rowid LIMIT 1"
        for row, value in table.duck.rows(sql):
            problem, remedy = f"{table.place(*locate(files, row))}: column '{column}' holds '{value}'", PLAIN_IDS
            if why := why_not_whole(value):
                raise InputError(f"{problem}, {why}", _or_text(_of_no_number(why) or remedy, section))
            other, found = _no_whole(table, files, staged, columns)
            all_ids = "its ids are not all whole numbers" if other else "the ids of other columns or tables are text"
            raise InputError(
                f"{problem}, and {all_ids}{other}",
                _or_text(_of_no_number(found) or (remedy if other else "write all ids alike"), section),
            )


ROUNDED = "a number with an exponent, which has lost digits"
EXACT_IDS = "write the table again with whole numbers as ids, from where they have all digits"
PLAIN_IDS = "write whole numbers without signs, points and leading zeros"
LARGE_IDS = "write the table as Parquet with unsigned 64-bit ids"


NO_ID = "the row has no id"


def _of_no_number(why: str) -> str:
    """Returns the remedy for an id that is missing, rounded or too large, "" for others."""
    if why == ROUNDED:
        return EXACT_IDS
    empty = "give each row an id; if something else separates the fields, set delimiter" if why == NO_ID else ""
    return LARGE_IDS if why.startswith("which is beyond") else empty


def _no_whole(table: TableFiles, files: list[int], staged: str, columns: dict[str, str]) -> tuple[str, str]:
    """Returns words about the first id that is not a plain whole number, and why it is none; empty texts if another table has it."""
    for name, column in columns.items():
        whole = f"TRY_CAST(TRY_CAST({name} AS BIGINT) AS VARCHAR) = {name}"
        sql = f"SELECT rowid, {name} FROM {staged} WHERE NOT coalesce({whole}, false) ORDER BY rowid LIMIT 1"
        for row, value in table.duck.rows(sql):
            place = table.place(*locate(files, row))
            if value is None:
                return f": column '{column}' is empty in {place}", NO_ID
            why = why_not_whole(value)
            return f": column '{column}' holds '{value}' in {place}{why and f', {why}'}", why
    return "", ""


def refuse_lost_rows(table: TableFiles, columns: Sequence[str], staged: str) -> None:
    """Refuses a first line of text that was taken for names of columns, but names nodes: it would be lost.

    Raises:
        InputError: nothing says that the files begin with names, and one of these names is an id.
    """
    named = [name for name in columns if name not in table.form.names]
    if not table.is_csv or table.form.header is not None or not named:
        return
    shown = ", ".join(map(literal, named))
    for (name,) in table.duck.rows(f"SELECT id FROM {staged} WHERE CAST(id AS VARCHAR) IN ({shown}) LIMIT 1"):
        raise InputError(
            f"{table.paths[0]}: the first line has the column '{name}', and a node is called {name}, too",
            f"set header = false in {table.section} if the line is a row, or header = true if it has names of columns",
        )


def locate(files: list[int], row: int) -> tuple[int, int]:
    """Returns (file, row in it) of a row of the whole table."""
    ends = np.cumsum(files)
    file = int(np.searchsorted(ends, row, side="right"))
    return file, int(row - (ends[file] - files[file]))


def original_ids(duck: Duck, numbering: Numbering, kind: str) -> Any:
    """Returns the N ids of the tables in node order, an array or a Polars series; None if they are 0 to N-1."""
    if not numbering.staged:
        return numbering.ids
    text = "id" if kind == "VARCHAR" else "CAST(id AS VARCHAR)"
    return duck.series(f"SELECT {text} FROM {numbering.staged} ORDER BY node_id")


def _repeated(nodes: TableFiles, files: list[int], pairs: list[tuple[int, int, Any]], total: int) -> InputError:
    shown = ", ".join(
        f"'{value}' in {nodes.place(*locate(files, a))} and {nodes.place(*locate(files, b))}" for a, b, value in pairs
    )
    return InputError(f"{total} node ids occur twice: {shown}", FIX_IDS)
