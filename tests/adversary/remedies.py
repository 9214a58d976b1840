"""Follows the remedies of a refused pipeline file, as a user would who takes them word for word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import tomlkit

from graphmill.kernels.errors import InputError, each_mistake

LINE = re.compile(r"\.toml:(\d+): (.*)")
SETS = re.compile(
    r'(?:set|write|add|with|or) (?:\[(\w+)\] )?`?(\w+)`? = ("[^"]*"|\'[^\']*\'|-?[\d.]+|true|false|\[[^\]]*\])'
    r"(?:[^:;,]*? in \[{1,2}([\w.-]+)\]{1,2})?"
)
NEAR = re.compile(r"\(did you mean '?([\w:.-]+)'?\?\)")
CALLED = re.compile(r"it is called (\w+)")
WRITTEN = re.compile(r"\(write (-?\d+)\)")
HEADER = re.compile(r"\[\[?([\w.-]+)\]\]?")


@dataclass(frozen=True)
class Step:
    """A remedy that was applied.

    Attributes:
        said: the mistake.
        text: the file afterwards.
        key, value: the key that it set, "" for one that was removed, and its value as TOML.
    """

    said: str
    text: str
    key: str = ""
    value: str = ""


def mistakes_of(error: InputError) -> list[tuple[int, str]]:
    """Returns (line, sentence) of each mistake of a file."""
    return [(int(number), said) for number, said in LINE.findall(error.problem)]


def follow(text: str, error: InputError) -> Step | None:
    """Returns the first remedy that can be applied, None if all need a thought."""
    for number, said in mistakes_of(error):
        if found := _applied(text.split("\n"), number - 1, said):
            return found
    return None


def follow_said(text: str, error: InputError) -> Step | None:
    """Returns the first remedy of an error without lines that can be applied; a key that it names without a table is one of [[train]]."""
    for each in each_mistake(error):
        if found := SETS.search(each.remedy):
            value = found[3].replace("'", '"')
            after = _set(text, found[1] or found[4] or "train", found[2], value)
            if after is not None:
                return Step(each.problem, after, found[2], value)
    return None


def _applied(lines: list[str], at: int, said: str) -> Step | None:
    line = lines[at] if at < len(lines) else ""
    key = line.partition("=")[0].strip() if "=" in line else ""
    remedy = said.rpartition(": ")[2] if ": " in said else said
    if key and (found := NEAR.search(said)):
        renamed = f"no key {key}" in said
        new = f"{found[1]} = {line.partition('=')[2].strip()}" if renamed else f'{key} = "{found[1]}"'
        return Step(said, _with(lines, at, new), *_pair(new))
    if key and (found := CALLED.search(said)):
        new = f"{found[1]} = {line.partition('=')[2].strip()}"
        return Step(said, _with(lines, at, new), *_pair(new))
    if key and remedy.startswith("remove the key"):
        return Step(said, _with(lines, at, None))
    if key and (found := WRITTEN.search(said)):
        return Step(said, _with(lines, at, f"{key} = {found[1]}"), key, found[1])
    if found := SETS.search(remedy):
        table = found[1] or found[4]
        text = _set("\n".join(lines), table or _table_at(lines, at), found[2], found[3].replace("'", '"'))
        return None if text is None else Step(said, text, found[2], found[3].replace("'", '"'))
    if key and re.search(r"remove (the key|it)\b|leave it out", remedy):
        return Step(said, _with(lines, at, None))
    return None


def _with(lines: list[str], at: int, line: str | None) -> str:
    return "\n".join([*lines[:at], *([] if line is None else [line]), *lines[at + 1 :]])


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition("=")
    return key.strip(), value.strip()


def _table_at(lines: list[str], at: int) -> str:
    """Returns the name of the table that a line is in, "" for the file itself."""
    for line in reversed(lines[: at + 1]):
        if found := HEADER.match(line):
            return found[1]
    return ""


def _set(text: str, table: str, key: str, value: str) -> str | None:
    """Returns the text with a key set in a table; None if the file has no such table."""
    document: Any = tomlkit.parse(text)
    place = document
    for name in table.split(".") if table else ():
        place = place.get(name)
        place = place[0] if isinstance(place, list) and place else place
        if place is None:
            return None
    place[key] = tomlkit.value(value)
    return tomlkit.dumps(document)
