"""How a stored cache plan is opened."""

from typing import Any

from graphmill.assets.cache_plan.stage import CachePlanStage
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_vector
from graphmill.assets.storage.local.require import require
from graphmill.kernels.disk_cache.segments import SegmentPlan
from graphmill.kernels.rows.placement import Placement
from graphmill.kernels.types import Array


def open_placement(artifact: Artifact) -> Placement:
    """Returns the static tiers of a cache_plan artifact, mapped."""
    _require(artifact)
    return Placement(**{name: artifact.array(name) for name in ("slot", "device_ids", "host_ids")})


def open_segment_plan(artifact: Artifact) -> SegmentPlan:
    """Returns the segments of a cache_plan artifact, mapped; raises as `open_placement`."""
    _require(artifact)
    names = ("segment_of", "cache_ptr", "cache_ids", "member_ptr", "members", "packed_ptr", "packed_ids")
    return SegmentPlan(**{name: artifact.array(name) for name in names}, first_batch=0)


def wanted_counts(plan: Artifact, samples: Artifact) -> Array:
    """Returns i64[B], the rows that each batch needs of the table that a plan is about: as many as its slots."""
    if plan.config.get("edges"):  # every row of edges is in one tier
        return plan.small_array("tier_rows").sum(axis=1)
    return read_vector(samples, "num_inputs")


def _require(artifact: Artifact) -> None:
    arrays: dict[str, Any] = {name: {"dtype": "int32", "ndim": 1} for name in ("slot", "segment_of", "members")}
    arrays |= {name: {"dtype": "int64", "ndim": 1} for name in ("cache_ptr", "member_ptr", "packed_ptr")}
    ids = ("device_ids", "host_ids", "cache_ids", "packed_ids")
    arrays |= {name: {"dtype": ("int32", "int64"), "ndim": 1} for name in ids}
    require(artifact, {"stage": CachePlanStage.name, "arrays": arrays})
