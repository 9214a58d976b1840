"""What supplies the mini-batches of a run: a sampler, stored samples, or stored samples with packed rows.

All three give the same batches to the byte, so which one it is decides no weight.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assets.graph.read import Graph
from assets.packed_chunks.read import Chunks
from assets.samples.read import open_samples
from assets.sizes import parse_size
from assets.storage.artifact import Artifact
from assets.storage.require import require
from kernels.errors import InputError
from kernels.sampling.epoch_plan import EpochPlan
from trainers.batches.online import OnlineSource
from trainers.batches.source import BatchSource
from trainers.batches.stored import OfflineSource, StoredSampler, require_samples
from trainers.config import ModelConfig, TrainExecution
from trainers.devices.link import Link
from trainers.models.own import Model
from trainers.open_rows import Features
from trainers.record.ledger import Ledger
from trainers.record.timeline import Timeline
from trainers.rows.packed import loader_reading
from trainers.techniques.disk import DiskSource


@dataclass(frozen=True, kw_only=True)
class StoredInputs:
    """Stored batches of a run, and their rows.

    Attributes:
        samples: of the run's graph and sampling.
        cache_plan, packed_chunks: made from these samples; None where rows are not packed.
    """

    samples: Artifact
    cache_plan: Artifact | None = None
    packed_chunks: Artifact | None = None

    @property
    def artifacts(self) -> Mapping[str, Artifact]:
        """Role -> artifact of what is there."""
        named = {"samples": self.samples, "cache_plan": self.cache_plan, "packed_chunks": self.packed_chunks}
        return {role: artifact for role, artifact in named.items() if artifact is not None}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a source of batches needs to know about its run.

    Attributes:
        graph, graph_version: what is trained on.
        semantic, execution: the recipe.
        plan: which batch comes when.
        features: where rows come from, and the device.
        model: says what it wants on blocks.
        ledger, timeline: listen.
    """

    graph: Graph
    graph_version: str
    semantic: ModelConfig
    execution: TrainExecution
    plan: EpochPlan
    features: Features
    model: Model
    ledger: Ledger
    timeline: Timeline


def open_batches(run: Run, stored: StoredInputs | None) -> BatchSource:
    """Opens the batches of a run.

    Raises:
        InputError: the table asks for stored batches or packed rows that are not given, or are another run's.
    """
    train, execution = run.semantic.train, run.execution
    wanted = train.trainer == "disk" or execution.samples == "stored"
    if not wanted:
        return OnlineSource(**_common(run), **_sampled(run))
    if stored is None:
        problem = 'trainer = "disk"' if train.trainer == "disk" else 'samples = "stored"'
        raise InputError(f"{problem}, but no samples were given", "add a table [samples] to the pipeline")
    require(stored.samples, {"inputs": {"graph": run.graph_version}})
    samples = open_samples(stored.samples)
    if train.trainer != "disk":
        return OfflineSource(samples, epochs=train.epochs, **_common(run), **_sampled(run))
    if stored.cache_plan is None or stored.packed_chunks is None:
        raise InputError('trainer = "disk", but no packed chunks were given', "add tables [memory] and [cache_plan]")
    sampling = run.semantic.sampling
    require_samples(samples, run.plan, train.epochs, sampling.fanouts, sampling.method, run.semantic.seed)
    table = run.graph.features
    return DiskSource(
        sampler=StoredSampler(samples),
        chunks=Chunks(stored.packed_chunks, stored.cache_plan, stored.samples),
        width=table.width,
        dtype=table.dtype,
        row_bytes=table.row_bytes,
        reading=loader_reading(
            parse_size(execution.io_window),
            method=execution.io,
            fallback=execution.io_fallback,
            depth=execution.io_depth,
        ),
        device=run.features.device,
        link=Link(execution.link_gbps) if execution.link_gbps else None,
        **_common(run),
    )


def _common(run: Run) -> dict[str, Any]:
    return {
        "topology": run.graph.topology,
        "labels": run.graph.labels,
        "plan": run.plan,
        "edge_weight": run.model.edge_weight,
        "transpose": run.model.transpose,
        "ledger": run.ledger,
        "queue_bytes": parse_size(run.execution.queue),
        "timeline": run.timeline,
    }


def _sampled(run: Run) -> dict[str, Any]:
    sampling = run.semantic.sampling
    return {
        "features": run.features.source,
        "fanouts": sampling.fanouts,
        "method": sampling.method,
        "seed": run.semantic.seed,
        "workers": run.execution.samplers or max(1, (os.cpu_count() or 1) - 1),
    }
