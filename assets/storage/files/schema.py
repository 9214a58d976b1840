"""Checks of JSON values: what a field may hold, said once, before anything acts on it.

A seal (assets/storage/files/documents.py) tells that a document is the one that was written. It does not tell that the writer was
graphmill, or that the document says anything that makes sense. So each kind of document has a schema of these checks, which its
readers apply.
"""

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Check = Callable[[Any, str], None]
"""(value, its place in the document): raises ValueError unless the value is one that the field may hold."""
MOST = 1 << 62
"""Largest whole number: bytes, rows and blocks beyond it exist nowhere, and NumPy could not count them."""
LONGEST_NAME, LONGEST_TEXT = 1_000, 10_000_000
"""Letters of a name and of a text."""
LONGEST_SHOWN = 60
"""Letters of a value in a message."""
VERSION, STAGE = "[0-9a-f]{64}", "[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
"""The forms of a version and of the name of a stage."""
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def shown(value: Any) -> str:
    """Returns a value for a message, in ASCII and short."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    text = ascii(value[:LONGEST_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _refuse(value: Any, where: str, wanted: str) -> ValueError:
    return ValueError(f"{where} is {shown(value)}, not {wanted}")


def text(value: Any, where: str) -> None:
    """Requires a text that can be written and printed."""
    if (
        not isinstance(value, str)
        or len(value) > LONGEST_TEXT
        or any("\ud800" <= letter <= "\udfff" for letter in value)
    ):
        raise _refuse(value, where, "a text")


def name(value: Any, where: str) -> None:
    """Requires a short text without control characters, which a terminal would obey; it may be empty."""
    text(value, where)
    if len(value) > LONGEST_NAME or CONTROL.search(value):
        raise _refuse(value, where, "a name")


def matches(pattern: re.Pattern[str], what: str) -> Check:
    """Requires a text of a form."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _refuse(value, where, what)

    return check


def one_of(*values: str) -> Check:
    """Requires one of some texts."""
    return matches(re.compile("|".join(map(re.escape, values))), f"one of {', '.join(values)}")


stage = matches(re.compile(STAGE), "the name of a stage")
version = matches(re.compile(VERSION), "64 hexadecimal digits")
digest = matches(re.compile("[0-9a-f]{32}"), "32 hexadecimal digits")
address = matches(re.compile(f"{STAGE}/{VERSION}"), "STAGE/VERSION")


def path_inside(value: Any, where: str) -> None:
    """Requires the path of a file below a folder: nothing absolute, no part "", "." or "..", no part too long for a file system."""
    name(value, where)
    for part in value.split("/"):
        if part in ("", ".", "..") or len(part.encode()) > 255:
            raise _refuse(value, where, "the path of a file inside its folder")


def whole(least: int = 0, most: int = MOST) -> Check:
    """Requires a whole number within bounds, both inclusive."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or not least <= value <= most:
            raise _refuse(value, where, f"a whole number from {least} to {most}")

    return check


def number(least: float = -1e300, most: float = 1e300) -> Check:
    """Requires a number within bounds, both inclusive; NaN lies within none."""

    def check(value: Any, where: str) -> None:
        if type(value) not in (int, float) or not least <= value <= most:
            raise _refuse(value, where, f"a number from {least:g} to {most:g}")

    return check


def moment(value: Any, where: str) -> None:
    """Requires a time of ISO 8601 that exists in UTC as well."""
    name(value, where)
    try:
        datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _refuse(value, where, "a time") from None


rate = number(least=1e-12)
"""Requires a number above 0."""


def boolean(value: Any, where: str) -> None:
    """Requires true or false."""
    if type(value) is not bool:
        raise _refuse(value, where, "true or false")


def in_format(wanted: int) -> Check:
    """Requires the number of the one format that this version reads."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or value != wanted:
            raise ValueError(f"{where} is {shown(value)}, and this version of graphmill reads {wanted}")

    return check


def maybe(inner: Check) -> Check:
    """Requires null, or a value that another check lets pass."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def listed(inner: Check, length: int | None = None) -> Check:
    """Requires a list of values that another check lets pass, of a length unless that is None."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise _refuse(value, where, "a list" if length is None else f"a list of {length} values")
        for place, each in enumerate(value):
            inner(each, f"{where}[{place}]")

    return check


def mapped(inner: Check, key: Check = name) -> Check:
    """Requires a table from names, which a check lets pass, to values that another lets pass."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _refuse(value, where, "a table")
        for each, held in value.items():
            key(each, f"a name in {where}")
            inner(held, f"{where}/{each}")

    return check


def plain(value: Any, where: str) -> None:
    """Requires values as recipes and records hold them: texts, finite numbers that fit into 64 bits, and lists and tables of these."""
    if isinstance(value, dict):
        mapped(plain, text)(value, where)
    elif isinstance(value, list):
        listed(plain)(value, where)
    elif isinstance(value, str):
        text(value, where)
    elif type(value) is int:
        whole(-(1 << 63), (1 << 64) - 1)(value, where)
    elif type(value) is float:
        number()(value, where)


@dataclass(frozen=True, eq=False)
class Fields:
    """Requires a table with certain names; a name that is not listed may hold any plain value."""

    required: Mapping[str, Check] = field(default_factory=dict)
    optional: Mapping[str, Check] = field(default_factory=dict)

    @property
    def names(self) -> Set[str]:
        """The names of all fields that it lists."""
        return self.required.keys() | self.optional.keys()

    def __call__(self, value: Any, where: str) -> None:
        """Raises ValueError unless the value is such a table."""
        if not isinstance(value, dict):
            raise _refuse(value, where or "it", "a table")
        begin = f"{where}/" if where else ""
        for missing in (each for each in self.required if each not in value):
            raise ValueError(f"{begin}{missing} is missing")
        for each, held in value.items():
            name(each, f"a name in {where or 'it'}")
            check = self.required.get(each) or self.optional.get(each, plain)
            check(held, f"{begin}{each}")
