"""Seconds of an exact and of a sampled evaluation on a reference machine, by which `eval = "auto"` chooses (trainers/inference/choice.py).

What is measured differs from run to run, and a choice by it would change scores from one run to the next. So the rates are those of one
machine of two cores, and the rest is counted: rows, edges, batches, and the share of the features that memory cannot hold. They are the
terms of `graphmill plan` (forecast.py), which has this machine's own rates.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from graphmill.assets.costs.needs import Sizes
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.forecast import summed_columns
from graphmill.trainers.recipe.costs.step import layer_widths

ROW, EDGE, DRAW, BYTE = 2e-9, 2e-10, 2e-8, 2e-10
"""Seconds of an input column of a row that is mapped, of a column of an edge that is summed, of a drawn edge, and of a gathered byte."""
BATCH = 2e-3
"""Seconds of a batch apart from its rows and edges."""
DISK, PAGES = 1e9, 2e8
"""Bytes of a disk per second, in order and of scattered pages."""
EPOCHS = 10
"""Epochs whose evaluations count. That of the table does not: a training that is made longer later evaluates as it began."""


@dataclass(frozen=True, kw_only=True)
class ReferenceCosts:
    """The costs of evaluations of one recipe on the reference machine.

    Attributes:
        width, row_bytes: columns and bytes of a row of the features.
        missing: share of the features that memory cannot hold.
    """

    train: TrainConfig
    width: int
    row_bytes: int
    num_classes: int
    missing: float

    @property
    def evaluations(self) -> int:
        """Number of evaluations after `EPOCHS` epochs; the last epoch is always evaluated."""
        every = self.train.eval_every
        return max(1, -(-EPOCHS // every)) if every else 1

    def exact(self, levels: Iterable[tuple[int, int]], num_nodes: int) -> Iterator[float]:
        """Yields the seconds of an exact evaluation so far, from the last layer down; the last number is that of all layers.

        Args:
            levels: (nodes, their edges) that each layer computes, from the last one down.
        """
        widths, seconds, nodes, edges = self._widths, 0.0, 0, 0
        for layer, (nodes, edges) in zip(reversed(range(len(widths))), levels, strict=False):
            if layer + 1 < len(widths):
                seconds += ROW * widths[layer + 1][0] * nodes  # which the layer above reads
            seconds += EDGE * self._summed(layer) * edges
            yield seconds
        inputs = min(num_nodes, nodes + edges)
        mapped = ROW * self._first_columns * inputs
        yield seconds + max(mapped, inputs * self.row_bytes / DISK * (self.missing > 0))

    def batch(self, rows: Sequence[int], edges: Sequence[int]) -> float:
        """Returns the seconds of a sampled batch, whose rows come at random, by the input rows of each layer and the seeds."""
        read = self.missing * rows[0] * (PAGE_BYTES + self.row_bytes) / PAGES
        seconds = BATCH + DRAW * sum(edges) + BYTE * rows[0] * self.row_bytes
        seconds += ROW * self.width * rows[0] * self.train.projects
        for layer, (wide, _) in enumerate(self._widths):
            mapped = rows[layer] if self.train.model == "gat" else rows[layer + 1]
            seconds += ROW * wide * mapped + EDGE * self._summed(layer) * edges[layer]
        return max(seconds, read)

    @property
    def _widths(self) -> list[tuple[int, int]]:
        return layer_widths(self.train, self.width, self.num_classes)

    @property
    def _first_columns(self) -> int:
        """Input columns of a node's row that are mapped before the second layer: by a projection and by the first layer."""
        return self.width * self.train.projects + self._widths[0][0]

    def _summed(self, layer: int) -> int:
        return summed_columns(self.train, *self._widths[layer])


def reference_costs(train: TrainConfig, sizes: Sizes, num_classes: int, memory_bytes: int) -> ReferenceCosts:
    """Returns the costs of a recipe.

    Args:
        sizes: sizes of the features.
        memory_bytes: memory of the machine, or its limit; half of it may hold features.
    """
    missing = max(0.0, 1 - memory_bytes / 2 / max(1, sizes.feature_bytes))
    return ReferenceCosts(
        train=train, width=sizes.width, row_bytes=sizes.row_bytes, num_classes=max(2, num_classes), missing=missing
    )
