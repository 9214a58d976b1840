"""The scores of predictions on a graph that a model was not trained on: of the nodes whose labels are there."""

from collections.abc import Callable, Iterator

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.assets.sizes import format_bytes
from graphmill.assets.tasks.labels import labelled
from graphmill.kernels.types import Array
from graphmill.trainers.record.scores import ERRORS, METRICS, shown
from graphmill.trainers.tasks.opened import open_task

OF = "known"
"""Stands for a split in the names of numbers."""


class Scores:
    """Keeps the logits of labelled nodes as they pass, and scores them.

    Args:
        graph: the graph with its labels, and the classes of the model.
        trained: the graph of the training, which has the unit of predicted numbers.
        places: (low, high) -> i64[k], those of the nodes from low to high that are predicted, counted from low.
        most_bytes: bytes that kept logits may take.
    """

    def __init__(self, graph: Graph, trained: Graph, places: Callable[[int, int], Array], most_bytes: int):
        self.graph, self.task, self.places, self.left = graph, open_task(trained), places, most_bytes
        self.kept: list[tuple[Array, Array]] = []

    def add(self, low: int, high: int, logits: Array) -> None:
        """Keeps the logits of the labelled nodes among those from low to high, float[high - low, C]."""
        places = self.places(low, high)
        labels = np.asarray(self.graph.labels[low:high])[places]
        known = labelled(labels)
        if self.left >= 0 and known.any():
            self.kept.append((logits[places[known]], labels[known]))
            self.left -= self.kept[-1][0].nbytes

    def numbers(self, metric: str) -> dict[str, float]:
        """Returns known_METRIC -> score; none if no label is known or there are no logits. `metric` is that of the train table."""
        if not self.kept or self.left < 0:
            return {}
        logits, labels = (np.concatenate(each) for each in zip(*self.kept, strict=True))
        return self.task.numbers(metric, {OF: (logits, labels)})

    def lines(self, metric: str) -> Iterator[str]:
        """Yields a line for each score, or why there is none; `metric` is that of the train table."""
        if not self.kept:
            yield "no node that is predicted has a label, so there are no scores"
            return
        if self.left < 0:
            yield f"no scores: the logits of the labelled nodes need {format_bytes(-self.left)} more than a quarter of the workspace"
            return
        known = sum(len(labels) for _, labels in self.kept)
        for name, value in self.numbers(metric).items():
            each = name.removeprefix(f"{OF}_")
            yield f"{(METRICS | ERRORS)[each]} {shown(each, value)} of {known:,} nodes whose label is known"
