"""What a program of graphmill writes to standard output and standard error: its own text, with the control characters of data spelled out.

Names of classes, columns, types and files come from people's data. One with an escape sequence would clear the screen, set a title or the
clipboard; one with a carriage return or a change of the direction of writing would show another text. So the streams themselves spell such
characters out, whatever code writes to them. A letter that the terminal's encoding lacks is spelled out, too, and is not an error.

Warnings of libraries are for their developers and are not printed, unless Python is told to (`-W`, PYTHONWARNINGS).
"""

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from graphmill.kernels.errors import UNPRINTABLE
from graphmill.kernels.warn_once import MachineWarning


class EscapedStream:
    """A text stream that spells control characters out, but line ends and tabs; `unescaped` is the same stream for bars."""

    def __init__(self, stream: TextIO):
        self.unescaped = stream
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # a stream whose file was replaced by a pipe; it keeps its errors
                stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Writes a text; returns the number of its characters."""
        self.unescaped.write(text.translate(UNPRINTABLE))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Writes several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def escaped(stream: TextIO) -> TextIO:
    """Returns a stream whose control characters are spelled out."""
    return stream if isinstance(stream, EscapedStream) else cast(TextIO, EscapedStream(stream))


def unescaped(stream: TextIO) -> TextIO:
    """Returns the stream below an escaped one, or the stream itself."""
    return stream.unescaped if isinstance(stream, EscapedStream) else stream


def begin_to_print() -> None:
    """Escapes the standard streams of this process, and keeps the warnings of libraries out of them."""
    sys.stdout, sys.stderr = escaped(sys.stdout), escaped(sys.stderr)
    if not sys.warnoptions:
        warnings.showwarning = _show_own


def _show_own(message: Warning | str, category: type[Warning], *about: Any, **more: Any) -> None:
    if issubclass(category, MachineWarning):
        print(f"graphmill: {message}", file=sys.stderr)


@contextmanager
def copy_of(stream: TextIO) -> Iterator[TextIO]:
    """Yields a stream to the present target of `stream`, even if its descriptor is redirected later."""
    stream.flush()
    descriptor = descriptor_of(stream)
    if descriptor is None:  # use it as it is
        yield stream
        return
    with open(os.dup(descriptor), "w", encoding=stream.encoding or "utf-8") as copy:
        yield escaped(copy)


def descriptor_of(stream: TextIO) -> int | None:
    """Returns the file descriptor of a stream; None for one of a notebook, in memory or with that of the terminal that began it."""
    if type(stream).__module__.startswith("ipykernel"):  # what is written to descriptor 2 comes into the cell
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None
