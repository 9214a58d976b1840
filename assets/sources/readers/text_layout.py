"""The layout of a file of text: its comments, the separator of its fields, and whether it begins with names of columns.

What a table does not say is found in the first lines: comments are lines at the beginning that start with `#` or `%`, a line of a
spreadsheet such as sep=; is left out, and the separator is found in them (assets/sources/readers/separators.py). A first line that begins
with a number is a row, not names. Every row must fit what the first line says, or the file is refused.

DuckDB's reader of CSV takes most files as they are. Lists with comments, or with several letters or runs of blanks between fields, are read
line by line and split by DuckDB, so they have no quotes; comments above a `.csv` file are left out, and the rest of it is CSV.
"""

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.sources.readers.duck import (
    FIX_FILE,
    QUOTES,
    ROW_HAS,
    Duck,
    literal,
    path_literal,
    quoted,
    too_long,
)
from graphmill.assets.sources.readers.foreign import refuse_other_text
from graphmill.assets.sources.readers.headings import refuse_quotes_behind_blanks, refuse_title
from graphmill.assets.sources.readers.packing import LINES, LONGEST_LINE, PACKED, for_duck, text_lines
from graphmill.assets.sources.readers.part_files import CSV
from graphmill.assets.sources.readers.separators import (
    BLANKS,
    NUMBER,
    delimiter_problems,
    find_separator,
    likely_separators,
    named_separator,
)
from graphmill.kernels.errors import InputError

COMMENTS = ("#", "%")
SAMPLE_LINES, SAMPLE_LETTERS = 20, 1 << 20
"""Most lines, and about the most letters, in which a separator is looked for."""


@dataclass(frozen=True)
class TextForm:
    """What a user says about the text files of a table; None is found out.

    Attributes:
        header: whether a file begins with names of columns.
        comment: beginning of the lines above the table that are left out, "" if there are none.
        names: names of the first columns of a file without a line of names; the others are c0, c1, ... by their place.
        section: the table of the pipeline file that says it, for remedies.
    """

    delimiter: str | None = None
    header: bool | None = None
    comment: str | None = None
    names: tuple[str, ...] = ()
    section: str = "[graph]"


def text_problems(delimiter: str | None, comment: str | None) -> Iterator[KeyProblem]:
    """Yields the problems of the keys `delimiter` and `comment` of a table."""
    yield from delimiter_problems(delimiter)
    if comment is not None and (len(comment) > 8 or comment.strip() != comment):
        yield KeyProblem("comment", f'comment = {comment!r}: give how comments begin, for example "#"')


@dataclass(frozen=True)
class TextLayout:
    """The layout of one file.

    Attributes:
        delimiter: separator of fields; `BLANKS` stands for any number of blanks.
        header: whether the first line behind the comments has the names.
        comment: what comments begin with, "" if there are none.
        skipped: number of lines above the table.
        first_row: fields of the first row, None if there are no rows.
        first_line: fields of the first line behind the comments.
        split: whether DuckDB reads lines and splits them.
    """

    names: list[str]
    delimiter: str
    header: bool
    comment: str
    skipped: int
    first_row: list[str] | None
    first_line: list[str] = field(default_factory=list)
    split: bool = False

    def described(self) -> str:
        """Returns how the file is read, in words."""
        shown = {"\t": "tabs", BLANKS: "blanks", ",": "commas"}.get(self.delimiter, f"{self.delimiter!r}")
        fields = f"fields separated by {shown}" if len(self.names) > 1 else "one field in each line"
        names = "a line of names" if self.header else "no line of names"
        first = f", the first begins with {self.comment}" if self.comment else ""
        above = f"; {self.skipped} lines above it are not read{first}" if self.skipped else ""
        return f"read as text: {names}, {fields}{above}"

    def unsplit(self) -> str:
        """Returns the remedy for a file whose lines are one field each, but may have a separator that is not found; "" without one."""
        signs = likely_separators(self.first_line[0]) if len(self.names) == 1 and self.first_line else []
        return f"delimiter = {json.dumps(signs[0])}" if signs else ""

    def query(self, duck: Duck, path: Path) -> str:
        """Returns the text after FROM that reads a file of this layout; all columns are text."""
        file, packed = for_duck(duck, path)
        if self.split:
            return self._split_query(path_literal(file), packed)
        columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in self.names)
        return (
            f"read_csv({path_literal(file)}, columns={{{columns}}}, auto_detect=false, header={str(self.header).lower()}, "
            f"skip={self.skipped}, strict_mode=true, null_padding=false, delim={literal(self.delimiter)}, quote='\"', escape='\"', "
            f"max_line_size={LONGEST_LINE}, hive_partitioning=false, compression='{packed}')"
        )

    def _split_query(self, file: str, packed: str) -> str:
        blanks, count = literal(BLANKS), len(self.names)
        fields = f"string_split(line, {literal(self.delimiter)})"
        if self.delimiter == BLANKS:
            fields = f"string_split_regex(trim(line, {blanks}), '[{BLANKS}]+')"
        kept = f"trim(line, {blanks}) <> ''"
        if self.comment:
            kept += f" AND NOT starts_with(ltrim(line, {blanks}), {literal(self.comment)})"
        lines = f"SELECT line, {fields} AS f FROM read_csv({file}, {LINES}, skip={self.skipped + self.header}, compression='{packed}')"
        wrong = f"error(concat('{ROW_HAS}', len(f), ' fields, not {count}: ', line[:80]))"
        quotes = f"error(concat('{QUOTES}', line[:80]))"
        checked = f"CASE WHEN len(f) <> {count} THEN {wrong} WHEN contains(line, '\"') THEN {quotes} ELSE f END"
        named = ", ".join(f"nullif(f[{place}], '') AS {quoted(name)}" for place, name in enumerate(self.names, 1))
        return f"(SELECT {named} FROM (SELECT {checked} AS f FROM ({lines}) WHERE {kept}))"

    def line_of(self, duck: Duck, path: Path, row: int) -> int:
        """Returns the number of a row's line, from 1; a file with comments is read up to there."""
        number = row + 1 + self.header + self.skipped
        if not self.split:
            return number
        lines = enumerate(text_lines(duck, path, most=number), 1)
        kept = (at for at, line in lines if at > self.skipped + self.header and _is_row(line, self.comment))
        return next(itertools.islice(kept, row, None), number)


def _is_row(line: str, comment: str) -> bool:
    text = line.strip()
    return bool(text) and not (comment and text.startswith(comment))


def read_layout(duck: Duck, path: Path, form: TextForm) -> TextLayout | None:
    """Finds the layout of a text file; None if it has no line.

    Raises:
        InputError: the file cannot be read, has only comments, or has a broken header, or could be either names or a row.
    """
    lines, above = text_lines(duck, path), []
    first = next(lines, None)
    named = None if first is None else named_separator(first)
    if first is not None and named is not None:
        above.append(first)
        first = next(lines, None)
    comment = form.comment
    if comment is None:
        comment = next((each for each in COMMENTS if (first or "").lstrip().startswith(each)), "")
    while first is not None and not _is_row(first, comment):
        above.append(first)
        first = next(lines, None)
    if first is None:
        if any(map(str.strip, above)):
            remedy = f'give a file with rows, or set comment = "" in {form.section}'
            raise InputError(f"{path}: has only comments", remedy)
        return None
    sample = _sample(first, lines, comment)
    refuse_other_text(path, [*above, *sample])
    if form.header is None:
        refuse_title(path, len(above), sample, comment)
    found = find_separator(_bare_name(path), [line for line in sample if _is_row(line, comment)])
    delimiter = form.delimiter or named or found or ("\t" if _bare_name(path).endswith(".tsv") else ",")
    if len(delimiter) > 1 and not delimiter.strip(BLANKS):
        delimiter = BLANKS
    split = len(delimiter) > 1 or (bool(comment) and '"' not in first and not _bare_name(path).endswith(".csv"))
    if not split:
        refuse_quotes_behind_blanks(path, sample, delimiter)
    rows = _fields(path, itertools.chain(sample, lines), delimiter, comment if split else "", split=split)
    line = next(rows, [])
    header = form.header
    if header is None:
        header = not (line and NUMBER.fullmatch(line[0].strip(BLANKS)))
    names = [form.names[place] if place < len(form.names) else f"c{place}" for place in range(len(line) or 1)]
    names = _header(path, line, form.section) if header else names
    row = next(rows, None) if header else line
    return TextLayout(names, delimiter, header, comment, len(above), row, line, split)


def _fields(path: Path, lines: Iterator[str], delimiter: str, comment: str, *, split: bool) -> Iterator[list[str]]:
    if not split:
        csv.field_size_limit(LONGEST_LINE)
        try:
            yield from csv.reader(lines, delimiter=delimiter)
        except csv.Error as error:
            if "field limit" in str(error):
                raise too_long(str(path), LONGEST_LINE) from error
            raise InputError(f"{path}: cannot be read: {error}", f"copy it again, or {FIX_FILE}") from error
        return
    for line in lines:
        if _is_row(line, comment):
            text = line.rstrip("\r\n")
            yield re.split(f"[{BLANKS}]+", text.strip(BLANKS)) if delimiter == BLANKS else text.split(delimiter)


def _bare_name(path: Path) -> str:
    """Returns a file's name in small letters, without the ending that says how it is packed."""
    name = path.name.lower()
    return name.removesuffix(next((packed for packed in PACKED if name.endswith(packed)), ""))


def _sample(first: str, lines: Iterator[str], comment: str) -> list[str]:
    """Returns the first lines of a table, comments among them included."""
    found, letters, rows = [first], len(first), 1
    while rows < SAMPLE_LINES and letters < SAMPLE_LETTERS and (line := next(lines, None)) is not None:
        found.append(line)
        letters, rows = letters + len(line), rows + _is_row(line, comment)
    return found


def refuse_counted(path: Path, layouts: Sequence[TextLayout], section: str) -> None:
    """Refuses a first line 0,1,2,... of a table: pandas writes it as names of columns that have none, but it can be an edge.

    Args:
        layouts: layouts of all its files, found without a word about headers.

    Raises:
        InputError: the files all begin with the same line, and it counts from 0.
    """
    line = layouts[0].first_line
    if any(each.header or each.skipped or each.first_line != line for each in layouts):
        return
    numbers = list(itertools.takewhile(str.isdigit, line))
    if not any(ending in path.suffixes for ending in CSV) or numbers != [str(place) for place in range(len(numbers))]:
        return
    if len(numbers) > 1 or len(line) == 1:
        raise InputError(
            f"{path}: the first line, {', '.join(line)}, could be names of columns, as pandas counts them, or a row",
            f"set header = true in {section} if they are names, or header = false if the line is a row",
        )


def refuse_some_headers(paths: Sequence[Path], layouts: Sequence[TextLayout], section: str) -> None:
    """Refuses a table of which some files begin with names and others with a row, unless the names are those that the others would get.

    Args:
        layouts: their layouts, found without a word about headers.

    Raises:
        InputError: the columns of the files without names might be others.
    """
    named = next((place for place, each in enumerate(layouts) if each.header), None)
    plain = next((place for place, each in enumerate(layouts) if not each.header), None)
    if named is None or plain is None:
        return
    if all(each.names == layouts[plain].names for each in layouts):
        return
    raise InputError(
        f"{paths[plain]}: begins with a row, but {paths[named]} with the names {', '.join(layouts[named].names)}",
        f"begin all files of a table with a line of names, or none (and set header = false in {section})",
    )


def _header(path: Path, line: list[str], section: str) -> list[str]:
    """Returns the names of a header line; columns without one are called c0, c1, ... by their place.

    Programs leave names out: pandas that of the column of row numbers, others that behind a separator at the end of each line.

    Raises:
        InputError: no column has a name, or a name occurs twice.
    """
    line = [name.strip(BLANKS) for name in line]
    if any(line):
        line = [name or f"c{place}" for place, name in enumerate(line)]
    repeated = sorted({name for name in line if line.count(name) > 1})
    if not line or repeated or "" in line:
        what = f"has the column '{repeated[0]}' twice" if repeated and repeated[0] else "has no names of columns"
        remedy = (
            f"begin the file with a line of distinct column names, or set header = false in {section} if it has none"
        )
        raise InputError(f"{path}: the header line {what}", remedy)
    refuse_equal_names(path, line)
    return line


def refuse_equal_names(path: Path, names: Iterable[str]) -> None:
    """Refuses names of columns that SQL takes for one; raises InputError if two names differ only in case."""
    lower: dict[str, str] = {}
    for name in names:
        if (other := lower.setdefault(re.sub("[A-Z]+", lambda found: found[0].lower(), name), name)) != name:
            raise InputError(f"{path}: columns '{other}' and '{name}' differ only in case", "rename one of them")
