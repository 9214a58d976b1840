"""The separator of the fields of a text file, found in its first lines.

The first line decides: the separator is the one of comma, tab, `;` and `|` that it has most of; if it has none, blanks separate.
Separators of several letters (`::`, `||`, `->`) and those of control characters are found if all of the first lines agree on them, and the
usual ones do not separate the same lines as well. Anything else is a letter of a field, until `delimiter` says otherwise.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from graphmill.assets.building.keys import KeyProblem

USUAL = (",", "\t", ";", "|")
BLANKS = " \t"
"""The separator of lists whose fields have any number of blanks between them."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MOST_LETTERS = 8
SIGNS = re.compile(r"[-=~]+>|--+|[\x01-\x08\x0e-\x1f]+|[^\w\s\"'.+\-]+")
"""Runs of signs that may separate fields."""

QUOTED = re.compile(r'("[^"]*"|[^\s"]+)( ("[^"]*"|[^\s"]+))+')
"""A line of fields between single blanks, some in quotes, as R writes them."""

SEPARATOR_LINE = re.compile(r'"?sep\s*=\s*(\\t|\t| |[^\w\s"]{1,3}?)"?[,;\t]*\s*', re.IGNORECASE)
"""The line that spreadsheets write above a table, such as sep=;"""


def delimiter_problems(delimiter: str | None) -> Iterator[KeyProblem]:
    """Yields the problem of the key `delimiter` of a table."""
    if delimiter is None:
        return
    text = f"delimiter = {delimiter!r}"
    if not delimiter:
        yield KeyProblem("delimiter", f"{text} separates nothing: leave it out to have it found, or give a separator")
    elif delimiter == "\\t":
        yield KeyProblem("delimiter", f'{text} is two letters: write "\\t" in double quotes for a tab')
    elif any(letter in '"\n\r' for letter in delimiter):
        yield KeyProblem("delimiter", f"{text} has a quote or the end of a line: give the letters between two fields")
    elif len(delimiter) > MOST_LETTERS or (len(delimiter) > 1 and any(map(str.isalnum, delimiter))):
        how = 'give the signs between two fields, such as "::", "\\t" for a tab, or " \\t" for any number of blanks'
        yield KeyProblem("delimiter", f"{text} is not a separator: {how}")


def named_separator(line: str) -> str | None:
    """Returns the separator that a line above a table names, as spreadsheets write it; None for other lines."""
    found = SEPARATOR_LINE.fullmatch(line.rstrip("\r\n"))
    return None if found is None else found[1].replace("\\t", "\t")


def find_separator(name: str, lines: Sequence[str]) -> str | None:
    """Returns the separator of the fields, None if each line is one field.

    Args:
        name: name of the file in small letters, without the ending that says how it is packed.
        lines: the first lines of the table, of which there is one.
    """
    usual, bare = _usual(name, lines[0]), [_bare(line) for line in lines]
    if usual == BLANKS and (sign := _sign_between(bare)):
        return sign
    for signs in _signs(bare[0]):
        if usual is None or usual not in signs:
            chosen = usual is None or not _agree(usual, bare)
        else:
            row = NUMBER.fullmatch(bare[0].split(signs)[0].strip()) is not None  # 1,,2 may have an empty field
            around = len(signs) > 1 and signs[0] == signs[-1] == usual
            chosen = around and usual not in bare[0].replace(signs, "") and (usual == "|" or not row)
        if chosen and _agree(signs, bare):
            return signs
    if usual is None and len(lines) > 1 and " " in bare[0].strip() and _are_numbers(bare[1]):
        return BLANKS if _agree(BLANKS, bare) else None
    return usual


def likely_separators(line: str) -> list[str]:
    """Returns single signs that may separate the fields of a line that is read as one field, for remedies."""
    return [signs for signs, _ in Counter(SIGNS.findall(_bare(line))).most_common(3) if len(signs) <= MOST_LETTERS]


def _bare(line: str) -> str:
    """Returns a line without its quoted fields."""
    return re.sub(r'"[^"]*"', "", line.rstrip("\r\n"))


def _usual(name: str, line: str) -> str | None:
    """Returns the usual separator that a line has most of."""
    bare, table = _bare(line), name.endswith((".csv", ".tsv"))
    if name.endswith(".tsv") and "\t" in bare:
        return "\t"
    most = max(USUAL, key=bare.count)
    if most == "\t" and not name.endswith(".tsv") and " " in bare.strip() and _are_numbers(bare):
        return BLANKS
    if most in bare:
        return most
    if '"' in line and QUOTED.fullmatch(line.rstrip("\r\n")):
        return " "
    return BLANKS if " " in bare.strip() and '"' not in line and (not table or _are_numbers(bare)) else None


def _signs(line: str) -> list[str]:
    """Returns the separators of several letters, or of control characters, that a line may have, the most frequent first."""
    counts = Counter(signs for signs in SIGNS.findall(line) if 1 < len(signs) <= MOST_LETTERS or signs < " ")
    return sorted(counts, key=lambda signs: (-counts[signs], -len(signs)))


def _agree(separator: str, lines: Sequence[str]) -> bool:
    """Tells whether a separator splits all lines into the same number of fields, which is more than one."""
    counts = {len(line.split()) - 1 if separator == BLANKS else line.count(separator) for line in lines}
    return len(counts) == 1 and counts != {0}


def _sign_between(lines: Sequence[str]) -> str:
    """Returns the sign that stands between the first two fields of all lines, with blanks around it, as in 1 -> 2; "" without one."""
    signs = {(line.split()[1:2] or [""])[0] for line in lines}
    if len(signs) > 1 or len(lines) < 2 or not re.fullmatch(r"[^\w\s\"']+", sign := signs.pop()):
        return ""
    return f" {sign} " if all(f" {sign} " in line for line in lines) else sign


def _are_numbers(line: str) -> bool:
    return all(NUMBER.fullmatch(each) for each in line.split()[:2])
