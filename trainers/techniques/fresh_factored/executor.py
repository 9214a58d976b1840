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

from dataclasses import replace
from typing import Any

from graphmill.kernels.cuda.device import on_device
from graphmill.trainers.batches.batch import Batching, MiniBatch, send_blocks
from graphmill.trainers.devices.protocol import CACHE
from graphmill.trainers.loop.executor import Executor, Run
from graphmill.trainers.models.own import require_layers
from graphmill.trainers.record.ledger import SYNCHRONISE, Ledger
from graphmill.trainers.rows.source import FeatureSource
from graphmill.trainers.techniques.factored.crew import Crew
from graphmill.trainers.techniques.factored.executor import FactoredExecutor
from graphmill.trainers.techniques.factored.places import DevicePlace
from graphmill.trainers.techniques.factored.queue import Result
from graphmill.trainers.techniques.factored.replica import Replica, require_replicable
from graphmill.trainers.techniques.factored.roles import EXTRACT, BatchDrawer, Epoch, Ready, ReplicaTraining
from graphmill.trainers.techniques.factored.watch import Activity
from graphmill.trainers.techniques.fresh.batches import Pruner
from graphmill.trainers.techniques.fresh.executor import Probe, WithHistory
from graphmill.trainers.techniques.fresh.history import BetweenLayers, SteppedHistory, TableFill


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


class PrunedTraining(ReplicaTraining):
    """Prunes batches behind the update before their step, gathers the rows that are left, and computes gradients with kept rows between.

    Args:
        features: the source of the rows that the arena does not have.
    """

    def __init__(self, batching: Batching, replica: Replica, features: FeatureSource, history: SteppedHistory):
        super().__init__(batching, replica, features)
        self.history, self._layers = history, BetweenLayers(history)
        self.between = self._layers
        self._pruner = Pruner(batching, history, features, history.settings.rows == "packed")

    def extract(self, activity: Activity, batch: MiniBatch, epoch: Epoch | None = None) -> Ready:
        """Waits for the update before the batch's step, then prunes it and gathers its rows; arguments as in `ReplicaTraining`."""
        if epoch is not None:
            with activity.timeline.span(activity.name, SYNCHRONISE, batch.position):
                epoch.updates.wait_for_weights(batch.position)
        device, moved = self.replica.device, batch.moved or Ledger()
        with activity.at(EXTRACT, batch.position):
            if not on_device(batch.input_ids):
                with device.launching() as launches:
                    blocks = send_blocks(batch.blocks, device, moved)
                batch = replace(batch, blocks=blocks, moved=moved, launches=launches)
            batch, moved = self._pruner.gathered(self._pruner.pruned(batch), self.inputs)
            self.history.book(batch, moved)
            device.adopt([batch.x], "inputs")
            return Ready(batch, moved, batch.input_ids)

    def kept(self, batch: MiniBatch) -> Any:
        """Returns the rows between the layers of a batch, and the sizes of their gradients."""
        step = self.batching.plan.step_of(batch.train_epoch, batch.position)
        return self._layers.taken(self.history.keeps(step), self.batching.ends_of(batch))


class PrunedCrew(Crew):
    """The roles of a run whose batches are pruned. All trainers are on the device that has the history.

    Args:
        features: the source of the rows that the arena does not have, without a link.
    """

    together = True

    def __init__(self, run: Run, features: FeatureSource, history: SteppedHistory):
        self.history, self.arena_bytes = history, history.memory.nbytes
        super().__init__(run, features)

    def drawing(self, place: DevicePlace | None = None) -> BatchDrawer:
        """Returns the drawer of a sampler: transposes are made of pruned blocks, and rows are found behind the update."""
        batching = replace(self.run.batching, transpose="none")
        if place is not None and self.run.draws_on_device:
            return self.device_drawing(place.device, batching, None)
        return BatchDrawer(batching, self.open_sampler(), None)

    def training(self, place: DevicePlace) -> ReplicaTraining:
        """Returns the training of a trainer at a place, which holds the arena; trainers of one machine share one image of it."""
        place.device.adopt([self.history.memory], CACHE)
        replica = Replica(self.run, place.device, self.own_code)
        return PrunedTraining(self.run.batching, replica, place.features, self.history)
