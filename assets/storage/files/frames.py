"""Tables that are written to Parquet frame by frame, so that they need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars


def write_frames(
    path: Path, frames: Iterator[polars.DataFrame], row_group: int, record: Mapping[str, str] | None = None
) -> None:
    """Streams frames of one schema, one at least, into a Parquet file; `record` becomes its key-value metadata."""
    from polars.io.plugins import register_io_source

    first = next(frames)

    def source(*_: Any) -> Iterator[polars.DataFrame]:
        yield first
        yield from frames

    table = register_io_source(source, schema=first.schema, is_pure=False)
    how = {"compression": "zstd", "maintain_order": True, "metadata": dict(record or {})}
    table.sink_parquet(path, row_group_size=row_group, **how)  # pyright: ignore[reportArgumentType]
