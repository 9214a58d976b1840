"""Texts of the page of packed chunks."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the number and bytes of the chunks, and the bytes of the disk caches."""
    numbers = artifacts[0].summary["numbers"]
    chunks, caches = (format_bytes(numbers[name]) for name in ("chunk_bytes", "cache_bytes"))
    segments = f"{numbers['num_segments']:,} segment" + ("s" if numbers["num_segments"] != 1 else "")
    return f"**{numbers['num_batches']:,} chunks, {chunks}**, and disk caches of {segments}, {caches}"


PACKED_CHUNKS_PAGE = Page(
    about="The feature rows that each batch needs from disk, written next to each other, beside the disk cache of each segment of batches. "
    "Training from disk then reads a few long ranges per batch in place of thousands of single rows. "
    "Look at the sizes of chunks and caches, which are what packing costs on disk, and at the largest chunk, which a queue has to hold.",
    docs="docs/stages/packed_chunks.md",
    headline=headline,
    first=("num_batches", "chunk_bytes", "cache_bytes", "largest_chunk_bytes", "packed_rows", "cached_rows"),
    labels={"chunk_bytes": "chunks (MiB)", "cache_bytes": "caches (MiB)"},
    columns={
        "part_of": "part that holds the chunk of the batch",
        "offsets": "byte of the part's file at which the chunk starts",
        "num_bytes": "bytes of the chunk",
        "num_cached": "rows that the batch reads of its segment's cache",
        "digests": "digest of the chunk",
    },
)
