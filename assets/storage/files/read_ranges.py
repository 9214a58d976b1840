"""One sequential pass over a feature table that checks every block before use, and hands out ranges of whole rows.

The file is read directly, past the page cache, in ranges of whole blocks of 1 MiB; while one range is used, the next is on its way. A row
that straddles two ranges belongs to the second. Peak memory: two ranges and two rows.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphmill.assets.storage.files.digests import BLOCK_BYTES
from graphmill.assets.storage.files.verified import damaged_file, require_block
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import DirectFile, PageReader, ReadExecution
from graphmill.kernels.rows.pages import padded_bytes
from graphmill.kernels.types import Array


def read_ranges(table: FeatureTable, range_bytes: int) -> Iterator[tuple[int, Array]]:
    """Yields (first row, u8[r, row_bytes]) for consecutive ranges of a table; each is overwritten when the next is asked for.

    Args:
        table: a feature table with block digests, rows in their stored order.
        range_bytes: largest number of bytes per range, rounded down to blocks of 1 MiB, at least one.

    Raises:
        InputError: the file is missing, has another size, cannot be read, or a block does not match its digest.
    """
    assert table.block_digest is not None, f"{table.path} has no block digests"
    end = table.offset + table.num_rows * table.row_bytes
    if not table.path.is_file() or table.path.stat().st_size != end:
        raise damaged_file(table.path, f"it is missing, or has not {end} bytes")
    step = max(1, range_bytes // BLOCK_BYTES) * BLOCK_BYTES
    pad = padded_bytes(table.row_bytes)  # space in front of a range for the beginning of a row that straddles it
    buffers = [aligned_empty(pad + padded_bytes(min(step, end))) for _ in range(2)]
    reader = table_reader()
    with reader.open(table.path) as file, ThreadPoolExecutor(1) as ahead:
        starts = list(range(0, end, step))
        coming = ahead.submit(_read, reader, file, table, starts[0], min(step, end), buffers[0][pad:])
        row, left = 0, np.empty(0, np.uint8)
        for number, start in enumerate(starts):
            content = coming.result()
            if number + 1 < len(starts):
                following = starts[number + 1]
                place = buffers[(number + 1) % 2][pad:]
                coming = ahead.submit(_read, reader, file, table, following, min(step, end - following), place)
            buffer, skipped = buffers[number % 2], max(0, table.offset - start)
            first = pad + min(skipped, len(content)) - len(left)
            buffer[first : first + len(left)] = left
            usable = pad + len(content) - first
            count = usable // table.row_bytes if table.row_bytes else 0
            rows = buffer[first : first + count * table.row_bytes].reshape(count, table.row_bytes)
            left = buffer[first + count * table.row_bytes : pad + len(content)].copy()
            if count:
                yield row, rows
            row += count


def table_reader() -> PageReader:
    """Returns a reader by io_uring, else by pread, past the page cache if the file system can do that."""
    method = PageReader(ReadExecution()).method
    return PageReader(ReadExecution(method=method, fallback="buffered"))


def _read(reader: PageReader, file: DirectFile, table: FeatureTable, start: int, length: int, out: Array) -> Array:
    """Reads and checks the blocks of one range."""
    content, _ = reader.read_chunk(file, start, length, out)
    assert table.block_digest is not None
    for offset in range(0, length, BLOCK_BYTES):
        block = content[offset : offset + BLOCK_BYTES]
        require_block(table.path, (start + offset) // BLOCK_BYTES, block, table.block_digest)
    return content
