"""A toy technique without mini-batches: every step is one pass over the whole graph, and the executor keeps a state of its own.

The loss of a step is scaled by a running mean of the losses before it, so a resumed run needs that state to end with the same bits.
"""

from collections.abc import Generator, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.loop.executor import Done, Executor, Run
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.rows.source import RowIds


class WholeGraph(Executor):
    def __init__(self, run: Run):
        super().__init__(run)
        self.mean = torch.ones(())
        nodes = np.arange(run.graph.topology.num_nodes, dtype=np.int32)
        (self.block,) = Sampler(run.graph.topology, (-1,), seed=0).sample(
            BatchKey(Stream.TRAIN, 0, 0), nodes, transpose="all"
        )
        attach_weights((self.block,), run.graph.topology, run.model.edge_weight)
        self.x = torch.empty((len(nodes), run.features.source.width))
        run.features.source.gather(RowIds(self.block.src_ids), self.x, run.ledger)
        order = np.argsort(self.block.dst_ids)
        self.seeds = torch.from_numpy(order[np.asarray(run.graph.train_ids)])
        self.labels = torch.from_numpy(np.asarray(run.graph.labels)[np.asarray(run.graph.train_ids)]).long()

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        if start == 0:
            blocks = (self.block,) * self.run.semantic.train.layers
            logits = self.run.model(blocks, self.x, StepRandom(self.run.semantic.seed, epoch, 0))
            loss = functional.cross_entropy(logits[self.seeds], self.labels, reduction="sum")
            (loss / self.mean).backward()
            self.mean = 0.9 * self.mean + 0.1 * loss.detach() / len(self.labels)
            yield Done(0, loss.item(), len(self.labels), True)

    def state(self) -> Mapping[str, Tensor]:
        return {"mean": self.mean}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.mean = state["mean"]


def open_executor(run: Run) -> WholeGraph:
    return WholeGraph(run)
