"""Sequential reading that checks as it goes: each block of 1 MiB is compared with its digest before anyone sees it.

Random reads through a mapping cannot do this: a row is far smaller than a block. Whoever reads a whole table anyway
should read it here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xxhash

from assets.digests import BLOCK_BYTES, SPAN_BLOCKS
from kernels.errors import InputError
from kernels.types import Array, FeatureTable


def read_table(table: FeatureTable, threads: int = 1) -> Array:
    """Reads a whole table into memory and verifies every byte of its file.

    Args:
        table: a table with block digests; its rows in their stored order (`row_of` is not applied).
        threads: readers; the result does not depend on it.

    Returns:
        dtype[num_rows, width], stored type. Peak memory: the bytes of the file.

    Raises:
        InputError: the file is missing, has another size, or a block does not match its digest.
    """
    words = table.block_digest
    assert words is not None, f"{table.path} has no block digests"
    num_bytes = table.offset + table.num_rows * table.row_bytes
    assert len(words) == -(-num_bytes // BLOCK_BYTES), f"{table.path} has {len(words)} digests for {num_bytes} bytes"
    _require_size(table, num_bytes)
    content = np.empty(num_bytes, np.uint8)

    def span(first: int) -> None:
        with open(table.path, "rb", buffering=0) as file:
            file.seek(first * BLOCK_BYTES)
            for block in range(first, min(first + SPAN_BLOCKS, len(words))):
                part = content.data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                filled = 0
                while filled < len(part) and (num_read := file.readinto(part[filled:])):
                    filled += num_read
                if filled < len(part) or xxhash.xxh3_64_intdigest(part) != int(words[block]):
                    start = block * BLOCK_BYTES
                    raise _damaged(table, f"bytes {start} to {start + len(part) - 1} do not match their digest")

    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(pool.map(span, range(0, len(words), SPAN_BLOCKS)))
    return content[table.offset :].view(table.dtype).reshape(table.num_rows, table.width)


def _require_size(table: FeatureTable, num_bytes: int) -> None:
    if not table.path.is_file():
        raise _damaged(table, "the file is missing")
    if table.path.stat().st_size != num_bytes:
        raise _damaged(table, f"it has {table.path.stat().st_size} bytes instead of {num_bytes}")


def _damaged(table: FeatureTable, what: str) -> InputError:
    folder = table.path.parent
    return InputError(
        f"{table.path} is damaged: {what}", f"remove the folder {folder} and run again: it will be rebuilt"
    )
