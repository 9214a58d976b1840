"""The technique `fresh-factored`: samplers and trainers of FGNN, with the history of embeddings of FreshGNN.

    samplers  --sample-->  global queue  -->  trainers: prune | gather | train  --gradients, rows between layers-->  update

Sampling needs neither weights nor the history, so it is factored as in `factored`. What a batch leaves out depends on the update before
its step, so a trainer prunes a batch and gathers its rows behind that update: within a step group, while it trains on the batch before.
The batches of a group look up before the group's one update, on whatever device, and rows enter the history in the order of batches. So
weights, the history and the counts of the ledger are those of `fresh` with the same `accumulate`, to the bit, at any number of samplers
and trainers.

Known limits: those of both. A history that an update changes while a replica reads it would not repeat, so `staleness` is refused. With
`accumulate = 1` no trainer overlaps anything, since pruning waits for each update.
"""

from __future__ import annotations

from graphmill.trainers.loop.executor import Executor, Run
from graphmill.trainers.models.own import require_layers
from graphmill.trainers.techniques.factored.crew import Crew
from graphmill.trainers.techniques.factored.executor import FactoredExecutor
from graphmill.trainers.techniques.factored.replica import require_replicable
from graphmill.trainers.techniques.factored.updates import Result
from graphmill.trainers.techniques.fresh.executor import WithHistory
from graphmill.trainers.techniques.fresh.history import SteppedHistory, TableFill
from graphmill.trainers.techniques.fresh.probe import Probe
from graphmill.trainers.techniques.fresh_factored.crew import PrunedCrew


def open_executor(run: Run) -> FreshFactored:
    """Returns the executor that trains the run's model on pruned batches of the queue.

    Raises:
        InputError: the model is one module or cannot be replicated, hotness counts no layers, batches are missing, or the arena does not
            fit.
    """
    require_layers(run.model, run.semantic.train.trainer)
    require_replicable(run)
    return FreshFactored(run)


class FreshFactored(WithHistory, FactoredExecutor):
    """Samplers, trainers that prune, and the history, which is updated once per step."""

    def open_crew(self) -> Crew:
        """Returns the roles, after the history that trainers prune by."""
        run = self.run
        self.history = SteppedHistory(run, TableFill(run))
        self.probe = Probe(run, self.history.arena, self.settings.probe) if self.settings.probe else None
        return PrunedCrew(run, self.features, self.history)

    def planned(self, epochs: int) -> dict[str, int]:
        """Returns the numbers of mini-batches; what is pruned is not known before the training."""
        return Executor.planned(self, epochs)

    def took(self, epoch: int, result: Result) -> None:
        """Adds the rows of a batch to the history, and updates it behind the last batch of a step."""
        self.history.add(result.kept)
        if result.done.last:
            # Before the loop's update: a checkpoint that is written after it must hold the history of the next batch.
            self.history.update(self.run.plan.step_of(epoch, result.done.position), self.run.ledger)
