"""A toy technique that prunes between sampling and gathering: nodes that an earlier step computed lose their in-edges.

Sampling runs ahead on threads; pruning depends on the update before it, so it begins when its batch is asked for (`ahead = 0`). Which
steps computed a node is the executor's state.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.types import Array, Block
from graphmill.trainers.batches.batch import MiniBatch, block_bytes, count_batch
from graphmill.trainers.batches.flow import Task, Work, flow
from graphmill.trainers.loop.executor import BatchExecutor, Done, Run
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.openings import open_samplers


def prune(block: Block, computed: Array) -> tuple[Block, Array]:
    """Removes the in-edges of destinations that are marked, and the sources that nobody needs any more; returns where the others were."""
    end = np.where(computed[block.dst_ids], block.start, block.end)
    kept = np.concatenate([np.arange(low, high) for low, high in zip(block.start, end, strict=True)]).astype(np.int64)
    needed = np.zeros(block.num_src, bool)
    needed[: block.num_dst] = needed[block.indices[kept]] = True
    origin = np.flatnonzero(needed).astype(np.int32)
    place = np.zeros(block.num_src, np.int32)
    place[origin] = np.arange(len(origin))
    indices = place[block.indices]
    pruned = replace(block, end=end, indices=indices, num_src=len(origin), src_ids=block.src_ids[origin])
    return pruned, origin


class PruningSource:
    def __init__(self, run: Run):
        self.run, self.samplers = run, open_samplers(run)
        self.computed = torch.zeros(run.graph.topology.num_nodes, dtype=torch.uint8)

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        batching = self.run.batching
        tasks = [
            Task(
                name="sampler",
                lanes=len(self.samplers),
                prepare=Work("sample", lambda lane, item, _: self.samplers[lane].sample(item.key, item.seeds)),
                num_bytes=lambda item, blocks: block_bytes(blocks),
            ),
            Task(
                name="pruner",
                after=("sampler",),
                ahead=0,
                prepare=Work("prune", lambda lane, item, blocks: self._pruned(item, blocks, epoch)),
                num_bytes=lambda item, batch: 4 * len(batch.input_ids) * self.run.features.source.width,
                work=Work("gather", lambda lane, item, batch: self._gathered(batch)),
            ),
        ]
        planned = list(batching.plan.batches(epoch, start_position))
        for _, ((batch, moved),) in flow(planned, tasks, batching.queue_bytes, batching.timeline):
            batching.ledger.merge(moved)
            # Before the step: a checkpoint that is written after it must hold what the next batch will see.
            self.computed[torch.from_numpy(batch.blocks[0].dst_ids).long()] = 1
            yield batch

    def _pruned(self, item: PlannedBatch, blocks: tuple[Block, ...], epoch: int) -> MiniBatch:
        block, origin = prune(blocks[0], self.computed.numpy().astype(bool))
        return self.run.batching.batch(item, epoch, (block, *blocks[1:]), origin=origin)

    def _gathered(self, batch: MiniBatch) -> tuple[MiniBatch, Ledger]:
        moved, features = Ledger(), self.run.features.source
        batch.x = torch.empty((len(batch.input_ids), features.width))
        features.gather(batch, batch.x, moved)
        count_batch(batch, moved)
        return batch, moved


class PruningExecutor(BatchExecutor):
    source: PruningSource

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        if start == 0:
            self.source.computed.zero_()
        return super().steps(epoch, start)

    def state(self) -> Mapping[str, Tensor]:
        return {"computed": self.source.computed}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.source.computed.copy_(state["computed"])


def open_executor(run: Run) -> PruningExecutor:
    return PruningExecutor(run, PruningSource(run))
