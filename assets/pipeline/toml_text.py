"""The text of a pipeline file: UTF-8 that Python reads as TOML, or a message about what is not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.toml_lines import KeyPath, key_lines, line_of
from graphmill.kernels.errors import InputError

MARK = b"\xef\xbb\xbf"
"""The byte-order mark of UTF-8, which editors of Windows write and show nowhere."""
LONG_NUMBER = re.compile(rb"^[^\"'#]*[=\[,{\s][+-]?\d[\d_]{1000}")
"""A line with a decimal number of thousands of digits, outside of quotes."""
MOST_BITS = 10_000
"""Most bits of a whole number that any message could quote: Python does not write numbers of more than 4,300 digits."""
TYPED = {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'"}
TYPED |= {"\u00a0": "a blank", "\u2013": "-", "\u2212": "-"}
"""Characters that word processors and web pages write in place of others."""
UNSEEN = {
    "\ufeff": "byte-order mark",
    "\u200b": "blank without width",
    "\u00ad": "soft hyphen",
    "\x1a": "end mark of DOS",
}
"""Characters that no editor shows."""


def toml_text(path: Path, data: bytes) -> str:
    """Returns the text of a pipeline file, without a byte-order mark before it.

    Args:
        path: path of the file, for messages.
        data: its content.

    Raises:
        InputError: it is not UTF-8, not TOML, or has a number that Python cannot write.
    """
    text = _decoded(path, data.removeprefix(MARK))
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = _syntax_line(error, text)
        problem, remedy = f"{path}:{line}: not valid TOML: {error}", "correct the line; toml.io explains the language"
        if odd := _odd_character(text, line):
            problem, remedy = f"{problem}; the line has {odd[0]}", odd[1]
        raise InputError(problem, remedy) from error
    except RecursionError as error:
        raise InputError(
            f"{path}: arrays or tables are nested too deeply", "no key takes more than two levels"
        ) from error
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
    """Returns the text of UTF-8; refuses any other encoding by its name, if it shows."""
    if encoding := _wide_encoding(data):
        raise InputError(
            f"{path} is a text in {encoding}, and TOML is UTF-8",
            f"save it as UTF-8, or convert it: {_convert(encoding)}",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, letter = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise InputError(
            f"{path}:{line}: the byte 0x{letter:02x} is not UTF-8, which TOML is",
            f"save the file as UTF-8; one of Windows is converted by: {_convert('WINDOWS-1252')}",
        ) from error


def _convert(encoding: str) -> str:
    return f"iconv -f {encoding} -t UTF-8 FILE > NEW_FILE"


def _wide_encoding(data: bytes) -> str:
    """Returns the name of an encoding with several bytes for each letter, "" if the content is of none."""
    for mark, name in (
        (b"\xff\xfe\0\0", "UTF-32"),
        (b"\0\0\xfe\xff", "UTF-32"),
        (b"\xff\xfe", "UTF-16"),
        (b"\xfe\xff", "UTF-16"),
    ):
        if data.startswith(mark):
            return name
    # Without a mark: letters of keys are below 256, so that every second byte is 0.
    head = data[: 1 << 12]
    even, odd = head[::2], head[1::2]
    for first, second, name in ((even, odd, "UTF-16LE"), (odd, even, "UTF-16BE")):
        if len(head) > 1 and second.count(0) > 0.8 * len(second) and not first.count(0):
            return name
    return ""


def _odd_character(text: str, line: int) -> tuple[str, str] | None:
    """Returns (what a line has that its writer did not see or mean, what to do about it), None if there is nothing of that kind."""
    lines = text.split("\n")
    if "\r" in text and "\n" not in text:
        return "line ends of old Macintosh systems, which TOML does not know", "save the file with line ends of Unix"
    for letter in lines[line - 1] if line <= len(lines) else "":
        code = f"U+{ord(letter):04X}"
        if letter in TYPED:
            return f"the character {letter} ({code})", f"write {TYPED[letter]} in its place"
        if letter in UNSEEN:
            return f"a {UNSEEN[letter]} ({code}), which editors do not show", "remove it, or type the line anew"
    return None


def _syntax_line(error: Exception, text: str) -> int:
    match = re.search(r"at line (\d+)", str(error))
    return int(match[1]) if match else text.rstrip("\n").count("\n") + 1
