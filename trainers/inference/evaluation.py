"""The evaluation of a training: logits of nodes in the way that the train table asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from graphmill.assets.building.stage import Progress
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import parse_size
from graphmill.kernels.sampling.epoch_plan import evaluation_plan
from graphmill.kernels.types import Array, Topology
from graphmill.trainers.batches.edge_rows import EdgeRows
from graphmill.trainers.batches.source import EvaluationSource
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import Domain
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.kept import RowLog
from graphmill.trainers.inference.needed import NeededNodes
from graphmill.trainers.inference.pace import ExactPace
from graphmill.trainers.inference.sampled import infer_sampled
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.exact import Needs
from graphmill.trainers.record.ledger import Line
from graphmill.trainers.rows.source import FeatureSource

WEIGHTS = Line("d2h", "parameter")


def evaluation(
    semantic: ModelConfig,
    topology: Topology,
    features: FeatureSource,
    device: Device,
    drawing: Drawing | None,
    domain: Callable[[Bounds], Domain] | None = None,
    needs: Needs | None = None,
    edge_rows: EdgeRows | None = None,
) -> Callable[[Model, Array, Path, Progress, EvaluationSource, Path | None, Array | None], Tensor]:
    """Returns the function that evaluates a model in the way of its train table (`Run.infer`, trainers/loop/executor.py).

    Args:
        topology, device, drawing, needs, edge_rows: as of `Inference` and its `Bounds`.
        features: rows of nodes for an exact evaluation, and for a sampled one of several processes.
        domain: a function that makes the domain of this process; None for all nodes.
    """
    train, sampling = semantic.train, semantic.sampling
    # Needed nodes of the validation nodes, and of all splits at the end; and what was hinted at.
    read_as: Any = {"device": device, "dtype": train.dtype, "drawing": drawing, "needs": needs, "edge_rows": edge_rows}
    read_as |= {"workspace_bytes": parse_size(train.eval_workspace), "threads": train.num_threads}
    known, hinted = dict[bytes, NeededNodes | None](), set[str]()

    def infer(
        model: Model,
        node_ids: Array,
        folder: Path,
        progress: Progress,
        source: EvaluationSource,
        kept: Path | None,
        times: Array | None = None,
    ) -> Tensor:
        name = xxhash.xxh3_128_digest(np.ascontiguousarray(node_ids).data)
        log = RowLog(kept, log_key(model, device, name * (train.eval == "exact"))) if kept else None
        bounds = Bounds(folder=folder, progress=progress, kept=log, **read_as)
        inference = Inference(model, topology, features, bounds, domain and domain(bounds))
        if train.eval == "exact":
            known[name] = known[name] if name in known else inference.needed(node_ids)
            pace = ExactPace(progress, inference.num_passes * inference.nodes.num_nodes, hinted)
            logits = inference.exact(node_ids, known[name])
            pace.end()
            return logits
        assert sampling is not None
        how: Any = {"batch_size": sampling.batch_size, "seed": semantic.sampling_seed}
        places = evaluation_plan(np.arange(len(node_ids)), **how)
        # Processes that share the rows exchange them batch by batch, so there nothing runs ahead. A source of batches knows nodes alone.
        ahead = None if domain or times is not None else source(evaluation_plan(node_ids, **how))
        return infer_sampled(inference, node_ids, places, ahead, hinted, times)

    return infer


def log_key(model: Model, device: Device, name: bytes) -> bytes:
    """Returns u8[16], the key of the rows that an inference keeps: a digest of the weights, and of a name of what is computed.

    A sampled inference has no name: one file has the batches of all splits.
    """
    found = xxhash.xxh3_128(name)
    for tensor in model.state_dict().values():
        weights = device.fetch(tensor.detach(), WEIGHTS, device.traffic)
        found.update(weights.contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()
