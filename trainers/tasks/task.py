"""The one type of what a training learns of a node or an edge; a kind of task is a subclass, in a file of its own.

The stored labels of each kind are in assets/tasks/labels.py, the losses in trainers/models/loss.py and, of links, in
trainers/models/links/losses.py. Everything else that differs by kind
is here, so the loop, the techniques and the sources of batches know nothing of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
from torch import Tensor

from graphmill.assets.graph.read import Graph
from graphmill.assets.tasks.labels import Kind
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.models.loss import Loss
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.scores import METRICS_OF

Scored = Mapping[str, tuple[Array, Array]]
"""Split -> logits float[n, C] and labels of its nodes, at least one."""
Outputs = dict[str, tuple[Tensor, Array]]
"""The same, with logits as tensors on the host."""


class Infer(Protocol):
    """Computes the outputs of a trained model."""

    def __call__(self, node_ids: Array, times: Array | None = None) -> Tensor:
        """Returns float[n, C], the outputs for nodes ids[n], on the host; as of times f64[n], or of the nodes' own."""
        ...


class TrainingTask(ABC):
    """What a training learns of nodes or edges."""

    # Kind of labels.
    kind: ClassVar[Kind]
    # Unit of the loss after the word, "" for none.
    loss_unit: ClassVar[str] = ", nats"
    # What a label belongs to, in words.
    seeds: ClassVar[str] = "nodes"

    def __init__(self, graph: Graph):
        self.graph, self.names = graph, graph.class_names

    @abstractmethod
    def loss(self, train: TrainConfig) -> Loss:
        """Returns the loss of a train table, its tensors on the host; raises InputError if a key does not fit the labels."""

    @abstractmethod
    def score(self, metric: str, logits: Array, labels: Array) -> float | None:
        """Returns a metric of float[n, C] and the stored labels of n > 0 nodes, larger is better; None if the labels do not define it."""

    @abstractmethod
    def chance(self, metric: str, labels: Array) -> tuple[float, str]:
        """Returns the score of an answer that ignores the node, and the words for that answer; arguments as in `score`."""

    def size(self, split: str) -> int:
        """Returns the number of nodes, or edges, of a split."""
        return len(getattr(self.graph, f"{split}_ids"))

    def scored(self, train: TrainConfig, splits: Sequence[str]) -> Sequence[str]:
        """Returns the splits on which the trained model is scored, of those that are scored if their nodes are the seeds."""
        return splits

    def outputs(self, splits: Sequence[str], infer: Infer, model: Model, *, at_once: bool, metric: str = "") -> Outputs:
        """Returns logits and labels, from which scores are computed, of each split that is not empty.

        Args:
            at_once: whether one pass of `infer` serves all splits, since it computes rows by all neighbours; of edges ends are else seen as
                of their times.
            metric: the one that is needed; "" for all of them.
        """
        ids = {split: np.array(getattr(self.graph, f"{split}_ids")) for split in splits if self.size(split)}
        if not ids:
            return {}
        logits = infer(np.concatenate(list(ids.values()))) if at_once else None
        found, first = {}, 0
        for split, node_ids in ids.items():
            part = infer(node_ids) if logits is None else logits[first : first + len(node_ids)]
            found[split] = part, self.graph.labels[node_ids]
            first += len(node_ids)
        return found

    def require(self, train: TrainConfig) -> None:
        """Raises InputError for a metric of another kind, and for one that the validation nodes do not define."""
        if train.metric not in METRICS_OF[self.kind]:
            problem = f"metric = {train.metric!r} is not a metric of [task] kind = {self.kind!r}"
            raise InputError(problem, f"give one of {', '.join(METRICS_OF[self.kind])}")

    def numbers(self, metric: str, scored: Scored) -> dict[str, float]:
        """Returns the numbers of a trained model by name: the usual metrics of the kind and the table's, those that are defined."""
        found = {}
        for each in dict.fromkeys((METRICS_OF[self.kind][0], metric)):
            values = {f"{split}_{each}": self.score(each, *of_split) for split, of_split in scored.items()}
            found |= {name: value for name, value in values.items() if value is not None}
        return found

    def document(self, scored: Scored) -> str | None:
        """Returns the content of `scores.json`; None if the kind has none."""
        return None
