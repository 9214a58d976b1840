"""How a file of text is packed, and lines of it.

The first bytes decide, whatever the name says: browsers unpack files and keep their names. DuckDB unpacks gzip and zstd itself. bzip2, xz,
gzip with zeros behind its end and text whose lines end in two ways are written into scratch space first. A gzip file is compared with its
CRC-32 before DuckDB reads it.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from graphmill.assets.sources.readers.duck import FIX_FILE, Duck, damaged_gzip, path_literal
from graphmill.assets.storage.files.digests import file_state
from graphmill.assets.storage.files.encodings import as_utf8, wide_encoding
from graphmill.assets.storage.system.filesystem import full_disk, full_errno
from graphmill.assets.storage.system.machine import require_plain_file
from graphmill.kernels.errors import InputError

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
PACKED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
"""Endings of the names of packed files."""
PIECE_BYTES = 1 << 20
PADDING = 9
LONGEST_LINE = 16 << 20
"""Bytes that a line of text may have. DuckDB's buffers have to hold one."""

LINES = (
    "columns={'line': 'VARCHAR'}, auto_detect=false, header=false, strict_mode=true, null_padding=false, delim='\x01', quote='', "
    f"escape='', max_line_size={LONGEST_LINE}, hive_partitioning=false"
)
"""Options of DuckDB's reader that take a line as it is."""


def first_bytes(path: Path) -> bytes:
    """Returns the first 16 bytes of a file; raises InputError if it cannot be read, or is a pipe or device."""
    require_plain_file(path, "give a file")
    try:
        with open(path, "rb") as file:
            return file.read(16)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "give a readable file") from error


def packing(path: Path) -> str:
    """Returns "none", "gzip", "zstd", "bzip2" or "xz"."""
    start = first_bytes(path)
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), "none")


def text_lines(duck: Duck, path: Path, most: int = 1000) -> Iterator[str]:
    """Yields the lines of a text file, with their ends; of a zstd file at most `most`, which end in a newline each.

    Raises:
        InputError: the file cannot be unpacked, or is not UTF-8.
    """
    if packing(path) == "zstd":
        require_whole_zstd(path)
        sql = f"SELECT line FROM read_csv({path_literal(path)}, {LINES}, compression='zstd') LIMIT {most}"
        yield from ((line or "") + "\n" for (line,) in duck.rows(sql, str(path)))
        return
    with reading(path) as packed:
        start = packed.read(8)
        if encoding := wide_encoding(start):
            raise InputError(f"{path}: the text is not UTF-8, but {encoding}", as_utf8(str(path), encoding))
        packed.seek(0)
        with io.TextIOWrapper(packed, encoding="utf-8-sig", newline="") as file:
            yield from file


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that Python can unpack; any error of its bytes becomes one InputError."""
    openers: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open, "none": open}
    kind = packing(path)
    try:
        with openers[kind](path, "rb") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: the text is not UTF-8", as_utf8(str(path))) from error
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if full_errno(error) is not None:
            raise
        if kind == "gzip":
            raise damaged_gzip(str(path)) from error
        what = "cannot be read" if kind == "none" else f"the {kind} file is damaged or cut short"
        raise InputError(f"{path}: {what}: {error}", f"copy it again, or {FIX_FILE}") from error


def for_duck(duck: Duck, path: Path) -> tuple[Path, str]:
    """Returns (file that DuckDB can read, its compression): the file itself, or a copy in scratch space.

    The copy takes as much disk as the unpacked text. It has one kind of line end.

    Raises:
        InputError: the file is damaged, or the disk is full.
    """
    kind = packing(path)
    if kind == "zstd":
        require_whole_zstd(path)
    state = file_state(path)
    as_it_is = {"zstd": True, "gzip": not _padded(path, path.stat().st_size)}
    if kind == "none":
        as_it_is[kind] = not _mixed_ends(path, state)
    if as_it_is.get(kind):
        if kind == "gzip":
            _require_whole_gzip(path, state)
        return path, kind
    copy = duck.scratch / f"unpacked-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if not copy.exists():
        unfinished = copy.with_suffix(".unfinished")
        try:
            _unpack(path, unfinished)
            unfinished.rename(copy)
        except OSError as error:
            if (code := full_errno(error)) is not None:
                raise full_disk(code, duck.scratch) from error
            raise
        finally:
            unfinished.unlink(missing_ok=True)
    return copy, "none"


def _unpack(path: Path, copy: Path) -> None:
    with reading(path) as file, open(copy, "xb") as out:
        kept = b""
        while piece := file.read(PIECE_BYTES):
            piece = kept + piece
            kept = b"\r" if piece.endswith(b"\r") else b""  # its \n may come with the next piece
            out.write(piece.removesuffix(kept).replace(b"\r\n", b"\n"))
        out.write(kept)


@lru_cache(maxsize=4096)
def _mixed_ends(path: Path, _state: tuple[int, ...]) -> bool:
    """Tells whether some lines end in \\r\\n and others in \\n; quoted fields count, too."""
    newlines, pairs, last = 0, 0, b""
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            newlines += piece.count(b"\n")
            pairs += piece.count(b"\r\n") + (last == b"\r" and piece.startswith(b"\n"))
            if 0 < pairs < newlines:
                return True
            last = piece[-1:]
    return False


@lru_cache(maxsize=4096)
def _require_whole_gzip(path: Path, _state: tuple[int, ...]) -> None:
    """Unpacks a gzip file once and compares it with its CRC-32, which DuckDB does not: a flipped bit would be other text."""
    with reading(path) as file:
        while file.read(PIECE_BYTES):
            pass


def require_whole_zstd(path: Path) -> bool:
    """Walks over the frames and blocks of a zstd file; DuckDB takes the end of a file that was cut short for the end of the text.

    Returns:
        Whether each frame has a checksum. Without one, damage inside a block may be read as other text.

    Source: RFC 8878, "Zstandard Compression and the application/zstd Media Type", section 3.1.

    Raises:
        InputError: the file does not end where its last frame ends.
    """
    size, checked = path.stat().st_size, True
    with open(path, "rb") as file:
        while (place := file.tell()) < size:
            found = _pass_frame(file, size)
            checked &= bool(found)
            if found is None:
                problem = f"the file, which zstd compressed, is damaged or cut short (frame at byte {place})"
                raise InputError(f"{path}: {problem}", "copy it again")
    return checked


def unchecked_words(paths: Sequence[Path]) -> list[str]:
    """Returns a phrase about the checksums that zstd files lack; none without such files."""
    found = [path.name for path in paths if packing(path) == "zstd" and not require_whole_zstd(path)]
    if not found:
        return []
    which = f"{found[0]} has none" if len(found) == 1 else f"{len(found):,} files, {found[0]} among them, have none"
    return [f"checksums ({which}: damage may be read as other text; compress the text anew by zstd --check)"]


def _pass_frame(file: IO[bytes], size: int) -> bool | None:
    """Moves a file to the end of a frame; tells whether the frame has a checksum, None if it is not whole."""
    magic = int.from_bytes(file.read(4), "little")
    if magic & 0xFFFFFFF0 == 0x184D2A50:  # a frame that readers skip
        file.seek(int.from_bytes(file.read(4), "little"), 1)
        return True if file.tell() <= size else None
    descriptor = file.read(1)
    if magic != 0xFD2FB528 or not descriptor:
        return None
    flags, single, dictionary = descriptor[0] >> 6, descriptor[0] >> 5 & 1, descriptor[0] & 3
    content = (1 if single else 0, 2, 4, 8)[flags]
    file.seek((not single) + (0, 1, 2, 4)[dictionary] + content, 1)
    last = False
    while not last:
        header = file.read(3)
        if len(header) < 3:
            return None
        word = int.from_bytes(header, "little")
        last, kind, length = bool(word & 1), word >> 1 & 3, word >> 3
        file.seek(1 if kind == 1 else length, 1)
    checked = bool(descriptor[0] >> 2 & 1)
    file.seek(4 * checked, 1)
    return checked if file.tell() <= size else None


def _padded(path: Path, size: int) -> bool:
    """Tells whether zeros follow a gzip file, as tapes and some downloads add them; the end of a sound one has at most eight."""
    with open(path, "rb") as file:
        file.seek(max(0, size - PADDING))
        return file.read() == bytes(PADDING)
