"""Finds the line of each key of a TOML text, which `tomllib` does not report.

The text has been accepted by `tomllib` before, so this scanner follows the grammar without checking it.
"""

from __future__ import annotations

import re
import tomllib

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
