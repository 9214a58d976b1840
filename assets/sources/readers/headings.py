"""First lines of text that stand above the rows and do not name their columns: titles, and lines of names of which one is missing.

A title has another number of fields than the rows below it. R writes one name less than a row has fields, since the names of the rows have
none. Neither says which name belongs to which column, so both are refused with the command that makes a table of them.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from graphmill.assets.sources.readers.separators import BLANKS, NUMBER, USUAL
from graphmill.assets.storage.files.encodings import through
from graphmill.kernels.errors import InputError

LONGEST = 1 << 16
"""Most letters of a line that is looked at."""
MOST_TITLES, FEWEST_ROWS = 8, 3
"""Most lines of a title, and fewest rows of equal length that make lines of another length a title."""


def refuse_title(path: Path, above: int, sample: Sequence[str], comment: str) -> None:
    """Refuses lines above a table that have another number of fields than all rows below them.

    Args:
        above: number of lines before the first of the sample.
        sample: the first lines behind the comments.
        comment: what comments begin with, "" without.

    Raises:
        InputError: the first lines look like a title, or lack the name of a column.
    """
    numbered = [
        (above + place, line)
        for place, line in enumerate(sample, 1)
        if line.strip() and not (comment and line.lstrip().startswith(comment))
    ]
    if any(len(line) > LONGEST for _, line in numbered):
        return
    usual = [delimiter for delimiter in USUAL if delimiter in numbered[-1][1]]
    split = [[fields_of(line, delimiter) for _, line in numbered] for delimiter in usual or (BLANKS,)]
    if any(len({*map(len, rows)}) == 1 < len(rows[0]) and "" not in rows[0] for rows in split):
        return
    for delimiter, rows in zip(usual or (BLANKS,), split, strict=True):
        lead = _lead(rows)
        if not lead:
            continue
        if lead == 1 and len(rows[0]) == len(rows[1]) - 1 > 1:
            raise _lacks_a_name(path, rows[:2], delimiter, numbered[0][0])
        if lead > 1 or (len(rows[1]) > 1 and not NUMBER.fullmatch(rows[1][0])):
            raise _title(path, [line.strip() for _, line in numbered[:lead]], numbered[lead][0])


def fields_of(line: str, delimiter: str) -> list[str]:
    """Returns the fields of a line, without blanks around them."""
    if delimiter == BLANKS:
        return line.split()
    return [field.strip() for field in next(csv.reader([line.strip("\r\n")], delimiter=delimiter), [])]


def _lead(rows: Sequence[list[str]]) -> int:
    """Returns the number of first lines that are shorter or longer than all others, which are equally long; 0 if they are none."""
    width = len(rows[-1])
    lead = next((at for at in range(len(rows), 0, -1) if len(rows[at - 1]) != width or "" in rows[at - 1]), 0)
    first = rows[0][0]
    others = all(len(row) != width or sum(map(bool, row)) < max(2, width - 1) for row in rows[:lead])
    enough = 0 < lead <= MOST_TITLES and len(rows) - lead >= FEWEST_ROWS
    return lead if enough and width > 1 and others and first and not NUMBER.fullmatch(first) else 0


def _lacks_a_name(path: Path, rows: Sequence[list[str]], delimiter: str, number: int) -> InputError:
    sign = {BLANKS: " ", "\t": "\\t"}.get(delimiter, delimiter)
    command = through(str(path), f"sed {quote(f'{number}s/^/row{sign}/')}")
    problem = (
        f"{path}: the line of names has {len(rows[0])} fields, and each row has {len(rows[1])}: {', '.join(rows[0])} above "
        f"{', '.join(rows[1])}"
    )
    return InputError(
        problem,
        f"if each row begins with its name, as R writes tables, name that column: {command} > NEW.csv; otherwise name each",
    )


def _title(path: Path, lines: Sequence[str], number: int) -> InputError:
    what = "the first line looks" if len(lines) == 1 else f"the first {len(lines)} lines look"
    shown = lines[0] if len(lines[0]) <= 80 else f"{lines[0][:80]}..."
    command = through(str(path), f"tail -n +{number}")
    return InputError(
        f"{path}: {what} like a title above the table, which begins in line {number}: {shown}",
        f"leave it out: {command} > NEW.csv, and name the new file",
    )


def refuse_quotes_behind_blanks(path: Path, sample: Sequence[str], delimiter: str) -> None:
    """Refuses quotes with a blank before them: they would be letters of the field.

    Raises:
        InputError: a field of the first lines begins with a blank and a quote.
    """
    for line in sample:
        if len(line) > LONGEST or '"' not in line:
            continue
        fields = next(csv.reader([line.strip("\r\n")], delimiter=delimiter), [])
        if any(re.match(r'[ \t]+"', field) for field in fields):
            pattern = re.escape(delimiter).replace("/", "\\/")
            command = through(str(path), f"sed -E {quote(f's/{pattern}[[:blank:]]+{chr(34)}/{delimiter}{chr(34)}/g')}")
            problem = f"{path}: a blank stands between {delimiter!r} and a quote, so that the quotes would be letters: {line.strip()[:80]}"
            raise InputError(problem, f"leave the blanks out: {command} > NEW.csv, and name the new file")
