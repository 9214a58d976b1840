"""Tables that are written to Parquet frame by frame, so that they need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars


def write_frames(path: Path, frames: Iterator[polars.DataFrame], row_group: int) -> None:
    """Streams frames of one schema, one at least, into a Parquet file."""
    from polars.io.plugins import register_io_source

    first = next(frames)

    def source(*_: Any) -> Iterator[polars.DataFrame]:
        yield first
        yield from frames

    table = register_io_source(source, schema=first.schema, is_pure=False)
    table.sink_parquet(path, row_group_size=row_group, compression="zstd", maintain_order=True)
