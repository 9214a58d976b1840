"""A toy technique with two replicas of the model: they share the batches of a step, and their gradients are added in batch order."""

import copy
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from graphmill.assets.building.keys import within
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.loop.executor import BatchGradient, Done, Executor, Run, add_in_order, taken_gradients
from graphmill.trainers.recipe.settings import Settings
from graphmill.trainers.techniques import minibatch


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings(Settings):
    # Number of replicas.
    count: int = field(default=2, metadata=within(1))


class Replicas(Executor):
    def __init__(self, run: Run):
        super().__init__(run)
        self.source = minibatch.open_executor(run).source
        self.count = run.semantic.train.settings.count
        self.replicas = [copy.deepcopy(run.model) for _ in range(self.count)]

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        first, group = start - start % self.run.plan.accumulate, []
        # Batches of an unfinished step are computed again: their gradients were in no checkpoint.
        for batch in self.source.batches(epoch, first):
            group.append(batch)
            if batch.group[0] + 1 == batch.group[1]:
                yield from self._step(group)
                group = []

    def _step(self, group: list[MiniBatch]) -> Iterator[Done]:
        done, gradients = {}, {}
        for replica, model in enumerate(self.replicas):
            model.load_state_dict(self.run.model.state_dict())
            # The second replica works backwards: who computes a gradient, and when, must not matter.
            for batch in group[replica :: self.count][:: -1 if replica else 1]:
                done[batch.position] = BatchGradient(model, self.run.semantic.seed, self.run.loss)(batch)
                gradients[batch.position] = taken_gradients(model)
        add_in_order(self.run.model, (gradients[position] for position in sorted(gradients)))
        for position in sorted(done):
            yield done[position]


def open_executor(run: Run) -> Replicas:
    return Replicas(run)
