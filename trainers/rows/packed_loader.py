"""Reads the rows of stored batches: a packed chunk in one sequential read, and page ranges of its segment's cache (DiskGNN, section 5.3).

A packed chunk is read into a page-aligned buffer of a pool and compared with its digest; its slots give the place of each input. Rows of
the segment's cache follow its packed rows in the same buffer, so that all rows of a batch that come from disk are one tier: `STAGED`. Every
page of the cache is compared with its digest before a row is taken from it.

A pruned batch needs a part of its packed chunk. Then only the pages that contain addresses and rows of surviving inputs are read, as
ranges, and each page is compared with its own digest. A packed chunk that is read whole has one digest over those of its pages. The rows of
such a batch may come in windows, so that it is never in memory twice. A window is a part of the file: by the order of the inputs, each
window would read pages all over it (four windows of 16 MiB took 96 ms instead of 31; docs/log.md).

A loader has few bytes in flight, two pieces of a packed chunk: one is digested while the other is read. With whole packed chunks in flight
the disk was slower, and so was the digest of memory that had left the processor's cache (docs/log.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.assets.packed_chunks.read import ChunkPlace, Extent, PackedChunks, damaged, staging_capacity
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import AlignedBuffer, BufferPool
from graphmill.kernels.rows.direct_io import DirectFile, Moved, PageReader, ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES, chunk_digest, padded_bytes
from graphmill.kernels.rows.slots import STAGED, make_slots, split_slots
from graphmill.kernels.types import Array
from graphmill.trainers.record.ledger import Ledger, Line

FEATURES, ADDRESSES = Line("disk", "feature"), Line("disk", "ids")
NUM_LOADERS, MOST_WAITING, NUM_QUEUES = 6, 2, 3
"""Threads that load rows of a training; batches in a queue (DiskGNN, section 6); and queues of graphs, staged rows and inputs."""
WINDOW_BYTES = 1 << 20
"""Bytes that a loader has in flight."""


def loader_reading(window_bytes: int = WINDOW_BYTES, **options: Any) -> ReadExecution:
    """Returns a loader's way of reading: two pieces of a packed chunk in flight, or as many runs of a cache as fit.

    Args:
        window_bytes: most bytes in flight, two pages or more.
        options: method, fallback and depth of `ReadExecution`.

    Raises:
        InputError: a value is out of its range.
    """
    return ReadExecution(window_bytes=window_bytes, piece_bytes=window_bytes // 2 // PAGE_BYTES * PAGE_BYTES, **options)


@dataclass(kw_only=True)
class Staged:
    """Rows of one batch on their way to the device.

    Attributes:
        slots: i32[n], the place of each input's row; the staged tier is `rows`. For a pruned batch, of the surviving inputs alone.
        rows: dtype[r, F], packed rows first, then cached ones.
    """

    slots: Array
    rows: Array
    ledger: Ledger
    buffer: AlignedBuffer

    def release(self) -> None:
        """Returns the memory to the pool; slots and rows are invalid afterwards."""
        self.buffer.release()


class PackedLoader:
    """Reads the rows of batches from a feature table of this width, type and bytes of a row; belongs to one thread."""

    def __init__(
        self, chunks: PackedChunks, width: int, dtype: str, row_bytes: int, pool: BufferPool, execution: ReadExecution
    ):
        self.chunks, self.width, self.dtype, self.row_bytes, self.pool = chunks, width, dtype, row_bytes, pool
        self.reader = PageReader(execution)
        self._files: dict[str, DirectFile] = {}

    def load(self, number: int, origin: Array | None = None) -> Staged:
        """Returns the rows of a batch; of some inputs by pages, each compared with its digest before a byte of it is used.

        Args:
            origin: i32[s], ascending: places of the wanted inputs among all inputs of the batch; None for all of them.

        Raises:
            InputError: a read failed or ended early, or the packed chunk or a page of it does not match its digest.
        """
        place, row_bytes = self.chunks.place(number), self.row_bytes
        whole = origin is None
        with self._lent(
            staging_capacity(place, row_bytes) if whole else some_capacity(len(origin), row_bytes)
        ) as buffer:
            return self._load(place, buffer) if whole else self._load_some(place, origin, buffer)

    def windows(self, number: int, origin: Array, num_rows: int) -> Iterator[tuple[Array | slice, Staged]]:
        """Yields (places among `origin`, their rows): windows of at most `num_rows` inputs, each input in one, in the order of the file.

        A window is to be released before the next one is asked for. Arguments and errors are those of `load`.
        """
        if len(origin) <= num_rows:
            yield slice(0, len(origin)), self.load(number, origin)
            return
        place, ledger, slots = self.chunks.place(number), Ledger(), np.empty(len(origin), np.int32)
        self._read_slots(place, origin, slots, ledger)
        order = np.argsort(slots, kind="stable")
        for low in range(0, len(order), num_rows):
            part = order[low : low + num_rows]
            with self._lent(some_capacity(len(part), self.row_bytes)) as buffer:
                own = _slots_in(buffer, len(part))
                own[:] = slots[part]
                staged = self._load_rows(place, own, buffer, ledger)
            ledger = Ledger()  # the reads of the slots belong to the first window
            yield part, staged

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _load(self, place: ChunkPlace, buffer: AlignedBuffer) -> Staged:
        ledger, row_bytes = Ledger(), self.row_bytes
        content, moved = self._read_chunk(place, buffer.data)
        slots, places, packed = place.sections(row_bytes)
        asked = packed.stop - packed.start
        ids_bytes = slots.stop + places.stop - places.start
        ledger.move(ADDRESSES, requests=0, asked_bytes=ids_bytes, moved_bytes=packed.start)
        ledger.move(FEATURES, requests=moved.requests, asked_bytes=asked, moved_bytes=int(padded_bytes(asked)))
        end = packed.stop + place.num_cached * row_bytes
        rows = buffer.data[packed.start : end].reshape(-1, row_bytes)
        if place.num_cached:
            # The rows may overwrite the end of the read bytes, never the places.
            moved = self._read_cached(place, content[places].view(np.int32).copy(), rows[place.num_packed :])
            _book(FEATURES, moved, ledger)
        ledger.count("hits_packed", 0, place.num_packed)
        ledger.count("hits_disk_cache", 0, place.num_cached)
        typed = rows.reshape(-1).view(self.dtype).reshape(-1, self.width)
        return Staged(slots=content[slots].view(np.int32), rows=typed, ledger=ledger, buffer=buffer)

    def _load_some(self, place: ChunkPlace, origin: Array, buffer: AlignedBuffer) -> Staged:
        ledger, slots = Ledger(), _slots_in(buffer, len(origin))
        self._read_slots(place, origin, slots, ledger)
        return self._load_rows(place, slots, buffer, ledger)

    def _read_slots(self, place: ChunkPlace, origin: Array, out: Array, ledger: Ledger) -> None:
        """Reads the slots of inputs to out: i32[s]."""
        section = place.sections(self.row_bytes)[0]
        _book(ADDRESSES, self._read_section(place, section, origin, 4, out.view(np.uint8).reshape(-1, 4)), ledger)

    def _load_rows(self, place: ChunkPlace, slots: Array, buffer: AlignedBuffer, ledger: Ledger) -> Staged:
        """Reads the rows of slots, i32[s] at the beginning of `buffer`, behind them, and makes the slots name them there."""
        row_bytes, space = self.row_bytes, buffer.data[int(padded_bytes(slots.nbytes)) :]
        sections = place.sections(row_bytes)
        tier, row = split_slots(slots)
        staged = np.flatnonzero(tier == STAGED)
        row = row[staged]
        packed, cached = staged[row < place.num_packed], staged[row >= place.num_packed]
        wanted, kept = row[row < place.num_packed], row[row >= place.num_packed] - place.num_packed
        rows = space[: len(staged) * row_bytes].reshape(-1, row_bytes)
        read = self._read_section(place, sections[2], wanted, row_bytes, rows[: len(packed)])
        _book(FEATURES, read, ledger)
        if len(cached):
            places = np.empty((len(cached), 4), np.uint8)
            _book(ADDRESSES, self._read_section(place, sections[1], kept, 4, places), ledger)
            _book(FEATURES, self._read_cached(place, places.reshape(-1).view(np.int32), rows[len(packed) :]), ledger)
        slots[packed] = make_slots(STAGED, np.arange(len(packed)))
        slots[cached] = make_slots(STAGED, np.arange(len(packed), len(staged)))
        ledger.count("hits_packed", 0, len(packed))
        ledger.count("hits_disk_cache", 0, len(cached))
        typed = rows.reshape(-1).view(self.dtype).reshape(-1, self.width)
        return Staged(slots=slots, rows=typed, ledger=ledger, buffer=buffer)

    def _read_section(self, place: ChunkPlace, section: slice, wanted: Array, row_bytes: int, out: Array) -> Moved:
        """Reads entries `wanted` of a section of a packed chunk to out: u8[n, row_bytes], in pages that are checked."""
        if not len(wanted):
            return Moved(0, 0, 0)
        extent, offset = place.extent, place.extent.offset + section.start
        digests = place.page_digests[section.start // PAGE_BYTES : -(-section.stop // PAGE_BYTES)]
        with self._naming(extent, f"the chunk of batch {place.number}"):
            file = self._open(extent)
            _, moved = self.reader.read_rows(file, wanted, row_bytes=row_bytes, offset=offset, out=out, digests=digests)
        return moved

    def _read_chunk(self, place: ChunkPlace, out: Array) -> tuple[Array, Moved]:
        """Reads and checks a packed chunk; returns u8[bytes], a view of `out`, and the moved bytes."""
        extent = place.extent
        with self._naming(extent, f"the chunk of batch {place.number}"):
            digests = np.empty(extent.num_bytes // PAGE_BYTES, np.uint64)
            file, where = self._open(extent), (extent.offset, extent.num_bytes)
            content, moved = self.reader.read_chunk(file, *where, out, digests=digests)
            if chunk_digest(digests) != place.digest:
                raise InputError("it does not match its digest")
        return content, moved

    def _read_cached(self, place: ChunkPlace, wanted: Array, out: Array) -> Moved:
        """Reads rows `wanted` of the segment's cache to out: u8[c, row_bytes]."""
        file, offset, digests = self._open(place.cache), place.cache.offset, place.cache_digests
        with self._naming(place.cache, f"the disk cache of batch {place.number}'s segment"):
            _, moved = self.reader.read_rows(
                file, wanted, row_bytes=self.row_bytes, offset=offset, out=out, digests=digests
            )
        return moved

    @contextmanager
    def _lent(self, num_bytes: int) -> Iterator[AlignedBuffer]:
        """Lends a buffer, which goes back to the pool if the block fails."""
        buffer = self.pool.take(num_bytes)
        try:
            yield buffer
        except BaseException:
            buffer.release()
            raise

    @contextmanager
    def _naming(self, extent: Extent, part: str) -> Iterator[None]:
        """Turns an input error of reading into one that names the artifact, the file and the part."""
        try:
            yield
        except InputError as error:
            raise damaged(self.chunks.artifact, extent, f"{part}: {error.problem}") from error

    def _open(self, extent: Extent) -> DirectFile:
        path = str(extent.path)
        if path not in self._files:
            self._files[path] = self.reader.open(path)
        return self._files[path]


def some_capacity(count: int, row_bytes: int) -> int:
    """Returns the bytes of a buffer for the addresses and rows of `count` inputs; whole pages for each."""
    return int(padded_bytes(4 * count)) + int(padded_bytes(count * row_bytes))


def _slots_in(buffer: AlignedBuffer, count: int) -> Array:
    """Returns i32[count], the beginning of a buffer."""
    return buffer.data[: 4 * count].view(np.int32)


def _book(line: Line, moved: Moved, ledger: Ledger) -> None:
    if moved.requests:
        ledger.move(line, requests=moved.requests, asked_bytes=moved.asked_bytes, moved_bytes=moved.moved_bytes)
