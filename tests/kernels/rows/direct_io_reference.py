"""Results and costs of direct reads, by plain reads and arithmetic: the reference for tests and benchmarks of kernels/rows/direct_io.py."""

from pathlib import Path

import numpy as np

from graphmill.kernels.rows.direct_io import Moved
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.types import Array


def read_rows_reference(path: Path, row_ids: Array, row_bytes: int, offset: int = 0) -> Array:
    """Returns u8[n, row_bytes], one plain read per row (the rule in Python)."""
    out = np.empty((len(row_ids), row_bytes), np.uint8)
    with open(path, "rb") as file:
        for place, row in enumerate(row_ids):
            file.seek(offset + int(row) * row_bytes)
            out[place] = np.frombuffer(file.read(row_bytes), np.uint8)
    return out


def count_requests_reference(
    row_ids: Array, row_bytes: int, offset: int, range_pages: int, merge: bool = True
) -> Moved:
    """Returns requests and bytes of `PageReader.read_rows` (the arithmetic in NumPy): distinct pages, cut where one is missing."""
    first = (offset + np.asarray(row_ids, np.int64) * row_bytes) // PAGE_BYTES
    last = (offset + (np.asarray(row_ids, np.int64) + 1) * row_bytes - 1) // PAGE_BYTES
    asked = len(first) * row_bytes
    if not merge:
        pages = last - first + 1
        return Moved(int((-(-pages // range_pages)).sum()), asked, int(pages.sum()) * PAGE_BYTES)
    spans = [np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]
    pages = np.unique(np.concatenate(spans)) if spans else np.empty(0, np.int64)
    lengths = np.diff(np.concatenate([[-1], np.flatnonzero(np.diff(pages) > 1), [len(pages) - 1]]))
    return Moved(int((-(-lengths // range_pages)).sum()), asked, len(pages) * PAGE_BYTES)
