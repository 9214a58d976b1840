"""The parent of packed chunks: the places of all chunks and segment caches.

assets/packed_chunks/__init__.py describes the arrays.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Building, Check, Summary
from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.types import Array


def build_index(building: Building[PackedConfig, PackedExecution], names: Sequence[str]) -> Summary:
    """Writes the parent over the parts, which are among the inputs under their names."""
    inputs, writer = building.inputs, building.writer
    parts, plan, table = [inputs[name] for name in names], inputs["cache_plan"], open_features(inputs["features"])
    index = _index(parts)
    for name, values in index.items():
        writer.save(name, values)
    numbers = _numbers(index, parts, plan, table.row_bytes)
    return Summary(numbers=numbers, checks=_checks(index, parts, plan), figures=_draw(index, numbers, plan, writer))


def _index(parts: Sequence[Artifact]) -> dict[str, Array]:
    # The chunks themselves may lie on other machines, and stay there.
    chunks, caches = ([part.small_array(name) for part in parts] for name in ("bounds", "cache_bounds"))
    return {
        "part_of": np.repeat(np.arange(len(parts), dtype=np.int32), [len(each) - 1 for each in chunks]),
        "offsets": np.concatenate([each[:-1] for each in chunks]),
        "num_bytes": np.concatenate([np.diff(each) for each in chunks]),
        "num_cached": np.concatenate([part.small_array("num_cached") for part in parts]),
        "digests": np.concatenate([part.small_array("digests") for part in parts]),
        "cache_offsets": np.concatenate([each[:-1] for each in caches]),
        "cache_bytes": np.concatenate([np.diff(each) for each in caches]),
    }


def _numbers(index: Mapping[str, Array], parts: Sequence[Artifact], plan: Artifact, row_bytes: int) -> dict[str, Any]:
    packed_rows, cached_rows = len(plan.array("packed_ids")), len(plan.array("cache_ids"))
    return {
        "num_batches": len(index["offsets"]),
        "num_segments": len(index["cache_offsets"]),
        "num_parts": len(parts),
        "row_bytes": row_bytes,
        "packed_rows": packed_rows,
        "cached_rows": cached_rows,
        "chunk_bytes": int(index["num_bytes"].sum()),
        "cache_bytes": int(index["cache_bytes"].sum()),
        "device_rows": len(plan.array("device_ids")),
        "host_rows": len(plan.array("host_ids")),
        "largest_chunk_bytes": int(index["num_bytes"].max(initial=0)),
    }


def _draw(index: Mapping[str, Array], numbers: Mapping[str, Any], plan: Artifact, writer: Writer) -> dict[str, str]:
    from graphmill.assets.figures.tiers import packing_figure

    row_bytes, planned = numbers["row_bytes"], plan.summary["numbers"]
    packed = np.diff(np.asarray(plan.array("packed_ptr"))) * row_bytes
    rows, caches = numbers["packed_rows"] * row_bytes, numbers["cached_rows"] * row_bytes
    space = {
        "packed rows": rows,
        "disk caches": caches,
        "addresses and padding": numbers["chunk_bytes"] + numbers["cache_bytes"] - rows - caches,
        "full packing": planned["full_packing_bytes"],
        "features": planned["feature_bytes"],
        "budget": planned["disk_budget_bytes"],
    }
    pages = np.asarray(plan.array("pages")) * PAGE_BYTES
    read = {"packed rows": packed, "disk caches": pages, "addresses and padding": index["num_bytes"] - packed}
    packing_figure(writer.path("packing.png"), space, read)
    return {"space and bytes per batch": "packing.png"}


def _checks(index: Mapping[str, Array], parts: Sequence[Artifact], plan: Artifact) -> list[Check]:
    """Tests the index; the rows themselves were compared in each part."""
    planned, chunks = len(plan.array("segment_of")), len(index["offsets"])
    made = [check for part in parts for check in part.summary["checks"]]
    counts = {
        name: sum(check.get("numbers", {}).get(name, 0) for check in made)
        for name in ("rows compared", "rows that differ", "rows")
    }
    ragged = int(np.count_nonzero((index["offsets"] % PAGE_BYTES != 0) | (index["num_bytes"] % PAGE_BYTES != 0)))
    return [
        Check(
            name="one chunk a batch",
            passed=chunks == planned,
            detail=f"{chunks:,} chunks are packed, the plan has {planned:,} batches",
            numbers={"chunks": chunks, "batches": planned},
        ),
        Check(
            name="chunks begin on pages",
            passed=ragged == 0,
            detail=f"{ragged:,} of {chunks:,} chunks begin or end inside a page of {PAGE_BYTES:,} bytes",
            numbers={"chunks off the pages": ragged, "allowed off the pages": 0, "page, bytes": PAGE_BYTES},
        ),
        Check(
            name="rows are the features",
            passed=all(check["passed"] for check in made),
            detail=f"{counts['rows compared']:,} drawn rows of {counts['rows']:,} were compared with the table byte by byte, "
            f"in each of {len(parts):,} parts; {counts['rows that differ']:,} differ",
            numbers=counts,
        ),
    ]
