"""Direct reads and writes: rows by ranges of pages, packed chunks in large pieces, past the page cache.

DiskGNN (section 5.3) reads packed chunks with sequential preads and the disk cache with io_uring, both O_DIRECT. The device
moves whole pages of 4,096 bytes, so wanted rows are sorted and merged (request coalescing): rows on the same or on neighbouring pages are
one range, ranges are cut at `range_pages`, and every page moves once, even if a row straddles two ranges. `depth` ranges are in flight at a
time, each in its own part of one registered buffer; the rows of a range are copied out when it arrives, while the others are on the way.
If all of a range is wanted and its rows lie in the output as in the file, aligned for direct reads (rows of 512 bytes are, of 400 are not),
it is read to its place in the output and nothing is copied. Any row width and any offset will do.

Rows are written as they are read: the pages that hold them are read, and each range is written back with the new rows in it as soon as it
has arrived, while others are on the way. No page waits in memory for the system to write it, which in a control group without a bound of
its own for such pages stops the next thread that needs memory.

Every result is checked: a short read is asked for again from the page where it stopped, and an error or the end of the file is an
`InputError` with the file and the bytes, never a wrong row. Rows are read at random, so the digest of a large block could not be checked
without reading all of it; a page arrives whole, so if the caller has digests of pages, each is compared before a row is taken from it: 8
bytes for 4,096, and about 0.3 us per page. Not checked: the content of pages without digests. The output's content is undefined after an
error.

Cost of n rows on p distinct pages in r ranges: O(n) when sorted, else O(n log n); r requests; 4,096 p bytes moved and n row_bytes
copied. Writing takes twice the requests and bytes moved. Memory: depth * range_pages * 4,096 bytes per reader and 16 n bytes during a
call.

If io_uring is forbidden (containers' seccomp filters, kernel.io_uring_disabled), if it is not available in this depth (limits of locked
memory and open files) or if the file system has no O_DIRECT, the reader warns once and takes the configured second choice. A ring that the
kernel refuses later, in the middle of a read, is an `InputError` in that call and in all later ones: requests in flight may still write to
the reader's memory, so it cannot be used again. Known limits: devices whose logical block is larger than 4,096 bytes refuse these reads
(EINVAL, reported); tmpfs accepts O_DIRECT on newer kernels and serves it from memory.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.types import Array
from graphmill.kernels.warn_once import warn_once

Method = Literal["io_uring", "pread", "buffered"]
Fallback = Literal["pread", "buffered", "error"]
NO_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)
ALLOW_RING = (
    'allow io_uring (a container: its seccomp profile; sysctl kernel.io_uring_disabled), or set fallback = "pread"'
)
ALLOW_DEPTH = 'lower the depth, raise the limits of locked memory (ulimit -l) and open files (ulimit -n), or set fallback = "pread"'


class Moved(NamedTuple):
    """Requests and bytes of one call, as in a row of a ledger. Short reads that were resubmitted are not counted again."""

    requests: int
    asked_bytes: int
    moved_bytes: int


@dataclass(frozen=True, kw_only=True)
class ReadExecution:
    """Settings of reading files; no byte of any result depends on them."""

    # io_uring and pread are direct; buffered goes through the page cache
    method: Method = "io_uring"
    # second choice if the method is missing; "error" takes none
    fallback: Fallback = "pread"
    # number of ranges in flight (io_uring)
    depth: int = 32
    # largest number of pages per range
    range_pages: int = 64
    # bytes per read of a chunk, whole pages
    piece_bytes: int = 4 << 20
    # bytes in flight (io_uring) from which on there is no further request; one request may always be in flight
    window_bytes: int = 1 << 30

    def __post_init__(self):
        wrong = []
        for name, values in (("method", get_args(Method)), ("fallback", get_args(Fallback))):
            if getattr(self, name) not in values:
                wrong.append(f"{name} = {getattr(self, name)!r} (one of {', '.join(values)})")
        ranges = {"depth": (1, 4096), "range_pages": (1, 65536)}
        ranges |= {"piece_bytes": (PAGE_BYTES, 1 << 30), "window_bytes": (1, 1 << 30)}
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                wrong.append(f"{name} = {getattr(self, name)} ({least} to {most})")
        if self.piece_bytes % PAGE_BYTES:
            wrong.append(f"piece_bytes = {self.piece_bytes} (a multiple of {PAGE_BYTES})")
        if self.depth * self.range_pages * PAGE_BYTES > 1 << 30:
            wrong.append(
                f"depth * range_pages = {self.depth * self.range_pages} (at most {(1 << 30) // PAGE_BYTES} pages)"
            )
        if wrong:
            raise InputError("; ".join(wrong), "give values in these ranges")


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Makes reads fail as a bad disk would, for tests: the requests are wrong, the answers are the kernel's own."""

    # each n-th request asks for only `shorten_to` bytes at first; 0 = none
    shorten_every: int = 0
    # bytes of such a request; whole sectors if reads are direct
    shorten_to: int = 512
    # number of the request that goes to a descriptor which is not open; -1 = none
    break_at: int = -1


class DirectFile:
    """An open file, past the page cache if `direct` is true. Close it, or use it as a context.

    Attributes:
        path: name of the file, for messages.
        direct: whether it was opened with O_DIRECT.
    """

    def __init__(self, path: Path, descriptor: int, direct: bool):
        self.path = path
        self.direct = direct
        self._descriptor = descriptor

    def __enter__(self) -> DirectFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """Returns the descriptor."""
        if self._descriptor < 0:
            raise InputError(f"{self.path} was closed", "keep the file open while it is read")
        return self._descriptor

    def close(self) -> None:
        """Closes the descriptor; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class PageReader:
    """Reads rows and chunks of any number of files. One thread uses it at a time; make one for each thread.

    Args:
        faults: errors to provoke, for tests.

    Attributes:
        reason: reason why that is not the configured method, or None.

    Raises:
        InputError: io_uring, or one of this depth, is missing and no second choice is configured.
    """

    def __init__(self, execution: ReadExecution | None = None, *, faults: Faults | None = None):
        self.execution, self._faults = execution or ReadExecution(), faults or Faults()
        self.method: Method = self.execution.method
        self.reason: str | None = None
        if self.method == "io_uring" and (number := _native.ring_errno()):
            self._fall_back(f"io_uring is not available here ({os.strerror(number)})", ALLOW_RING)
        self._native = self._make()
        if number := self._native.state()[0]:
            self._fall_back(f"no io_uring of depth {self.execution.depth}: {os.strerror(number)}", ALLOW_DEPTH)
            self._native = self._make()

    @property
    def num_resubmitted(self) -> int:
        """Reads that came back short or interrupted and were asked for again, since the reader was made."""
        return self._native.state()[1]

    @property
    def most_in_flight(self) -> int:
        """The most bytes that io_uring had in flight at a time since the reader was made."""
        return self._native.state()[2]

    @property
    def landed_bytes(self) -> int:
        """Bytes of rows that were read to their place in `out` at once instead of being copied there, since the reader was made."""
        return self._native.state()[3]

    def open(self, path: Path | str, *, writes: bool = False) -> DirectFile:
        """Opens a file for this reader; raises InputError without O_DIRECT, unless the page cache is its second choice, or OSError."""
        path = Path(path)
        flags = (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC
        if self.method != "buffered":
            try:
                return DirectFile(path, os.open(path, flags | os.O_DIRECT), True)
            except OSError as error:
                if error.errno not in NO_DIRECT:
                    raise
            reason = f"the file system of {path.parent} has no O_DIRECT"
            if self.execution.fallback != "buffered":
                remedy = 'move the file, or set fallback = "buffered" to read through the page cache'
                raise InputError(reason, remedy)
            self.reason = reason
            warn_once(f"{reason}; reading through the page cache")
        return DirectFile(path, os.open(path, flags), False)

    def read_rows(
        self,
        file: DirectFile,
        row_ids: Any,
        *,
        row_bytes: int,
        offset: int = 0,
        out: Array | None = None,
        merge: bool = True,
        digests: Array | None = None,
    ) -> tuple[Array, Moved]:
        """Reads rows of a table by ranges of pages.

        Args:
            row_ids: ids[n], rows of the table; ascending ones are not sorted first; repeated ones are read once.
            row_bytes: bytes per row, 1 or more.
            offset: byte of the file at which row 0 starts.
            out: u8[n, row_bytes] to write to; its rows may be apart (staging with a stride). None makes one.
            merge: whether rows are sorted and merged into ranges; False, the papers' baseline, sends one request per row, as asked.
            digests: u64[p], `page_digests` of the pages from `offset` on, which then starts a page, to the table's last; every page
                that arrives is compared, the one that the file ends in as if zeros followed. None compares nothing.

        Returns:
            (out, requests and bytes): out[i] is row row_ids[i].

        Raises:
            InputError: a row is not in the file, a read failed or ended early, a page does not match its digest, or out does not fit.
        """
        row_ids = as_ids(row_ids, "row_ids")
        if row_bytes < 1 or offset < 0:
            raise InputError(f"row_bytes = {row_bytes}, offset = {offset}", "give 1 or more bytes per row, from byte 0")
        out = np.empty((len(row_ids), row_bytes), np.uint8) if out is None else out
        if out.dtype != np.uint8 or out.shape != (len(row_ids), row_bytes) or not out.flags.writeable:
            raise InputError(f"out is {out.dtype}{list(out.shape)}", f"give uint8[{len(row_ids)}, {row_bytes}]")
        if out.size and ((row_bytes > 1 and out.strides[1] != 1) or (len(out) > 1 and out.strides[0] < row_bytes)):
            raise InputError("the bytes of a row of out are not adjacent, or its rows overlap", "give rows in C order")
        if digests is not None and offset % PAGE_BYTES:
            raise InputError(f"offset = {offset} is inside a page", "digests are of pages: let the table start one")
        counts = self._native.read_rows(
            file.fileno(), str(file.path), row_ids, row_bytes, offset, bool(merge), out, digests
        )
        return out, Moved(*counts)

    def write_rows(self, file: DirectFile, row_ids: Any, rows: Array, *, offset: int = 0) -> Moved:
        """Replaces rows of a table by ranges of pages; nothing is durable before the file is synced.

        Args:
            file: opened for writing; its length is whole pages.
            row_ids: ids[n], distinct rows of the table.
            rows: u8[n, row_bytes], their new bytes.
            offset: byte of the file at which row 0 starts.

        Returns:
            Requests of reading, and the bytes of the rows and of what was read and written. What the file has after an error is some of
            the rows; others than these are as they were.

        Raises:
            InputError: a row is not in the file, a read or a write failed, or an array does not fit.
        """
        row_ids = np.ascontiguousarray(as_ids(row_ids, "row_ids"), np.int64)
        if rows.dtype != np.uint8 or rows.ndim != 2 or len(rows) != len(row_ids) or not rows.shape[1] or offset < 0:
            problem = f"rows is {rows.dtype}{list(rows.shape)} for {len(row_ids)} rows from byte {offset}"
            raise InputError(problem, "give uint8[rows, bytes of a row], 1 or more, from byte 0")
        rows = np.ascontiguousarray(rows)
        return Moved(*self._native.write_rows(file.fileno(), str(file.path), row_ids, rows.shape[1], offset, rows))

    def read_chunk(
        self, file: DirectFile, offset: int, length: int, out: Array | None = None, *, digests: Array | None = None
    ) -> tuple[Array, Moved]:
        """Reads a range of bytes in pieces of `piece_bytes`, several in flight with io_uring.

        Args:
            offset, length: first byte and bytes of the range, aligned or not.
            out: u8[chunk_capacity(offset, length) or more], starting on a page (`BufferPool`), or None to make one.
            digests: u64[pages], receives `page_digests` of the range, which is whole pages then, each computed when its piece arrives,
                while that is still in the processor's caches. None computes none.

        Returns:
            (u8[length], requests and bytes): the first is a view of `out`, nothing is copied.

        Raises:
            InputError: the file ends before the range does, a read failed, or out is too small or not aligned.
        """
        if offset < 0 or length < 0:
            raise InputError(f"offset = {offset}, length = {length}", "give numbers of 0 or more")
        capacity = chunk_capacity(offset, length)
        out = aligned_empty(capacity) if out is None else out
        usable = out.dtype == np.uint8 and out.ndim == 1 and out.flags.c_contiguous and out.flags.writeable
        if not usable or out.nbytes < capacity or (capacity and out.ctypes.data % PAGE_BYTES):
            remedy = f"give a writable uint8[{capacity}] that starts on a page (graphmill.kernels.rows.aligned)"
            raise InputError(f"out is {out.dtype}{list(out.shape)} at address {out.ctypes.data:#x}", remedy)
        if digests is not None and (offset % PAGE_BYTES or length % PAGE_BYTES or len(digests) * PAGE_BYTES != length):
            problem = f"{len(digests)} digests for bytes {offset} to {offset + length}"
            raise InputError(problem, f"give whole pages of {PAGE_BYTES} bytes and a digest for each")
        begin = offset // PAGE_BYTES * PAGE_BYTES
        pages = (begin, begin + capacity, offset + length)
        piece_bytes = self.execution.piece_bytes
        requests = self._native.read_pages(file.fileno(), str(file.path), *pages, piece_bytes, out, digests)
        return out[offset - begin : offset - begin + length], Moved(requests, length, capacity)

    def _make(self) -> _native.PageReader:
        """Returns the native reader of the method in use."""
        execution, faults = self.execution, self._faults
        return _native.PageReader(
            execution.depth,
            execution.range_pages * PAGE_BYTES,
            execution.window_bytes,
            self.method == "io_uring",
            (faults.shorten_every, faults.shorten_to, faults.break_at),
        )

    def _fall_back(self, reason: str, remedy: str) -> None:
        """Takes the second choice, or raises InputError if there is none."""
        if self.execution.fallback == "error":
            raise InputError(reason, remedy)
        self.method, self.reason = self.execution.fallback, reason
        warn_once(f"{reason}; using {self.method}")


def chunk_capacity(offset: int, length: int) -> int:
    """Returns the bytes of the whole pages that hold a range, which `PageReader.read_chunk` moves."""
    if length == 0:
        return 0
    return padded_bytes(offset + length) - offset // PAGE_BYTES * PAGE_BYTES
