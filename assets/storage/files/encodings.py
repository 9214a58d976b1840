"""The encoding of a text that is not UTF-8, and the command that makes UTF-8 of it.

Spreadsheets, editors and shells of Windows write UTF-8 with a mark in front, UTF-16, or the letters of a country. A mark of UTF-8 is left
out; any other encoding is told by its first bytes.
"""

import codecs
import re
from shlex import quote

MARKS = {
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Mark at the beginning of a text -> encoding."""

UNMARKED = {
    rb"[^\0]\0\0\0[^\0]\0\0\0": "UTF-32LE",
    rb"\0\0\0[^\0]\0\0\0[^\0]": "UTF-32BE",
    rb"[^\0]\0[^\0]\0": "UTF-16LE",
    rb"\0[^\0]\0[^\0]": "UTF-16BE",
}
"""Pattern of the first bytes of a text without a mark -> encoding."""

UNPACKERS = {".gz": "gzip -dc", ".zst": "zstd -dc", ".zstd": "zstd -dc", ".bz2": "bzip2 -dc", ".xz": "xz -dc"}
"""Ending of a packed file -> the command that unpacks it."""


def wide_encoding(start: bytes) -> str:
    """Returns the encoding of a text of two or four bytes a letter, by its first bytes; "" for any other."""
    found = next((name for mark, name in MARKS.items() if start.startswith(mark)), "")
    if found == "UTF-8":
        return ""
    return found or next((name for pattern, name in UNMARKED.items() if re.match(pattern, start)), "")


def as_utf8(path: str, encoding: str = "", new: str = "NEW.csv") -> str:
    """Returns the remedy for a text file of another encoding.

    Args:
        encoding: its encoding, "" if it is not known.
        new: the file that the command writes.
    """
    convert = f"iconv -f {encoding or 'LATIN1'} -t UTF-8"
    other = "" if encoding else ", or with the name of its encoding in place of LATIN1"
    return f"save the file as UTF-8, for example: {through(path, convert)} > {new}{other}"


def through(path: str, command: str) -> str:
    """Returns the command that sends the text of a file, which may be packed, through another command."""
    packed = next((tool for ending, tool in UNPACKERS.items() if path.endswith(ending)), "")
    return f"{packed} {quote(path)} | {command}" if packed else f"{command} < {quote(path)}"
