"""Digests: the bytes of a file as numbers short enough to compare.

Stored files are digested in blocks of 1 MiB by xxh3 (fast, not cryptographic: it finds damage, not malice), so that a sequential reader can
check each block as it passes. A file's digest is the xxh3-128 of those words. Raw inputs enter versions by SHA-256, because they come from
outside and a version must name one content only. Hashing a large raw file takes longer than everything else a reused build does, so its
SHA-256, and those of its columns if a source reads it by column, are remembered by path, size, times of modification and change, inode, and
a sample of its bytes. Nothing is remembered of a file on a file system that may not show every change by these.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from graphmill.assets.storage.names.code_source import source_digest
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.filesystem import replace_atomically, shows_changes, sync_path
from graphmill.assets.storage.system.machine import require_plain_file
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, page_digests
from graphmill.kernels.types import Array

BLOCK_BYTES = 1 << 20
SPAN_BLOCKS = 64  # blocks a thread digests in one go
CACHE_NAME = "raw_digests.json"
SMALL_BYTES = 1 << 20  # below this, hashing is cheaper than remembering
SAMPLED = 16
"""Pages of a file that are compared before its digest is taken from the records."""
SETTLED_NS = 2_000_000_000  # a file that changed more recently may change again within one tick of its clock


def block_digests(path: Path, threads: int = 1) -> Array:
    """Returns u64[ceil(bytes / 1 MiB)]: the xxh3-64 of each 1 MiB block of a file, counted from byte 0. Reads every byte once."""
    num_blocks = -(-path.stat().st_size // BLOCK_BYTES)
    words = np.zeros(num_blocks, dtype="<u8")

    def span(first: int) -> None:
        with open(path, "rb") as file:
            file.seek(first * BLOCK_BYTES)
            buffer = memoryview(bytearray(BLOCK_BYTES))
            for block in range(first, min(first + SPAN_BLOCKS, num_blocks)):
                words[block] = xxhash.xxh3_64_intdigest(buffer[: file.readinto(buffer)])

    starts = range(0, num_blocks, SPAN_BLOCKS)
    if threads <= 1 or len(starts) <= 1:
        for first in starts:
            span(first)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(span, starts))
    return words


class RunningDigests:
    """Digests the blocks of a file whose bytes come from front to back, while they are in memory.

    Args:
        position: byte of the file that comes first. A block that it lies inside has no digest.
    """

    def __init__(self, position: int):
        self.position = position
        self._block: xxhash.xxh3_64 | None = None  # of the block that was begun, if its first byte came

    def update(self, data: Array) -> Iterator[tuple[int, int]]:
        """Takes the next bytes u8[n], and yields number and digest of each block that they fill."""
        taken = 0
        while taken < len(data):
            number, inside = divmod(self.position, BLOCK_BYTES)
            piece = data[taken : taken + BLOCK_BYTES - inside]
            if inside == 0:
                self._block = xxhash.xxh3_64()
            if self._block is not None:
                self._block.update(piece.data)
            self.position, taken = self.position + len(piece), taken + len(piece)
            if self.position % BLOCK_BYTES == 0:
                yield from self._ended(number)

    def rest(self) -> Iterator[tuple[int, int]]:
        """Yields number and digest of the block that the file ends in, unless it was filled."""
        if self.position % BLOCK_BYTES:
            yield from self._ended(self.position // BLOCK_BYTES)

    def _ended(self, number: int) -> Iterator[tuple[int, int]]:
        if self._block is not None:
            yield number, self._block.intdigest()


def page_digests_of(path: Path, offset: int) -> Array:
    """Returns u64[pages], the `page_digests` of a file from a byte on, as if zeros followed it. Reads every byte once.

    Args:
        offset: a multiple of 4,096, the first byte.
    """
    num_pages = -(-max(0, path.stat().st_size - offset) // PAGE_BYTES)
    words, pages_at_once = np.empty(num_pages, np.uint64), BLOCK_BYTES // PAGE_BYTES
    buffer = np.empty(BLOCK_BYTES, np.uint8)
    with open(path, "rb") as file:  # buffered, so that a read fills the buffer
        file.seek(offset)
        for first in range(0, num_pages, pages_at_once):
            buffer[file.readinto(buffer.data) :] = 0
            last = min(num_pages, first + pages_at_once)
            words[first:last] = page_digests(buffer[: (last - first) * PAGE_BYTES])
    return words


def words_digest(words: Array) -> str:
    """Returns a file's digest, 32 hex digits: the xxh3-128 of its block digests u64[num_blocks] as little-endian bytes."""
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(words, dtype="<u8").tobytes())


def sha256_file(path: str | os.PathLike[str], home: Path | None = None) -> str:
    """Returns the SHA-256 of a raw file, 64 hex digits; from the home's records if the file did not change since.

    Raises:
        InputError: the file is missing, cannot be read, or changes while it is read.
    """
    found = remembered_digests(path, [""], lambda file, _: {"": hashlib.file_digest(file, "sha256").hexdigest()}, home)
    return found[""]


def code_digests(references: Mapping[str, str]) -> Mapping[str, str]:
    """Returns role -> SHA-256 of the source (`source_digest`), for those of the texts that are references to a user's own code.

    Raises:
        InputError: a module does not exist.
    """
    return {role: source_digest(text) for role, text in references.items() if is_reference(text)}


def remembered_digests(
    path: str | os.PathLike[str],
    names: Sequence[str],
    digest: Callable[[BufferedReader, Sequence[str]], Mapping[str, str]],
    home: Path | None = None,
) -> dict[str, str]:
    """Returns name -> digest of some pieces of a raw file; from the home's records if the file did not change since.

    Args:
        digest: function that gets the open file and the names that are not on record, and returns their digests.
        home: home folder that keeps the records, None for the default one. Records that cannot be read or written are done without.

    Raises:
        InputError: the file is missing, cannot be read, or changes while it is read.
    """
    path = Path(path).absolute()
    require_plain_file(path, "give a file")
    try:
        before, status = identity_of(path), path.stat()
        cache_path = home_folder(home) / CACHE_NAME
        keys = {name: f"{path}#{name}" if name else str(path) for name in names}
        kept = status.st_size >= SMALL_BYTES and shows_changes(path, status)
        cache = _read_cache(cache_path) if kept else {}
        found = {name: sha256 for name, key in keys.items() if (sha256 := _recorded(cache.get(key), key, before))}
        missing = [name for name in names if name not in found]
        if not missing:
            return found
        if kept:
            with contextlib.suppress(OSError):
                sync_path(path)  # a later write through a mapping of the file then changes its times again
        with open(path, "rb") as file:
            new = digest(file, missing)
        after = identity_of(path)
    except FileNotFoundError as error:
        raise InputError(f"the file {path} does not exist", "correct the path, or fetch the file first") from error
    except OSError as error:
        problem = f"the file {path} cannot be read: {error.strerror}"
        raise InputError(problem, "correct the path or its permissions") from error
    if before != after:
        raise InputError(f"the file {path} changed while it was read", "wait until it is complete, then run again")
    if kept and time.time_ns() - max(before[1:3]) > SETTLED_NS:
        _remember(cache_path, {keys[name]: _entry(keys[name], before, new[name]) for name in missing})
    return {**found, **new}


def file_state(path: Path) -> tuple[int, ...]:
    """Returns numbers by which this process may remember what it found in a file; others each time if changes do not show in its status."""
    status = path.stat()
    return (*identity_of(path), 0 if shows_changes(path, status) else time.monotonic_ns())


def identity_of(path: Path) -> list[int]:
    """Returns numbers that another content of the file would not have: its size, both of its times, its inode, and a digest of a sample.

    The modification time alone can be set: archives with normalised times give two versions of a file the same size and time, and the
    second often gets the inode of the first. The change time cannot be set, but some file systems do not keep it (`shows_changes`).
    """
    status = path.stat()
    sample = _sample(path, status.st_size) if status.st_size >= SMALL_BYTES else 0
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, sample]


def _sample(path: Path, num_bytes: int) -> int:
    """Returns a digest of `SAMPLED` pages, from the first to the last, at equal distances."""
    found, last = xxhash.xxh3_64(), max(0, num_bytes - PAGE_BYTES)
    with open(path, "rb", buffering=0) as file:
        for place in range(SAMPLED):
            file.seek(place * last // (SAMPLED - 1))
            found.update(file.read(PAGE_BYTES))
    return found.intdigest()


def _recorded(entry: Any, key: str, identity: list[int]) -> str:
    """Returns the digest of an entry of the records, "" if it is not sound or of another content."""
    sha256 = entry.get("sha256") if isinstance(entry, dict) else None
    if not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        return ""
    return sha256 if entry == _entry(key, identity, sha256) else ""


def _entry(key: str, identity: list[int], sha256: str) -> dict[str, Any]:
    """Returns the record of a digest. With a flipped bit in it, content would go by another version, so it has a digest of its own."""
    check = xxhash.xxh3_64_hexdigest(json.dumps([key, identity, sha256]).encode())
    return {"identity": identity, "sha256": sha256, "check": check}


def _read_cache(path: Path) -> dict:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _remember(cache_path: Path, found: Mapping[str, Any]) -> None:
    # Two writers may lose one another's entry; a lost entry costs one more hashing, nothing else. So may a failed
    # write.
    with contextlib.suppress(OSError, InputError):
        entries = _read_cache(cache_path) | dict(found)
        replace_atomically(cache_path, json.dumps(entries, indent=1, sort_keys=True).encode())
