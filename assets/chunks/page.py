"""Texts of the page of chunks."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the rows that a pass loads from the host, and how many fewer these are than without sharing and reuse."""
    numbers = artifacts[0].summary["numbers"]
    v_ori, v_ru = numbers["v_ori"], numbers["v_ru"]
    saved = 100 * (1 - v_ru / max(1, v_ori))
    shape = f"{numbers['num_parts']:,} parts of {numbers['chunks_per_part']:,} chunks"
    return f"**{v_ru:,} rows from the host per layer**, {saved:.0f} % fewer than chunk by chunk; {shape}"


CHUNKS_PAGE = Page(
    about="A full-graph pass cut into steps: in each, every device computes one chunk of destinations with all of their in-edges. "
    "Devices share what they load and keep what the next step needs, so fewer rows cross from the host. "
    "Look at the volumes: V_ori loads every chunk alone, V_+p2p shares between devices, V_+ru keeps rows, too; no order can go below the "
    "distinct rows.",
    docs="docs/stages/chunks.md",
    headline=headline,
    first=("v_ori", "v_p2p", "v_ru", "num_distinct", "traffic_cut_ratio", "replication", "most_buffer_rows"),
    labels={
        "v_ori": "V_ori: rows from the host, chunk by chunk",
        "v_p2p": "V_+p2p: rows from the host, shared between devices",
        "v_ru": "V_+ru: rows from the host, shared and kept",
        "num_distinct": "distinct rows that are needed",
        "replication": "alpha: rows of all chunks per node",
        "most_buffer_rows": "rows of the largest buffer",
        "replication_by_chunks": "rows of all chunks per node, by chunks in all",
        "schedule_of_fewest_rows": "the schedule with the fewest rows from the host",
        "byte_nanoseconds": "nanoseconds of a layer per byte of a row, by equation 4",
        "byte_nanoseconds_of_fewest_rows": "the same with the fewest rows from the host",
        "volumes_by_schedule": "rows from the host per layer, by schedule",
    },
    columns={"digests": "xxh3-64 of the record of each step and device"},
)
