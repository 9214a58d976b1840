"""Text that is not a list of edges, though it could be read as one: adjacency lists, matrices, and lists with counts on the first line.

A matrix of numbers has an edge in its first two columns, and a line of counts, "15 34", is an edge to a node that does not exist. Neither
says so. They are told by their shape and refused with the command that makes a list of edges of them. If rows could be edges after all,
`header = false` says that they are: a user who sets `header` has looked at the file, and no shape is looked for.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from graphmill.assets.sources.readers.packing import PIECE_BYTES, packing, reading, text_lines
from graphmill.assets.sources.readers.separators import BLANKS, NUMBER
from graphmill.assets.storage.files.encodings import through
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.sources.readers.duck import Duck
    from graphmill.assets.sources.readers.text_layout import TextLayout

HEAD_ROWS, HEAD_LETTERS = 1000, 4 << 20
"""Most rows, and about the most letters, that are looked at."""
MOST_COLUMNS = 20_000
"""Most columns of a matrix, whose lines are counted."""
FEWEST_COUNTED = 3
"""Fewest rows that a number of rows on the first line is believed to count."""
MOST_DISTINCT = 20_000_000
"""Most rows whose nodes are counted."""
WHOLE = re.compile(r"-?\d{1,18}")
WEIGHTED = re.compile(r"\d+:[^\s:]+")
NEIGHBOURS = "awk '!/^[#%]/ {for (i = 2; i <= NF; i++) print $1, $i}'"
AS_BLANKS = "tr ',;:|' '    '"


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a file.

    Attributes:
        lines: numbers of the lines, from 1.
        rows: their fields; the first row may be names.
        complete: whether these are all rows.
        line_bytes: mean number of bytes of a line.
    """

    path: Path
    layout: TextLayout
    lines: list[int]
    rows: list[list[str]]
    complete: bool
    line_bytes: float


class TextTable(Protocol):
    """The text files of a table, as `TableFiles` has them."""

    duck: Duck
    paths: list[Path]
    layouts: list[TextLayout]
    columns: dict[str, str]

    @property
    def section(self) -> str: ...  # noqa: D102
    def field(self, name: str) -> str: ...  # noqa: D102
    def source(self, number: int) -> str: ...  # noqa: D102


def refuse_other_shapes(table: TextTable) -> None:
    """Refuses text files that are not lists of edges.

    Args:
        table: the files of a table of edges, of which no key says whether they begin with names.
    """
    head = _head(table, 0)
    _refuse_neighbours(head)
    _refuse_matrix(table, head)
    _refuse_neighbours_of_one_length(table, head)
    _refuse_counts(table, head)


def _head(table: TextTable, number: int) -> FirstRows:
    path, layout = table.paths[number], table.layouts[number]
    lines, rows, letters = [], [], 0
    for at, line in enumerate(text_lines(table.duck, path), 1):
        if at <= layout.skipped or not line.strip() or (layout.comment and line.lstrip().startswith(layout.comment)):
            continue
        if len(rows) == HEAD_ROWS or letters > HEAD_LETTERS:
            return FirstRows(path, layout, lines, rows, False, letters / len(rows))
        lines.append(at)
        rows.append(_fields(line, layout.delimiter))
        letters += len(line)
    return FirstRows(
        path, layout, lines, rows, packing(path) != "zstd" or len(rows) < HEAD_ROWS, letters / max(1, len(rows))
    )


def _fields(line: str, delimiter: str) -> list[str]:
    text = line.strip("\r\n")
    if delimiter == BLANKS:
        return text.split()
    fields = (
        next(csv.reader([text], delimiter=delimiter), [])
        if len(delimiter) == 1 and '"' in text
        else text.split(delimiter)
    )
    return [field.strip() for field in fields]


def _or_edges(head: FirstRows, section: str, *, named: bool = False) -> str:
    other = "true" if named else "false"
    return f"; or set header = {other} in {section} if each line of {head.path.name} is an edge"


def _refuse_neighbours(head: FirstRows) -> None:
    """Refuses lines of several lengths: a node and its neighbours each, or rows below a line of counts."""
    pieces = [[each for field in row for each in re.split(r"[\s,;:|]+", field) if each] for row in head.rows]
    lengths = [len(each) for each in pieces]
    if all(WHOLE.fullmatch(each) for row in pieces for each in row):
        if len(set(lengths)) < 2 or len(lengths) < 3:
            return
        lead = next(at for at in range(len(lengths)) if len(set(lengths[at:])) == 1)
        if (metis := _metis(head, pieces)) is not None:
            raise metis
        if lead < 3 and _are_counts(head, pieces, lead):
            raise _counts(head, head.rows[:lead], lead, "")
        usual = max(map(lengths.count, {*lengths}))
        if len(lengths) > 4 and len(lengths) - usual <= max(1, len(lengths) // 10):
            return  # a list of edges with some rows that are broken
        plain = pieces == head.rows and head.layout.delimiter == BLANKS
        raise _neighbours(head, lengths, plain=plain, further="")
    if (
        len(head.rows) > 1
        and all(WEIGHTED.fullmatch(each) for row in head.rows[1:] for each in row[1:])
        and head.rows[1][1:]
    ):
        command = through(
            str(head.path), """awk '{for (i = 2; i <= NF; i++) {split($i, n, ":"); print $1, n[1], n[2]}}'"""
        )
        problem = f"{head.path}: looks like an adjacency list with weights: a node and NEIGHBOUR:WEIGHT in each line"
        raise InputError(problem, f"make a list of edges of it: {command} > edges.txt")
    named = {*head.layout.names} & {"src", "dst", "source", "target", "from", "to"}
    if head.layout.delimiter in (BLANKS, "\t") and not named and len({len(row) for row in head.rows}) > 2:
        lengths = [len(row) for row in head.rows]
        raise _neighbours(head, lengths, plain=True, further=", and set header = false for it")


def _to_edges(head: FirstRows, *, plain: bool) -> str:
    """Returns the command that makes a list of edges of lines of neighbours, which only blanks separate if they are `plain`."""
    path = str(head.path)
    return f"{through(path, NEIGHBOURS) if plain else f'{through(path, AS_BLANKS)} | {NEIGHBOURS}'} > edges.txt"


def _neighbours(head: FirstRows, lengths: Sequence[int], *, plain: bool, further: str) -> InputError:
    at = next(at for at, length in enumerate(lengths) if length != lengths[0])
    problem = (
        f"{head.path}: looks like an adjacency list, a node and its neighbours in each line: line {head.lines[0]} has {lengths[0]} fields, "
        f"line {head.lines[at]} has {lengths[at]}"
    )
    return InputError(problem, f"make a list of edges of it: {_to_edges(head, plain=plain)}{further}")


def _metis(head: FirstRows, rows: Sequence[list[str]]) -> InputError | None:
    """Returns the error of a graph of METIS: numbers of nodes and edges, and a line of neighbours for each node, which may be empty."""
    if not head.complete or not 2 <= len(rows[0]) <= 4:
        return None
    num_nodes, num_edges, *more = map(int, rows[0])
    form, constraints = str(more[0]) if more else "0", more[1] if len(more) > 1 else 1
    first = 1 + (form[-3:-2] == "1") + constraints * (form[-2:-1] == "1")
    step = 2 if form.endswith("1") else 1
    ends = sum(len(row[first - 1 :: step]) for row in rows[1:])
    if (
        len(rows) - 1 > num_nodes
        or ends != 2 * num_edges
        or (len(rows) == num_nodes + 1 and not _are_mutual(rows[1:], first - 1, step))
    ):
        return None
    weights = "print n - 1, $i, $(i + 1)" if step == 2 else "print n - 1, $i"
    command = f"awk '!/^%/ && n++ {{for (i = {first}; i <= NF; i += {step}) {weights}}}'"
    counts = f"{num_nodes} nodes, {num_edges} edges, and the neighbours of a node in each line"
    problem = f"{head.path}: looks like a graph of METIS: {counts}"
    return InputError(problem, f"make a list of edges of it: {through(str(head.path), command)} > edges.txt")


def _are_mutual(rows: Sequence[list[str]], first: int, step: int) -> bool:
    """Tells whether each node, from 1, is a neighbour of its neighbours."""
    of = [{int(each) for each in row[first::step]} for row in rows]
    return all(0 < other <= len(of) and node in of[other - 1] for node, others in enumerate(of, 1) for other in others)


def _are_counts(head: FirstRows, rows: Sequence[list[str]], lead: int) -> bool:
    """Tells whether the first lines, which have other lengths than the rest, are counts: a number of nodes alone, or the number of rows."""
    if lead == 0 or lead == len(rows) or len(rows[-1]) < 2 or (lead > 1 and any(len(row) > 1 for row in rows[:lead])):
        return False
    given = [int(each) for row in rows[:lead] for each in row]
    num_rows, largest = len(rows) - lead, max(int(each) for row in rows[lead:] for each in row[:2])
    known = {num_rows, 2 * num_rows} & {*given} if head.complete else len(given) > 1
    return bool(known) or (len(given) == 1 and given[0] >= largest)


def _counts(head: FirstRows, rows: Sequence[list[str]], lead: int, choice: str) -> InputError:
    shown, what = ", ".join(" ".join(row) for row in rows), "line looks" if lead == 1 else f"{lead} lines look"
    command = through(str(head.path), f"tail -n +{head.lines[lead]}")
    problem = f"{head.path}: the first {what} like counts of nodes and edges, and not like edges: {shown}"
    return InputError(problem, f"leave them out: {command} > edges.txt, and name the new file{choice}")


def _refuse_matrix(table: TextTable, head: FirstRows) -> None:
    """Refuses a matrix: as many rows as columns, or zeros in most places. Names of both and numbers of rows do not count."""
    rows, width = head.rows, max(map(len, head.rows[:2]))
    if not 3 <= width <= MOST_COLUMNS or len(rows) < 3 or {"src", "dst"} <= {*rows[0]}:
        return
    named, index = _names_of(rows, width)
    count = _num_rows(table, head, width + 2) - named
    for left in dict.fromkeys((index, True)):
        body = [row[len(row) - width + left :] for row in rows[named:]]
        numbers = all(len(row) == width - left for row in body)
        numbers = numbers and all(NUMBER.fullmatch(each) for row in body for each in row)
        numbered = left == index or [row[0] for row in rows] in (_counting(rows, 0), _counting(rows, 1))
        if numbers and numbered and _is_matrix([[*map(float, row)] for row in body], count, labelled=named or left):
            raise _matrix(table, head, (count, width - left), named=named, left=left)


def _counting(rows: Sequence[list[str]], first: int) -> list[str]:
    return [str(at) for at in range(first, first + len(rows))]


def _is_matrix(values: Sequence[list[float]], count: int, *, labelled: bool) -> bool:
    """Tells whether numbers are those of a matrix and not of edges, by the rows that were read and the number of all rows."""
    places = len(values[0])
    binary = all(value in (0, 1) for row in values for value in row)
    symmetric = len(values) == places and all(values[i][j] == values[j][i] for i in range(places) for j in range(i))
    if count == places and (binary or symmetric or (not labelled and _has_one_sort(values))):
        return places > 2
    mostly_zero = len(values) > 4 and all(sum(row[at] == 0 for row in values) * 2 > len(values) for at in (0, 1))
    return mostly_zero and places > 7 and (binary or not labelled)


def _has_one_sort(values: Sequence[list[float]]) -> bool:
    """Tells whether the columns of ids are as all others: whole numbers, or not, and a quarter of all are zero, or there are many."""
    places = len(values[0])
    ids, others = ([each == int(each) for row in values for each in row[part]] for part in (slice(2), slice(2, None)))
    zeros = sum(each == 0 for row in values for each in row) * 4 >= len(values) * places
    return places > 4 and all(ids) == all(others) and (zeros or places > 7)


def _matrix(table: TextTable, head: FirstRows, shape: tuple[int, int], *, named: bool, left: bool) -> InputError:
    count, places = shape
    skip = f", skiprows={head.lines[named] - 1}" if head.lines[named] > 1 else ""
    columns = f", usecols=range(1, {places + 1})" if left else ""
    separator = "" if head.layout.delimiter == BLANKS else f", delimiter={head.layout.delimiter!r}"
    load = f"numpy.loadtxt({str(head.path)!r}{separator}{skip}{columns})"
    save = "numpy.savetxt('edges.csv', numpy.c_[i, j, m[i, j]], '%.17g', ',', header='src,dst,weight', comments='')"
    words = f"{count} rows of {places} numbers" if count <= places else f"rows of {places} numbers, most of them 0"
    problem = f"{head.path}: looks like an adjacency matrix, and not like a list of edges: {words}"
    command = f'python -c "import numpy; m = {load}; i, j = m.nonzero(); {save}"'
    return InputError(problem, f"write its entries as edges: {command}{_or_edges(head, table.section, named=named)}")


def _names_of(rows: Sequence[list[str]], width: int) -> tuple[bool, bool]:
    """Returns whether the first row of a matrix has names of columns, and whether the first column has names or numbers of rows."""
    first = [each.strip('"') for each in rows[0]]
    column = [row[0].strip('"') for row in rows[1:]]
    counting = first[-2:] == [str(width - 2), str(width - 1)] or first[-2:] == [str(width - 1), str(width)]
    named = not all(map(NUMBER.fullmatch, first)) or counting
    same = first[-len(column) :] == column or (len(first) == width and first[0] == "")
    return named, (named and same) or not all(map(NUMBER.fullmatch, column))


def _num_rows(table: TextTable, head: FirstRows, most: int) -> int:
    """Returns the number of rows of all files, names included, as far as `most`."""
    if len(table.paths) == 1 and head.complete:
        return len(head.rows)
    count = 0
    for path, layout in zip(table.paths, table.layouts, strict=True):
        lines = islice(text_lines(table.duck, path, most + layout.skipped), layout.skipped, None)
        count += sum(1 for line in islice(lines, most - count) if line.strip())
        if count >= most:
            break
    return count


def _refuse_neighbours_of_one_length(table: TextTable, head: FirstRows) -> None:
    """Refuses rows that have each node once, in order, and further ids: a node and as many neighbours in each line."""
    rows = head.rows
    if head.layout.header or len(rows) < 4 or len(rows[0]) < 4 or len(table.paths) > 1 or not head.complete:
        return
    if any(len(row) != len(rows[0]) for row in rows) or not all(WHOLE.fullmatch(each) for row in rows for each in row):
        return
    numbers = [list(map(int, row)) for row in rows]
    nodes = [row[0] for row in numbers]
    if nodes != list(range(nodes[0], nodes[0] + len(nodes))) or nodes[0] not in (0, 1):
        return
    for row in numbers:
        neighbours = row[1:]
        if min(neighbours) < nodes[0] or max(neighbours) > nodes[-1] or len({*row}) != len(row):
            return
    command = _to_edges(head, plain=head.layout.delimiter == BLANKS)
    problem = f"{head.path}: looks like an adjacency list: each line has a node and {len(rows[0]) - 1} neighbours"
    raise InputError(problem, f"make a list of edges of it: {command}{_or_edges(head, table.section)}")


def _refuse_counts(table: TextTable, head: FirstRows) -> None:
    """Refuses a first row with the number of the other rows, of all files or of its own, and a number of nodes."""
    everything = sum(path.stat().st_size for path in table.paths)
    for number, path in enumerate(table.paths):
        row = table.layouts[number].first_row or []
        if not 2 <= len(row) <= 3 or not all(WHOLE.fullmatch(each.strip()) for each in row):
            continue
        given = [int(each) for each in row]
        sizes = [(path.stat().st_size, [number])]
        sizes += [(everything, [*range(len(table.paths))])] if number == 0 and len(table.paths) > 1 else []
        for num_bytes, files in sizes:
            guess = num_bytes / max(1.0, head.line_bytes)
            most = guess * (40 if any(packing(table.paths[each]) != "none" for each in files) else 4)
            likely = [each for each in given if each >= FEWEST_COUNTED and guess / 4 < each < most]
            if likely and _counts_rows(table, given, files):
                here = _head(table, number) if number else head
                raise _counts(here, [row], 1, _or_edges(here, table.section))


def _counts_rows(table: TextTable, given: Sequence[int], files: Sequence[int]) -> bool:
    """Tells whether numbers are those of the rows behind the first one, and of their nodes."""
    about = sum(_num_lines(table, each) for each in files)
    least = about - 2000 - about // 1000  # comments and empty lines are few
    if not any(least <= times <= about for each in given for times in (each, 2 * each, each // 2)):
        return False
    if len(table.columns) < 2:
        return False  # the names of the pipeline file leave one; whoever reads the ends says so
    source, target = (table.field(name) for name in [*table.columns][:2])
    ends = f"SELECT TRY_CAST({source} AS BIGINT) AS a, TRY_CAST({target} AS BIGINT) AS b FROM"
    parts = [f"({ends} {table.source(each)}{'' if place else ' OFFSET 1'})" for place, each in enumerate(files)]
    rows, where = " UNION ALL ".join(parts), str(table.paths[files[0]])
    num_rows, largest = table.duck.rows(f"SELECT count(*), coalesce(max(greatest(a, b)), 0) FROM ({rows})", where)[0]
    if num_rows < FEWEST_COUNTED:
        return False
    for place, each in enumerate(given):
        before, behind = given[:place], given[place + 1 :]
        if each == num_rows and (
            any(largest <= n <= 2 * largest + 2 for n in before) or {largest, largest + 1} & {*behind}
        ):
            return True
        if {each, 2 * each} & {num_rows, 2 * num_rows, num_rows // 2} and {largest, largest + 1} & {*before}:
            return True
        if each == num_rows and before and num_rows <= MOST_DISTINCT:
            nodes = f"SELECT a FROM ({rows}) UNION SELECT b FROM ({rows})"
            return table.duck.rows(f"SELECT count(*) FROM ({nodes})", where)[0][0] in before
    return False


def _num_lines(table: TextTable, number: int) -> int:
    path = table.paths[number]
    if packing(path) == "zstd":
        return int(table.duck.rows(f"SELECT count(*) FROM {table.source(number)}", str(path))[0][0])
    ends = [0, 0, 0]
    with reading(path) as file:
        while piece := file.read(PIECE_BYTES):
            ends = [ends[0] + piece.count(b"\n"), ends[1] + piece.count(b"\r"), 1]
    return max(ends) + 1
