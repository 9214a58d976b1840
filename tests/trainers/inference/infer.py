"""Logits of a model on a graph, by all neighbours, in the memory and on the threads that a test names."""

from typing import Any

from torch import Tensor

from graphmill.kernels.types import Array, Topology
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.models.own import Model
from graphmill.trainers.rows.source import FeatureSource


def infer_exact(
    model: Model,
    topology: Topology,
    features: FeatureSource,
    workspace_bytes: int = 1 << 30,
    threads: int = 2,
    *,
    node_ids: Array | None = None,
    **more: Any,
) -> Tensor:
    bounds = Bounds(workspace_bytes=workspace_bytes, threads=threads, **more)
    return Inference(model, topology, features, bounds).exact(node_ids)
