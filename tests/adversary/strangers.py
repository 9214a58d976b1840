"""Exports of programs and people that a reader has not seen, drawn from a number, with the way in which each has to end.

A kind gives the graph, or it is refused in words that are true of it. A command in a remedy is carried out: the file that it makes gives
the graph, or has another fault.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Export:
    """A drawn list of edges.

    Attributes:
        content: the bytes of its file.
        said: words of the refusal, "" if the file means the graph.
        mends: whether the command of the remedy makes a file of the graph.
        name: name of the file.
    """

    content: bytes
    said: str = ""
    mends: bool = True
    name: str = "edges.csv"


def drawn_pairs(draw: random.Random) -> Pairs:
    """Returns different edges between 13 nodes, each of which has one; the first does not begin in node 0."""
    count = 13
    chain = [(node, (node + 1) % count) for node in range(1, count)] + [(0, 1)]
    more = {(draw.randrange(count), draw.randrange(count)) for _ in range(30)}
    return chain + sorted(more - {*chain})


def _rows(pairs: Pairs, separator: str = ",") -> list[str]:
    return [f"{source}{separator}{target}" for source, target in pairs]


def _text(lines: list[str], end: str = "\n") -> bytes:
    return (end.join(lines) + end).encode()


def _table(pairs: Pairs, draw: random.Random) -> Export:
    """A table with any separator, end of lines and byte-order mark."""
    separator = draw.choice((",", ";", "\t", "|"))
    content = _text([f"src{separator}dst", *_rows(pairs, separator)], draw.choice(("\n", "\r\n", "\r")))
    return Export(draw.choice((b"", b"\xef\xbb\xbf")) + content)


def _numbered(pairs: Pairs, draw: random.Random) -> Export:
    """A table with row numbers as pandas writes them."""
    lines = [f"{place},{row}" for place, row in enumerate(_rows(pairs))]
    return Export(_text([draw.choice((",src,dst", "Unnamed: 0,src,dst", '"",src,dst')), *lines]))


def _ends_in_separators(pairs: Pairs, draw: random.Random) -> Export:
    separator = draw.choice((",", "\t", ";"))
    names = f"src{separator}dst{draw.choice(('', separator))}"
    return Export(_text([names, *(row + separator for row in _rows(pairs, separator))]))


def _members(pairs: Pairs, draw: random.Random) -> Export:
    """Two gzip files one behind the other."""
    half = len(pairs) // 2
    parts = [_text(["src,dst", *_rows(pairs[:half])]), _text(_rows(pairs[half:]))]
    return Export(b"".join(map(gzip.compress, parts)), name=draw.choice(("edges.csv.gz", "edges.csv")))


def _quoted(pairs: Pairs, draw: random.Random) -> Export:
    return Export(_text(['"src","dst"', *(f'"{source}","{target}"' for source, target in pairs)]))


def _padded(pairs: Pairs, draw: random.Random) -> Export:
    """Quotes behind blanks."""
    separator = draw.choice((",", ";", "|"))
    lines = [f'"{source}"{separator} "{target}"' for source, target in pairs]
    return Export(_text([f"src{separator} dst", *lines]), "a blank stands between")


def _names_of_r(pairs: Pairs, draw: random.Random) -> Export:
    separator = draw.choice((",", " ", "\t"))
    lines = [f'"{place}"{separator}{row}' for place, row in enumerate(_rows(pairs, separator), 1)]
    name = "edges.txt" if separator == " " else "edges.csv"
    return Export(_text([f'"src"{separator}"dst"', *lines]), "the line of names has 2 fields", name=name)


def _title(pairs: Pairs, draw: random.Random) -> Export:
    pad = draw.choice(("", ","))
    lines = draw.choice((["Edges of 2021"], ["Edges of 2021", "exported by hand"], ["Calls", "", "all of May"]))
    return Export(
        _text([*(line + pad if line else "" for line in lines), "src,dst", *_rows(pairs)]),
        "like a title above the table",
    )


def _names_again(pairs: Pairs, draw: random.Random) -> Export:
    """Files with names, one behind the other."""
    at = draw.randrange(1, len(pairs))
    rows = _rows(pairs)
    return Export(_text(["src,dst", *rows[:at], "src,dst", *rows[at:]]), "the line of names stands among the rows")


def _frame(pairs: Pairs, draw: random.Random) -> Export:
    """A table as psql, mysql or a document shows it."""
    rows = [f" {source} | {target} " for source, target in pairs]
    psql = [" src | dst ", "-----+-----", *rows, f"({len(rows)} rows)"]
    rule = "+-----+-----+"
    mysql = [rule, "| src | dst |", rule, *(f"|{row}|" for row in rows), rule, f"{len(rows)} rows in set (0.00 sec)"]
    markdown = ["| src | dst |", "| --- | ---: |", *(f"|{row}|" for row in rows)]
    return Export(
        _text(draw.choice((psql, mysql, markdown))), "a table as a terminal or a document shows it", name="edges.txt"
    )


def _zeros(pairs: Pairs, draw: random.Random) -> Export:
    content = _text(["src,dst", *_rows(pairs)])
    return Export(content.replace(b"\n", b"\0\n"), "zero bytes")


def _encoded(pairs: Pairs, draw: random.Random) -> Export:
    content = _text(["src,dst", *_rows(pairs)]).decode()
    return Export(content.encode(draw.choice(("utf-16", "utf-16-le", "utf-32"))), "not UTF-8")


def _later_comment(pairs: Pairs, draw: random.Random) -> Export:
    at = draw.randrange(20, len(pairs))
    rows = _rows(pairs, " ")
    return Export(
        _text([*rows[:at], "# a second part", *rows[at:]]), "a row has 4 fields", mends=False, name="edges.txt"
    )


def _empty_rows(pairs: Pairs, draw: random.Random) -> Export:
    return Export(_text(["src,dst", *_rows(pairs), ",", ","]), "column 'src' is empty", mends=False)


def _exponents(pairs: Pairs, draw: random.Random) -> Export:
    lines = [f"{1e17 + source:.6e},{1e17 + target:.6e}" for source, target in pairs]
    return Export(_text(["src,dst", *lines]), "which has lost digits", mends=False)


def _twice(pairs: Pairs, draw: random.Random) -> Export:
    return Export(
        _text(["src,dst,src", *(f"{row},1" for row in _rows(pairs))]), "has the column 'src' twice", mends=False
    )


def _answer(pairs: Pairs, draw: random.Random) -> Export:
    """The answer of a server in place of the file."""
    xml = b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>\n'
    return Export(xml, "looks like XML", mends=False)


KINDS: tuple[Callable[[Pairs, random.Random], Export], ...] = (
    _table, _numbered, _ends_in_separators, _members, _quoted, _padded, _names_of_r, _title, _names_again, _frame, _zeros, _encoded,
    _later_comment, _empty_rows, _exponents, _twice, _answer,
)  # fmt: skip
