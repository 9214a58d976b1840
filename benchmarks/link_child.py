"""DGL or GraphBolt that learns links, in a process that answers questions; see benchmarks/rival_child.py.

    python -m benchmarks.link_child SPEC.json

Both do as their own examples of link prediction: edges are seeds, each has one uniform pair beside it, the edges of a batch and their
reverses are taken out of its blocks, and the score is the dot product of two rows under binary cross entropy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch

from benchmarks.mapped_rivals import (
    LinkBatch,
    dgl_link_batches,
    graphbolt_link_batches,
    link_loss,
    reverse_places,
)
from benchmarks.rival_child import Rival, gradients, main


class LinkRival(Rival):
    """Answers by name; besides what `Rival` reads, SPEC names `edges`, i64[n] places of the seeds among the columns."""

    @cached_property
    def seeds(self) -> torch.Tensor:
        """i64[n], the edges that are trained on."""
        return torch.from_numpy(np.load(self.spec["edges"]))

    def _losses(self) -> Iterator[tuple[Any, torch.Tensor]]:
        for blocks, x, pairs, labels in self._link_batches():
            yield blocks, link_loss(self.model(blocks, x), pairs, labels)

    def _link_batches(self) -> Iterator[LinkBatch]:
        if self.system == "graphbolt":
            return graphbolt_link_batches(self.indptr, self.indices, self.seeds, self.rows, self.spec)
        return dgl_link_batches(self.graph, self.seeds, self.reverse, self.rows, self.spec)

    @cached_property
    def reverse(self) -> torch.Tensor:
        """i64[E], the place of every edge's reverse."""
        return reverse_places(self.indptr, self.indices)

    def compare(self, given: str, out: str) -> None:
        """Computes the loss of a batch by given parameters, and writes it with the gradients; a training begins with them.

        Args:
            given: file with the blocks (`src0`, `dst0`, `sizes0`, ...), the input rows `x`, `pairs` and `labels`, and parameters by name.
            out: file that gets `loss` and the gradients by name.
        """
        found, rows, known = self._computed(given)
        loss = link_loss(rows, *(torch.from_numpy(found[name]) for name in ("pairs", "labels")))
        loss.backward()
        np.savez(out, loss=loss.detach().numpy(), **gradients(known))


if __name__ == "__main__":
    main(LinkRival)
