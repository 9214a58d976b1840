"""The text of a pipeline file: its encoding, whether it is TOML, in words that say what is wrong with a line, and the line of each key.

`tomllib` does not report lines. It has accepted the text before they are looked for, so the scanner follows the grammar unchecked.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmill.assets.storage.files.encodings import as_utf8, wide_encoding
from graphmill.kernels.errors import UNPRINTABLE, InputError

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top: ("train", 0, "lr") is `lr` of the first `[[train]]` table."""

BLANK = re.compile(r"(?:\s|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
KEY_PART = re.compile(r'"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'" + r"|[A-Za-z0-9_-]+")
SCALAR = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d[^,\]}\s#]*|[^,\]}\s#]+",
    re.DOTALL,
)
LONG_NUMBER = re.compile(rb"^[^\"'#]*[=\[,{\s][+-]?\d[\d_]{1000}")
"""A line with a decimal number of thousands of digits, outside of quotes."""
MOST_BITS = 10_000
"""Most bits of a whole number that any message could quote: Python does not write numbers of more than 4,300 digits."""
QUOTE, NOTHING = "write a straight quote, \" or '", "write a plain blank, or leave it out"
LOOK_ALIKE = {
    **{letter: (f"the quote {letter}", QUOTE) for letter in "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb"},
    "\u00a0": ("a blank that does not break", NOTHING),
    "\u200b": ("a blank of no width", NOTHING),
    "\ufeff": ("a byte-order mark", NOTHING),
}
"""Letter that TOML does not take outside of quotes -> (what it is, what to write)."""


def toml_value(value: Any) -> str:
    """Returns a number, text or path as TOML writes it; letters that no eye sees are spelled out."""
    if not isinstance(value, str | Path):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False).translate(UNPRINTABLE)


def toml_text(path: Path, data: bytes) -> str:
    """Returns the text of a pipeline file, without a mark of UTF-8.

    Raises:
        InputError: it is not UTF-8, is not valid TOML, or has a number that Python cannot write; with the line.
    """
    text = _decoded(path, data)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, error) from error
    except RecursionError as error:
        problem = f"{path}: arrays or tables are nested too deeply"
        raise InputError(problem, "no key takes more than two levels") from error
    except ValueError as error:  # Python does not read decimal numbers of so many digits
        lines = enumerate(text.encode().splitlines(), 1)
        raise _long_number(path, next((n for n, each in lines if LONG_NUMBER.search(each)), 1)) from error
    if place := next(_long_numbers(found, ()), None):  # which it reads in hexadecimal and other notations
        raise _long_number(path, line_of(key_lines(text), place))
    return text


def is_long_number(value: Any) -> bool:
    """Tells whether a value is, or has in it, a whole number of thousands of digits."""
    return next(_long_numbers(value, ()), None) is not None


def _long_number(path: Path, line: int) -> InputError:
    return InputError(f"{path}:{line}: a number has thousands of digits", "write one below 2^63")


def _long_numbers(value: Any, place: KeyPath) -> Iterator[KeyPath]:
    """Yields the places of whole numbers of thousands of digits in a value that TOML was read as."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        yield place
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield from _long_numbers(each, (*place, key))


def _decoded(path: Path, data: bytes) -> str:
    if encoding := wide_encoding(data[:8]):
        raise InputError(f"{path}: the text is not UTF-8, but {encoding}", as_utf8(str(path), encoding, "NEW.toml"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: the text is not UTF-8", as_utf8(str(path), new="NEW.toml")) from error


def _syntax_error(path: Path, text: str, error: tomllib.TOMLDecodeError) -> InputError:
    """Returns the error of a text that is not TOML; letters that look like others, and ends of lines, are named."""
    match = re.search(r"at line (\d+)", str(error))
    lines = text.split("\n")
    number = int(match[1]) if match else len(text.splitlines())
    line, file = lines[number - 1] if 0 < number <= len(lines) else "", shlex.quote(str(path))
    where = f"{path}:{number}"
    if "\r" in line.removesuffix("\r"):
        how = f"give them the end \\n: tr '\\r' '\\n' < {file} > NEW.toml"
        return InputError(f"{where}: lines end in \\r alone, which TOML does not take", how)
    if "\0" in line:
        how = f"leave them out: tr -d '\\000' < {file} > NEW.toml"
        return InputError(f"{where}: the line has zero bytes", how)
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", line)
    if letter := next((letter for letter in bare if letter in LOOK_ALIKE), ""):
        what, instead = LOOK_ALIKE[letter]
        return InputError(f"{where}: the line has {what} (U+{ord(letter):04X})", instead)
    return InputError(f"{where}: not valid TOML: {error}", "correct the line; toml.io explains the language")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Returns the 1-based line of every table, key and list element of a valid TOML text."""
    return _Scanner(text).scan()


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """Returns the line of a key, or of the nearest table around it when the key itself is absent; 1 at the top."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    def __init__(self, text: str):
        self.text, self.pos = text, 0
        self.lines: dict[KeyPath, int] = {}
        self.num_tables: dict[KeyPath, int] = {}  # number of elements so far of each array of tables

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self.skip(BLANK)
        while self.pos < len(self.text):
            table = self.header() if self.text[self.pos] == "[" else self.pair(table)
            self.skip(BLANK)
        return self.lines

    def header(self) -> KeyPath:
        repeated = self.text.startswith("[[", self.pos)
        line = self.line()
        self.pos += 1 + repeated
        parts = self.key()
        self.pos += 1 + repeated
        path: KeyPath = ()
        for depth, part in enumerate(parts, 1):
            path = (*path, part)
            self.lines.setdefault(path, line)
            if repeated and depth == len(parts):
                self.num_tables[path] = self.num_tables.get(path, 0) + 1
            if path in self.num_tables:
                path = (*path, self.num_tables[path] - 1)
                self.lines.setdefault(path, line)
        return path

    def pair(self, table: KeyPath) -> KeyPath:
        """Scans `key = value` below `table`, which it returns."""
        line, path = self.line(), table
        for part in self.key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.pos += 1  # the equals sign
        self.skip(SPACE)
        self.value(path)
        return table

    def value(self, path: KeyPath) -> None:
        if self.text[self.pos] == "[":
            self.elements(path, "]")
        elif self.text[self.pos] == "{":
            self.elements(path, "}")
        else:
            self.skip(SCALAR)

    def elements(self, path: KeyPath, end: str) -> None:
        """Scans an array or an inline table."""
        self.pos += 1
        self.skip(BLANK)
        count = 0
        while self.text[self.pos] != end:
            if end == "}":
                self.pair(path)
            else:
                self.lines[(*path, count)] = self.line()
                self.value((*path, count))
            count += 1
            self.skip(BLANK)
            if self.text[self.pos] == ",":
                self.pos += 1
                self.skip(BLANK)
        self.pos += 1

    def key(self) -> list[str]:
        """Scans a dotted key up to the character after it."""
        parts = []
        while True:
            self.skip(SPACE)
            part = self.skip(KEY_PART)
            parts.append(tomllib.loads(f"part = {part}")["part"] if part[0] in "\"'" else part)
            self.skip(SPACE)
            if self.text[self.pos] != ".":
                return parts
            self.pos += 1

    def line(self) -> int:
        return self.text.count("\n", 0, self.pos) + 1

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.pos)
        assert match is not None, f"line {self.line()} is no TOML"
        self.pos = match.end()
        return match[0]
