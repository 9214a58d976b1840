"""Joins the feature rows of several tables into one, slice by slice, each for its nodes.

A block is the features of one node table, or of one node type. Rows of all blocks stand in one table, which is as wide as the widest: rows
of other types are padded with zeros. Nodes that no block covers have no features and take no space: rows stand in the order of their nodes,
and `row_of` has the row of each node. Written pages are released after every slice, so that memory holds one slice.

Peak memory: one slice of the source and its copy in the stored type; if some nodes have no features, 4 N bytes (8 N from 2^31 nodes on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.sources.features.types import (
    BFLOAT16,
    Recount,
    Rounding,
    array_type,
    as_stored,
    common_type,
    divide_rows,
    stored_type,
    widened,
)
from graphmill.assets.storage.files.arrays import DATA_OFFSET, forget_pages
from graphmill.assets.storage.files.digests import page_digests_of
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, id_dtype

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.storage.local.writer import Writer


SLICE_BYTES = 8 << 20
"""Bytes of one slice of rows."""


def row_ranges(num_rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (first row, end) of consecutive slices of a table, of about 8 MiB each."""
    step = max(1, SLICE_BYTES // max(1, row_bytes))
    yield from ((low, min(low + step, num_rows)) for low in range(0, num_rows, step))


@dataclass(frozen=True, kw_only=True)
class FeatureBlock:
    """The features of a range of nodes.

    Attributes:
        where: name of the features, for errors: file, and array or column.
        num_rows: number of rows, of the nodes first to first + num_rows - 1.
        width, dtype: number of columns and type of the source; "bfloat16" if it has that type.
        slices: function that yields (first row, rows[n, F]) that cover all rows once, in order; bfloat16 as float32.
        place: function (row, column) -> place of that value in words, for errors; None for "WHERE row ROW column COLUMN".
        held: function (row, column) -> the value as the source writes it; None if only its number is known.
        node_of_row: i64[num_rows] node ids of the rows; None if they are in order.
        named_twice: phrases about columns or data that another key names, too, such as the labels.
        column: function column -> its name in words; None for "column COLUMN of WHERE".
        recount: function that counts the numbers that float32 rounds, for a source whose rows are float32 already; None for exact rows.
        encoders: encoders of the columns with what they were fitted to, as JSON values; empty for columns as the source has them.
        owner: what the rows belong to, "node" or "edge", for errors.
    """

    where: str
    num_rows: int
    width: int
    dtype: np.dtype[Any] | str
    slices: Callable[[], Iterator[tuple[int, Array]]]
    first: int = 0
    place: Callable[[int, int], str] | None = None
    held: Callable[[int, int], str] | None = None
    node_of_row: Array | None = None
    named_twice: Sequence[str] = ()
    column: Callable[[int], str] | None = None
    recount: Recount | None = None
    encoders: Sequence[Mapping[str, Any]] = ()
    owner: str = "node"


def blocks_type(blocks: Sequence[FeatureBlock], asked: str, normalize: str) -> str:
    """Returns the name of the type in which blocks are stored, see `stored_type`; without blocks `asked`, or "uint8" for "as stored".

    Blocks whose stored types differ are stored in one that has the values of all, or in float32 if that is neither kept nor wider.
    """
    if not blocks:
        return "uint8" if asked == "as stored" else asked
    return common_type([stored_type(block.dtype, asked, normalize, block.where) for block in blocks])


def blocks_width(blocks: Sequence[FeatureBlock]) -> int:
    """Returns the number of columns of the table of blocks, that of the widest; without blocks 1, a column of ones."""
    return max((block.width for block in blocks), default=1)


def columns_of_types(blocks: Sequence[FeatureBlock], node_types: Mapping[str, int]) -> list[int]:
    """Returns the number of columns of each node type's own features, 0 for a type without features.

    Args:
        node_types: name -> number of nodes, in the order of their ids; without types the result is empty.
    """
    found, first = [], 0
    for count in node_types.values():
        inside = [block.width for block in blocks if block.num_rows and first <= block.first < first + count]
        # A block of all nodes, as a file without a type has it, covers every type.
        over = [block.width for block in blocks if block.first <= first < block.first + block.num_rows]
        found.append(max([*inside, *over], default=0) if count else 0)
        first += count
    return found


def write_blocks(
    writer: Writer, num_nodes: int, blocks: Sequence[FeatureBlock], asked: str, normalize: str, progress: Progress
) -> tuple[str, list[Rounding]]:
    """Writes `rows` [R, F], their `page_digests`, and `row_of` ids[N] if some nodes have no features; without blocks, one column of ones.

    Args:
        blocks: the features, by the ids of their nodes.
        normalize: "none", or "row": divide each row by the sum of its absolute values; a row of zeros stays.

    Returns:
        The place of the first value that is infinite as float32, in words ("" without one), and what is known of rounded numbers.

    Raises:
        InputError: rows are missing, or a value is not finite, in the file or in the stored type.
    """
    stored, num_rows = blocks_type(blocks, asked, normalize), sum(block.num_rows for block in blocks)
    beyond, watched = "", watches(blocks, stored)
    if blocks:
        beyond = _write_rows(writer, num_rows, watched, stored, normalize, progress)
    else:
        writer.create("rows", (num_nodes, 1), array_type(stored))[...] = as_stored(np.ones((1, 1), np.float32), stored)
    writer.save("page_digests", page_digests_of(writer.path("rows.npy"), DATA_OFFSET))
    if blocks and num_rows < num_nodes:
        writer.save("row_of", _row_of(blocks, num_nodes))
    return beyond, [watch for _, watch in watched]


def watches(blocks: Sequence[FeatureBlock], stored: str) -> list[tuple[FeatureBlock, Rounding]]:
    """Returns each block with the object that watches its rows as they are stored, in the order of their nodes."""
    return [(block, _watch(block, stored)) for block in sorted(blocks, key=lambda each: each.first)]


def _watch(block: FeatureBlock, stored: str) -> Rounding:
    name = block.column or (lambda column: f"column {column} of {block.where}")
    return Rounding(stored, name, block.recount if block.dtype == np.float32 else None)


def _write_rows(
    writer: Writer,
    num_rows: int,
    watched: Sequence[tuple[FeatureBlock, Rounding]],
    stored: str,
    normalize: str,
    progress: Progress,
) -> str:
    table = writer.create("rows", (num_rows, blocks_width([block for block, _ in watched])), array_type(stored))
    progress.start("features", num_rows, "rows")
    first_row, beyond = 0, ""
    for block, watch in watched:
        found = _write_block(table, first_row, block, watch, stored, normalize, progress)
        beyond = beyond or found
        first_row += block.num_rows
    progress.done()
    return beyond


def _row_of(blocks: Sequence[FeatureBlock], num_nodes: int) -> Array:
    """Returns ids[N], the row of each node, -1 for a node that no block covers."""
    row_of, first_row = np.full(num_nodes, -1, id_dtype(num_nodes)), 0
    for block in sorted(blocks, key=lambda each: each.first):
        row_of[block.first : block.first + block.num_rows] = np.arange(first_row, first_row + block.num_rows)
        first_row += block.num_rows
    return row_of


def _write_block(
    table: Array, first_row: int, block: FeatureBlock, watch: Rounding, stored: str, normalize: str, progress: Progress
) -> str:
    beyond = ""
    for low, rows in checked_slices(block, stored, normalize, watch):
        done = low + len(rows)
        beyond = beyond or _beyond_float32(rows, low, block)
        target: Any = slice(first_row + low, first_row + done)
        if block.node_of_row is not None:
            target = block.node_of_row[low:done] + (first_row - block.first)
        table[target, : block.width] = rows
        forget_pages(table)
        progress.advance(len(rows))
    return beyond


def _beyond_float32(rows: Array, low: int, block: FeatureBlock) -> str:
    """Returns the place of the first value of f64[n, F] that float32 cannot hold, by the id of its node; "" without one."""
    if rows.dtype != np.float64 or np.isfinite(as_stored(rows, "float32")).all():
        return ""
    row, column = (int(i) for i in np.argwhere(~np.isfinite(as_stored(rows, "float32")))[0])
    node = block.first + low + row if block.node_of_row is None else int(block.node_of_row[low + row])
    return f"column {column} of {block.owner} {node} is {rows[row, column]}"


def checked_slices(
    block: FeatureBlock, stored: str, normalize: str, watch: Rounding | None = None
) -> Iterator[tuple[int, Array]]:
    """Yields (first row, rows[n, F] in the stored type) that cover the rows of a block, each value checked.

    Args:
        watch: gets the rows as they are in the source, unless they are divided.

    Raises:
        InputError: rows are missing, or a value is not finite, in the file or in the stored type.
    """
    done = 0
    for low, rows in block.slices():
        done = low + len(rows)
        if done > block.num_rows:
            break
        _refuse_non_finite(rows, rows, low, block)
        if watch is not None and normalize != "row":
            watch.look(rows)
        rows = divide_rows(rows) if normalize == "row" else rows
        yield low, _fitting(rows, low, stored, block)
    if done != block.num_rows:
        raise InputError(
            f"{block.where}: has {'more than ' if done > block.num_rows else ''}{min(done, block.num_rows)} rows of features "
            f"for {block.num_rows} {block.owner}s",
            f"give one row of features for every {block.owner}",
        )


def _fitting(rows: Array, low: int, stored: str, block: FeatureBlock) -> Array:
    """Returns rows[n, F] in the stored type, whose largest value may be too small for them."""
    found = as_stored(rows, stored)
    if found.dtype != rows.dtype:
        values = widened(found) if stored == BFLOAT16 else found
        _refuse_non_finite(values, rows, low, block, f", which {stored} cannot hold")
    return found


def _refuse_non_finite(found: Array, rows: Array, low: int, block: FeatureBlock, why: str = "") -> None:
    """Raises InputError with the first place where `found` is NaN or infinite, and the value that `rows` have there."""
    if found.dtype.kind != "f" or np.isfinite(found).all():
        return
    row, column = (int(i) for i in np.argwhere(~np.isfinite(found))[0])
    place = block.place(low + row, column) if block.place else f"{block.where} row {low + row} column {column}"
    held = block.held(low + row, column) if block.held and np.isinf(found[row, column]) else ""
    if held.strip(" +-").lower() not in ("", "inf", "infinity"):
        problem = f"{place} holds {held}, beyond the range of {rows.dtype}"
        raise InputError(problem, "scale the features, or write Parquet")
    remedy = (
        f"give every {block.owner} finite features, and run again"
        if not why
        else "scale the features, or ask for float32"
    )
    raise InputError(f"{place} is {rows[row, column]}{why}", remedy)
