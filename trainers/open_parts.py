"""What a rank trains on: its parts, their rows, and how logits are computed where no rank has all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from assets.budgets.read import open_budgets
from assets.building.stage import Progress
from assets.graph.read import Graph
from assets.hotness.read import open_hotness
from assets.partitions.read import open_partitions
from assets.sampling.drawing import Drawing
from assets.shards.read import Shards, open_shards
from assets.sizes import format_bytes, parse_size
from assets.storage.require import require
from kernels.errors import InputError
from kernels.sampling.epoch_plan import EpochPlan
from kernels.sampling.part_plan import PartPlan
from kernels.types import Stream
from trainers.devices.open import open_device
from trainers.evaluate import Bounds
from trainers.models.own import Model
from trainers.open_rows import Features
from trainers.part_inference import infer_exact_by_parts, infer_sampled_by_parts
from trainers.ranks.group import LinkModel, Ranks
from trainers.rows.sharded import Ownership, ShardedSource, hottest_elsewhere, open_ownership
from trainers.techniques.distributed_settings import DistributedSettings

if TYPE_CHECKING:
    from assets.storage.artifact import Artifact
    from trainers.config import ModelConfig, TrainExecution


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a rank.

    Attributes:
        graph: what is trained on.
        plan: the batches of all parts.
        features: the rows of this rank's parts, and those of others through them.
        semantic: the recipe.
        drawing: how neighbours are drawn.
    """

    graph: Graph
    plan: PartPlan
    features: Features
    semantic: ModelConfig
    drawing: Drawing

    def infer(self, model: Model, node_ids: np.ndarray, folder: Path, progress: Progress) -> Tensor:
        """Returns the logits of nodes, by the table's way of evaluation; all ranks call it with the same nodes."""
        train, sampling, source = self.semantic.train, self.semantic.sampling, self.features.source
        assert isinstance(source, ShardedSource)
        bounds = Bounds(
            workspace_bytes=parse_size(train.eval_workspace),
            threads=train.threads,
            folder=folder,
            progress=progress,
            device=self.features.device,
            dtype=train.dtype,
            drawing=self.drawing,
        )
        topology = self.graph.topology
        if train.eval == "exact":
            return infer_exact_by_parts(model, topology, source, bounds, node_ids)
        assert sampling is not None
        seed = self.semantic.seed
        sampler = self.drawing.sampler(topology, seed=seed, threads=train.threads)
        plan = EpochPlan(np.arange(len(node_ids)), sampling.batch_size, seed=seed, stream=Stream.EVAL)
        return infer_sampled_by_parts(model, topology, source, bounds, node_ids, sampler, plan)


def open_parts(
    graph: Graph,
    inputs: Mapping[str, Artifact],
    reads: Mapping[str, Artifact],
    semantic: ModelConfig,
    execution: TrainExecution,
    ranks: Ranks,
    drawing: Drawing | None,
) -> Parts:
    """Opens the shards of a rank and fills its cache; all ranks call it.

    Args:
        graph: what is trained on.
        inputs, reads: artifacts by stage: `partitions`, `shards`, and for a cache `hotness` and `budgets`.
        semantic, execution: the recipe.
        ranks: this process and the others.
        drawing: how neighbours are drawn.

    Raises:
        InputError: an artifact is of another graph, the parts cannot be shared evenly, or a shard is missing.
    """
    if "shards" not in reads:
        problem = f'trainer = "{semantic.train.trainer}", but no shards were given'
        raise InputError(problem, "graphmill build PIPELINE builds them")
    partitions, shards = open_partitions(inputs["partitions"]), open_shards(reads["shards"])
    made_of = {role: inputs[role] for role in ("partitions", "features") if role in inputs}
    require(reads["shards"], {"inputs": made_of})
    if len(partitions.part_of) != graph.topology.num_nodes:
        problem = f"{len(partitions.part_of)} nodes have a part, the graph has {graph.topology.num_nodes}"
        raise InputError(problem, "build both from one source: graphmill build PIPELINE")
    owned = open_ownership(partitions, ranks.rank, ranks.world)
    settings, sampling = semantic.train.settings, semantic.sampling
    assert isinstance(settings, DistributedSettings | None)
    settings = settings or DistributedSettings()
    assert sampling is not None and drawing is not None
    work_bytes = parse_size(execution.workspace) if execution.workspace else None
    device = open_device(semantic.train.device, work_bytes, execution.link_gbps)
    link = LinkModel(latency_seconds=settings.latency_us * 1e-6, gbps=settings.rank_gbps)
    lane = ranks.lane(link if settings.latency_us or settings.rank_gbps else None)
    source = ShardedSource(shards, owned, lane, device, execution.features)
    train_ids = np.array(graph.train_ids)
    plan = PartPlan(
        train_ids,
        owned.part_of[train_ids],
        partitions.num_parts,
        sampling.batch_size,
        seed=semantic.seed,
        reuse=sampling.reuse,
        accumulate=semantic.train.accumulate,
    )
    given = {**inputs, **reads}
    record = _fill_cache(source, shards, owned, given, execution) if {"hotness", "budgets"} <= given.keys() else {}
    stored = shards.tables(owned.parts)[0]
    # Nobody reads the table as a whole: evaluation goes through the source.
    features = Features(stored=stored, table=source, source=source, device=device, record=record)
    return Parts(graph=graph, plan=plan, features=features, semantic=semantic, drawing=drawing)


def _fill_cache(
    source: ShardedSource,
    shards: Shards,
    owned: Ownership,
    given: Mapping[str, Artifact],
    execution: TrainExecution,
) -> dict[str, int]:
    """Copies the hottest rows of other ranks within [memory] host, and returns what the cache is."""
    budgets, hotness = open_budgets(given["budgets"]), given["hotness"]
    require(hotness, {"arrays": {"order": {"shape": (len(owned.part_of),)}}})
    held = source.held_bytes if execution.features == "memory" else 0
    if held > budgets.host_bytes and "host" not in budgets.automatic:
        problem = f'features = "memory" holds {format_bytes(held)} of shards where [memory] host allows {budgets.host_bytes:,} bytes'
        raise InputError(problem, 'raise host, or set features = "mapped"')
    num_rows = max(0, budgets.host_bytes - held) // max(1, source.row_bytes)
    source.fill(hottest_elsewhere(open_hotness(hotness).order, owned, shards.row_of, num_rows))
    return {"host_budget_bytes": budgets.host_bytes, "host_rows": source.cached_rows}
