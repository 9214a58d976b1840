"""Sequential reading that checks as it goes: each block of 1 MiB is compared with its digest before use.

Random reads through a mapping cannot do this: a row is far smaller than a block. Code that reads a whole table anyway should read it here.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from graphmill.assets.storage.files.digests import BLOCK_BYTES, SPAN_BLOCKS
from graphmill.assets.storage.files.verified import (
    damaged_block,
    damaged_file,
    require_block,
    require_size,
    verify_once,
)
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.types import Array


def read_table(table: FeatureTable, threads: int = 1) -> Array:
    """Reads a whole table into memory and verifies every byte of its file.

    Args:
        table: a table with block digests; its rows in their stored order (`row_of` is not applied).

    Returns:
        dtype[num_rows, width], stored type. Peak memory: the bytes of the file.

    Raises:
        InputError: the file is missing, has another size, or a block does not match its digest.
    """
    words = table.block_digest
    assert words is not None, f"{table.path} has no block digests"
    num_bytes = table.offset + table.num_rows * table.row_bytes
    assert len(words) == -(-num_bytes // BLOCK_BYTES), f"{table.path} has {len(words)} digests for {num_bytes} bytes"
    require_size(table.path, num_bytes)
    content = aligned_empty(num_bytes)  # large pages: rows are gathered from it at random

    def span(first: int) -> None:
        with open(table.path, "rb") as file:
            file.seek(first * BLOCK_BYTES)
            for block in range(first, min(first + SPAN_BLOCKS, len(words))):
                part = content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                if file.readinto(part.data) < len(part):  # the file was cut since its size was compared
                    raise damaged_file(table.path, damaged_block(block, num_bytes))
                require_block(table.path, block, part, words)

    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(pool.map(span, range(0, len(words), SPAN_BLOCKS)))
    return content[table.offset :].view(table.dtype).reshape(table.num_rows, table.width)


def read_vector(artifact: Artifact, name: str) -> Array:
    """Returns the one-dimensional array `name` of an artifact, dtype[n]; every byte of its file is verified.

    Raises:
        InputError: the artifact has no array of that name, or its file is damaged.
    """
    return read_table(artifact.table(name))[:, 0]


def map_vector(artifact: Artifact, name: str) -> Array:
    """Maps the one-dimensional array `name` of an artifact, dtype[n], after every byte of its file was verified, once per process.

    Raises:
        InputError: the artifact has no array of that name, or its file is damaged.
    """
    table = artifact.table(name)
    assert table.block_digest is not None, f"{table.path} has no block digests"
    verify_once(table.path, table.block_digest, table.offset + table.num_rows * table.row_bytes)
    return artifact.array(name)


def read_rows(table: FeatureTable, wanted: Sequence[tuple[Array, Array]]) -> None:
    """Reads chosen rows in one sequential pass that verifies every block it takes anything from.

    Blocks without a chosen row are not read. Peak memory: one block, and 24 bytes for each chosen row of a list that is not ascending.

    Args:
        table: a table with block digests; `row_of` is not applied.
        wanted: pairs of ids[n], rows of the table without repetition, and dtype[n, width] of the stored type, C-contiguous: row i of the
            second becomes row ids[i] of the table.
    """
    words = table.block_digest
    assert words is not None, f"{table.path} has no block digests"
    require_size(table.path, table.offset + table.num_rows * table.row_bytes)
    lists = [_RowList(table, np.asarray(ids), out) for ids, out in wanted if len(ids) and table.row_bytes]
    needed = np.unique(np.concatenate([each.blocks() for each in lists])) if lists else np.zeros(0, np.int64)
    with open(table.path, "rb", buffering=0) as file:
        for block in needed.tolist():
            content = np.fromfile(file, np.uint8, BLOCK_BYTES, offset=block * BLOCK_BYTES - file.tell())
            require_block(table.path, block, content, words)
            for each in lists:
                each.take(content, block * BLOCK_BYTES - table.offset)


class _RowList:
    """Chosen rows in ascending order, and where each goes."""

    def __init__(self, table: FeatureTable, ids: Array, out: Array):
        assert out.shape == (len(ids), table.width) and out.dtype.name == table.dtype and out.flags.c_contiguous
        self.row_bytes, self.offset = table.row_bytes, table.offset
        ascending = bool((ids[1:] > ids[:-1]).all())
        # Ascending lists, as shards have, may be of all nodes: no array of 8 bytes for each is made of them.
        self.places = None if ascending else np.argsort(ids, kind="stable")
        self.rows = ids if self.places is None else ids[self.places]
        self.out = out.reshape(-1).view(np.uint8).reshape(len(ids), table.row_bytes)

    def blocks(self) -> Array:
        """Returns i64[...], the blocks that hold a byte of a chosen row, each once."""
        ranges = node_ranges(len(self.rows))
        return np.unique(np.concatenate([self._blocks(self.rows[low:high].astype(np.int64)) for low, high in ranges]))

    def _blocks(self, rows: Array) -> Array:
        first = (self.offset + rows * self.row_bytes) // BLOCK_BYTES
        last = (self.offset + (rows + 1) * self.row_bytes - 1) // BLOCK_BYTES
        length = last - first + 1
        # first[i], first[i] + 1, ..., last[i] for every i, one after the other.
        steps = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return np.unique(np.repeat(first, length) + steps)

    def take(self, content: Array, start: int) -> None:
        """Copies those bytes of the chosen rows that a block holds; `start` is the block's place among the bytes of all rows."""
        size, end = self.row_bytes, start + len(content)
        low, high = -(-start // size), end // size  # rows that lie in the block as a whole
        first, last = (self._find(row) for row in (low, high))
        if low < high:
            whole = content[low * size - start : high * size - start].reshape(high - low, size)
            self.out[self._place(slice(first, last))] = whole[self.rows[first:last] - low]
        for row in {start // size, (end - 1) // size}:  # rows that lie in it in part
            index = self._find(row)
            if low <= row < high or index == len(self.rows) or self.rows[index] != row:
                continue
            begin, stop = max(row * size, start), min((row + 1) * size, end)
            self.out[self._place(index), begin - row * size : stop - row * size] = content[begin - start : stop - start]

    def _find(self, row: int) -> int:
        # A number of another dtype would have all rows converted.
        return int(np.searchsorted(self.rows, np.array(row).astype(self.rows.dtype)))

    def _place(self, which: Any) -> Any:
        return which if self.places is None else self.places[which]
