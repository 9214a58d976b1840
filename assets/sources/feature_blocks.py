"""Feature rows of several tables on their way into one: slice by slice, each to its nodes.

A block is the features of one node table, or of one node type. Blocks have one width; node types without features get
rows of zeros. Pages that were written are let go after every slice, so that memory holds one slice.

Peak memory: one slice of the source and its copy in the stored type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.sources.features import divide_rows, stored_dtype
from assets.storage.arrays import forget_pages
from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.storage.writer import Writer


@dataclass(frozen=True, kw_only=True)
class FeatureBlock:
    """The features of a range of nodes.

    Attributes:
        where: name of the features, for errors: file, and array or column.
        first, num_rows: the node ids first to first + num_rows - 1.
        width, dtype: columns and type of the source.
        slices: function that yields (first row, rows[n, F]) that cover all rows once, in order.
        place: function (row, column) -> where that value is, for errors.
        node_of_row: i64[num_rows] node ids of the rows, or None where they are in order.
    """

    where: str
    first: int
    num_rows: int
    width: int
    dtype: np.dtype[Any]
    slices: Callable[[], Iterator[tuple[int, Array]]]
    place: Callable[[int, int], str]
    node_of_row: Array | None = None


def write_blocks(
    writer: Writer, num_nodes: int, blocks: Sequence[FeatureBlock], normalize: str, progress: Progress
) -> None:
    """Writes `features` [N, F]; without blocks, one column of ones.

    Raises:
        InputError: widths or types differ, rows are missing, or a value is not finite.
    """
    if not blocks:
        writer.create("features", (num_nodes, 1), np.uint8)[...] = 1
        return
    first = blocks[0]
    for block in blocks[1:]:
        if (block.width, block.dtype) != (first.width, first.dtype):
            shapes = f"{first.width} x {first.dtype}, but those of {block.where} {block.width} x {block.dtype}"
            raise InputError(
                f"the features of {first.where} are {shapes}", "give all node types features of one width and type"
            )
    stored = stored_dtype(first.dtype, normalize, first.where)
    table = writer.create("features", (num_nodes, first.width), stored)
    progress.start("features", sum(block.num_rows for block in blocks), "rows")
    for block in blocks:
        _write_block(table, block, normalize, progress)
    progress.done()


def _write_block(table: Array, block: FeatureBlock, normalize: str, progress: Progress) -> None:
    done = 0
    for low, rows in block.slices():
        done = low + len(rows)
        if done > block.num_rows:
            break
        _refuse_non_finite(rows, low, block)
        target: Any = slice(block.first + low, block.first + done)
        if block.node_of_row is not None:
            target = block.node_of_row[low:done]
        table[target] = divide_rows(rows) if normalize == "row" else rows
        forget_pages(table)
        progress.advance(len(rows))
    if done != block.num_rows:
        raise InputError(
            f"{block.where}: has {'more than ' if done > block.num_rows else ''}{min(done, block.num_rows)} rows of features "
            f"for {block.num_rows} nodes",
            "give one row of features for every node",
        )


def _refuse_non_finite(rows: Array, low: int, block: FeatureBlock) -> None:
    if rows.dtype.kind != "f" or np.isfinite(rows).all():
        return
    row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
    raise InputError(
        f"{block.place(low + row, column)} is {rows[row, column]}", "give every node finite features, and run again"
    )
