"""The layout of rows on the disk, in packed chunks and segment caches, and the pages that reading them moves.

    packed rows      a batch's rows, ascending by node id, one after the other from a page boundary on; padded to whole pages
    segment cache    a segment's rows in the order of the plan, one after the other from a page boundary on; padded likewise

Rows are never padded, so a row may straddle pages, and one wider than a page does. A reader takes the packed rows of a batch as one
sequential read, and of the segment cache the pages that the batch's rows touch, each once, adjacent pages as one request (a range). Reads
therefore move whole pages, known before anything is written; `moved bytes / asked bytes` is the read amplification.

A page is also the smallest unit that can be checked in random reads: `page_digests` is XXH64, 8 bytes per page. A larger piece has one
digest over those of its pages (`chunk_digest`), which can be computed as the pages arrive, in any order.

`touched_pages` marks pages in a bitmap per batch: O(rows + pages / 64), no sorting.

Source: DiskGNN, sections 2 (pages and amplification) and 4 (feature assembling).
"""

from typing import Any

import numpy as np
import xxhash

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

PAGE_BYTES = 4096


def padded_bytes(num_bytes: Any) -> Any:
    """Returns bytes rounded up to whole pages; integers, or an integer array."""
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


def page_digests_reference(pages: Array) -> Array:
    """Returns the same as `page_digests`, by the Python package."""
    return np.array([xxhash.xxh64_intdigest(page.data) for page in pages.reshape(-1, PAGE_BYTES)], np.uint64)


def page_digests(pages: Array) -> Array:
    """Returns u64[p], the XXH64 (seed 0) of each page of u8[p * 4096], with which `PageReader.read_rows` compares."""
    if pages.dtype != np.uint8 or not pages.flags.c_contiguous or pages.nbytes % PAGE_BYTES:
        raise InputError(f"pages are {pages.dtype}{list(pages.shape)}", f"give uint8[p * {PAGE_BYTES}] in C order")
    out = np.empty(pages.nbytes // PAGE_BYTES, np.uint64)
    _native.page_digests(pages.reshape(-1), out)
    return out


def chunk_digest(words: Array) -> int:
    """Returns the digest of consecutive pages: the XXH64 of their `page_digests` u64[p], little-endian."""
    return xxhash.xxh64_intdigest(words.astype("<u8", copy=False).tobytes())


def touched_pages_reference(ptr: Array, rows: Array, row_bytes: int) -> tuple[Array, Array]:
    """Returns the same as `touched_pages` (the rule in NumPy)."""
    pages, runs = np.zeros((2, len(ptr) - 1), np.int64)
    for batch in range(len(ptr) - 1):
        bytes_from = rows[ptr[batch] : ptr[batch + 1]].astype(np.int64) * row_bytes
        touched = {
            page
            for start in bytes_from.tolist()
            if row_bytes
            for page in range(start // PAGE_BYTES, (start + row_bytes - 1) // PAGE_BYTES + 1)
        }
        pages[batch] = len(touched)
        runs[batch] = sum(page - 1 not in touched for page in touched)
    return pages, runs


def touched_pages(ptr: Any, rows: Any, num_rows: int, row_bytes: int, threads: int = 1) -> tuple[Array, Array]:
    """Counts the pages that each batch touches in a file of fixed-size rows, and the ranges of adjacent pages.

    Args:
        ptr: i64[B+1], batch b needs rows[ptr[b]:ptr[b+1]], in any order.
        rows: ids[n], rows of the file, 0 to num_rows - 1.
        row_bytes: bytes per row; 0 is a table without columns, which touches nothing.

    Returns:
        pages i64[B], pages that each batch touches, and runs i64[B], ranges of adjacent ones.
    """
    rows = as_ids(rows, "rows")
    ptr = check_ptr(ptr, len(rows))
    if num_rows < 0 or row_bytes < 0:
        raise InputError(f"{num_rows} rows of {row_bytes} bytes", "give counts of 0 or more")
    pages, runs = np.zeros((2, len(ptr) - 1), np.int64)
    _native.touched_pages(ptr, rows, num_rows, row_bytes, pages, runs, check_threads(threads))
    return pages, runs


def check_ptr(ptr: Any, length: int) -> Array:
    """Returns ptr, integers, as C-contiguous i64[B+1] that cuts `length` elements into B batches; raises InputError otherwise."""
    array = np.asarray(ptr)
    if array.dtype.kind not in "iu":
        raise InputError(f"ptr is {array.dtype}{list(array.shape)}", "give ptr as i64[B+1]")
    array = np.require(array, np.int64, ["C", "A"])
    if array.ndim != 1 or len(array) < 1 or array[0] != 0 or array[-1] != length or (np.diff(array) < 0).any():
        raise InputError(f"ptr does not cut {length} ids into batches", "give i64[B+1] from 0 to the length, ascending")
    return array
