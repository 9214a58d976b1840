"""The interface between the loop and a technique: an `Executor` computes gradients, the loop makes the update.

The loop asks for steps and knows nothing of batches, chunks or replicas. After each `Done` the gradients of the model's parameters hold the
sums over the seeds so far of the optimiser step; with `last` they are complete. The executor continues only after the loop has made the
update. So a technique has its own way to compute a gradient and shares everything else: optimiser, groups, learning rate, early stop,
evaluation, checkpoints, progress.

`BatchExecutor` trains on mini-batches from a source, one after the other. Techniques with replicas add the gradients of batches by
`add_in_order`, independent of the replica that computed them.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.features.config import EDGES
from graphmill.assets.features.read import open_features, require_edges
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.assets.storage.system.machine import anonymous_bytes, usable_cores
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import Batching, MiniBatch
from graphmill.trainers.batches.edge_rows import EdgeRows, open_edge_rows
from graphmill.trainers.batches.source import EvaluationSource, OnlineSource, PreparedSource
from graphmill.trainers.batches.stored import StoredPlan, StoredSampler, planned_counts, stored_plan
from graphmill.trainers.models.layer import Between
from graphmill.trainers.models.loss import CrossEntropy, Loss, loss_value
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import RowGradient, node_rows
from graphmill.trainers.models.own import Model
from graphmill.trainers.models.products import computing, kept_dtype, widened
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.costs.memory import bytes_to_come
from graphmill.trainers.recipe.queue_bytes import SHARING
from graphmill.trainers.record.checks import conserved, ledger_numbers
from graphmill.trainers.record.ledger import STEP, Ledger, Timeline
from graphmill.trainers.rows.shared import shared_rows
from graphmill.trainers.rows.source import linked

if TYPE_CHECKING:
    from pathlib import Path

    from graphmill.assets.building.stage import Progress
    from graphmill.assets.graph.read import Graph
    from graphmill.assets.sampling.drawing import Drawing
    from graphmill.assets.storage.local.artifact import Artifact
    from graphmill.trainers.recipe.config import ModelConfig
    from graphmill.trainers.recipe.execution import TrainExecution
    from graphmill.trainers.rows.cache import Features, PackedRows


class Done(NamedTuple):
    """A finished batch of an executor."""

    # Position of the batch in its epoch.
    position: int
    # Sum of the losses of its seeds; a float64[] on a device with memory of its own, so that no step waits for the last one.
    loss_sum: float | Tensor
    # Number of seeds of the whole optimiser step.
    seeds: int
    # Whether it is the last batch of its optimiser step.
    last: bool


class Executor(ABC):
    """Computes the gradients of a training; each technique has its own."""

    # Facts about how the work was shared, for run.json.
    record: Mapping[str, Any] = MappingProxyType({})
    # Whether the same recipe gives the same bits.
    repeatable: bool = True
    # Supplies the mini-batches; None if there are none, or if several processes or devices have one each.
    source: PreparedSource | None = None
    # The rows of stored batches, if the training reads packed ones beside the samplers; evaluations of stored batches do, too.
    packed: PackedRows | None = None
    # Whether the rows of stored batches, those of evaluations included, come packed by the training's own source.
    packs_stored: bool = False

    def __init__(self, run: Run):
        self.run = run

    @abstractmethod
    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        """Yields the finished batches of a training epoch, from a position on, in order."""
        ...

    def epoch_numbers(self, epoch: int) -> Mapping[str, float | int]:
        """Returns numbers to add to the metrics row of an epoch, from 0, that has just ended; all ranks call it."""
        return {}

    def evaluation_source(self, plan: EpochPlan) -> PreparedSource:
        """Returns the source of an evaluation's batches, which are prepared ahead of the model as those of a training epoch are.

        They are drawn, unless the run reads stored samples that have them; the plan of the result is then a `StoredPlan`. By default their
        rows come from the training's source. An evaluation and an epoch take turns, so they share the memory of input rows.

        Args:
            plan: the nodes of each batch, on the evaluation stream.
        """
        run = self.run
        assert run.drawing is not None
        samples = open_samples(run.reads["samples"]) if "samples" in run.reads else None
        stored = None if samples is None else stored_plan(samples, plan, run.graph.splits)
        if samples is not None and stored is not None:
            samplers: list[AnySampler] = [StoredSampler(samples)] * run.num_samplers
        else:
            seed, topology = run.semantic.sampling_seed, run.graph.topology
            how = {"seed": seed, "threads": run.sampling_threads}
            samplers = [run.drawing.sampler(topology, **how) for _ in range(run.num_samplers)]
        batching = run.evaluation_batching(stored or plan)
        made = OnlineSource(batching, run.features.source, samplers, run.in_turn and stored is None)
        if stored is not None and self.packed is not None:
            # The files are closed when the evaluation ends.
            made.features, made.files = linked(self.packed, run.features.device), closing(self.packed)
        elif stored is None or not self.packs_stored:
            shared = shared_rows(run.features, samplers[0], stored or plan, run.shared_bytes, SHARING)
            made.features, made.shared = shared or (made.features, made.shared)
        if self.source is not None:
            made.inputs = self.source.inputs
        return made

    def exact_logits(self, node_ids: Array) -> Tensor | None:
        """Returns the logits of nodes by all their neighbours, float[n, num_classes] on the host, from what the training holds.

        By default None: such an evaluation reads graph and features range by range (trainers/inference/exact.py).

        Args:
            node_ids: ids[n], global.
        """
        return None

    def planned(self, epochs: int) -> dict[str, int]:
        """Returns numbers that the ledger of all ranks has after a number of training epochs, by name (trainers/record/checks.py).

        Those of mini-batches are counts of the plan and of stored samples, and `conserved`.
        """
        run, stored = self.run, self.run.execution.samples == "stored"
        samples = open_samples(run.reads["samples"], parts=()) if stored else None  # its index alone
        return conserved(
            planned_counts(run.plan, epochs, samples, whole=run.whole_batches),
            ledger_numbers(run.ledger.rows()),
            run.features.source.row_bytes,
            tiered=run.features.source.tiered or run.semantic.train.own_settings.rows == "packed",
            arena_row_bytes=run.features.source.width * np.dtype(kept_dtype(run.semantic.train.dtype)).itemsize,
        )

    def state(self) -> Mapping[str, Tensor]:
        """Returns the tensors that a checkpoint holds besides the model and the optimiser, by name; all ranks call it, the first writes.

        By default there are none: random decisions are keyed by the batch.
        """
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores the tensors that `state` returned."""
        return


@dataclass(kw_only=True, eq=False)
class Run:
    """A training: what it was asked for, and the parts that are opened from that (trainers/training/open_run.py).

    Attributes:
        inputs, reads: the artifacts of the train table, by stage.
        drawing: the way in which neighbours are drawn; None if nothing is sampled.
        ranks: this process among those that share the training.
        edges: the edges that are the seeds of batches; None if nodes are.
        edge_rows: the rows of edges; None if the model reads none.

        plan: the order of batches and their seeds; one batch of all seeds if nothing is sampled.
        features: the source of rows, and the device.
        infer: (model, ids[n], folder for layers that do not fit in memory, progress, source of sampled batches, file from which an
            evaluation that was killed goes on, or None, times f64[n] as of which nodes are seen, or None for their own) ->
            float[n, num_classes] on the host, by the train table's evaluation; all ranks call it with the same nodes.
        loss: sums the losses of seeds.
        batching: the data that every source of mini-batches needs.
    """

    graph: Graph
    inputs: Mapping[str, Artifact]
    reads: Mapping[str, Artifact]
    semantic: ModelConfig
    execution: TrainExecution
    drawing: Drawing | None = None
    ranks: Ranks = ALONE
    edges: EdgeSeeds | None = None
    edge_rows: EdgeRows | None = None
    plan: Plan = field(init=False)
    features: Features = field(init=False)
    infer: Callable[[Model, Array, Path, Progress, EvaluationSource, Path | None, Array | None], Tensor] = field(
        init=False
    )
    model: Model = field(init=False)
    loss: Loss = field(init=False)
    batching: Batching = field(init=False)

    @property
    def seeds(self) -> Array:
        """The seeds of an epoch: the training nodes, ids[n], or the numbers 0 to n - 1 of the training edges."""
        return np.array(self.graph.seeds[0])

    @property
    def whole_batches(self) -> bool:
        """Whether it takes all edges of its batches: of links those that a batch predicts are taken out."""
        return self.edges is None or not self.semantic.train.exclude_targets

    def seeded(self, sampler: AnySampler) -> AnySampler:
        """Returns a sampler of the run's seeds around one of nodes, which draws or reads stored batches."""
        links = self.graph.links
        if self.edges is None or links is None:
            return sampler
        return LinkSampler(sampler, self.edges, links.reverse_of, self.semantic.train.exclude_targets)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the training's transfers and counts."""
        return self.batching.ledger

    @property
    def timeline(self) -> Timeline:
        """The time-line of all threads of the training."""
        return self.batching.timeline

    @property
    def num_samplers(self) -> int:
        """Number of threads that sample or read ahead of the step."""
        return 1 if self.in_turn else self.execution.samplers or max(1, usable_cores() - 1)

    @property
    def in_turn(self) -> bool:
        """Whether all threads prepare a batch just before its step, instead of some of them ahead of it."""
        return self.features.source.at_hand

    @property
    def draws_on_device(self) -> bool:
        """Whether a device with memory of its own draws the batches; the CPU, held to a device's memory, only books the topology there."""
        return self.execution.topology != "host" and self.semantic.train.device != "cpu"

    @property
    def sampling_threads(self) -> int:
        """Number of threads that draw one batch together."""
        return self.semantic.train.num_threads if self.in_turn else 1

    def open_edge_rows(self, threads: int) -> EdgeRows | None:
        """Returns the rows of the edges from their table, None if the model reads none; all ranks call it.

        Raises:
            InputError: the rows are of other edges than the graph's.
        """
        if EDGES not in self.inputs:
            return None
        stored = open_features(self.inputs[EDGES])
        require_edges(stored, self.graph.topology)
        return open_edge_rows(stored, kept_dtype(self.semantic.train.dtype), threads, self.bytes_to_come())

    def bytes_to_come(self) -> int:
        """Returns the most bytes that the run's processes on this machine are still to take, the same in all ranks, which all call it."""
        held = self.ranks.beside(anonymous_bytes() or 0)
        found = bytes_to_come(self.semantic, self.execution, {**self.inputs, **self.reads}, held)
        return max(self.ranks.beside(found))

    @property
    def shared_bytes(self) -> int:
        """Bytes of rows that a sampled evaluation may hold for all its batches.

        Half its workspace, at most a quarter of what is free, and half of the table where the machine decides how it is read.
        """
        most, free = parse_size(self.semantic.train.eval_workspace) // 2, free_bytes()
        if self.execution.features == "auto":
            most = min(most, self.features.stored.num_bytes // 2)
        return most if free is None else min(most, free // 4)

    def evaluation_batching(self, plan: Plan) -> Batching:
        """Returns the batching of an evaluation: without transposes, and beside the ledger and the time-line of the training.

        Its queue grows for a batch that is larger, since a model without a score would be worse: nodes that history leaves out of training
        batches are in it, and its batches may have a few seeds more.
        """
        beside = {"ledger": self.features.device.traffic, "timeline": Timeline(), "most_queue_bytes": sys.maxsize}
        edges = self.edge_rows if self.edge_rows is None or isinstance(plan, StoredPlan) else self.edge_rows.unpacked()
        return replace(self.batching, plan=plan, transpose="none", edge_rows=edges, **beside)


class BatchExecutor(Executor):
    """Trains on mini-batches, one after the other."""

    source: PreparedSource

    def __init__(self, run: Run, source: PreparedSource):
        super().__init__(run)
        self.source, self.timeline = source, run.timeline
        self.gradient = BatchGradient(run.model, run.semantic.seed, run.loss, run.semantic.train.dtype)

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        """Yields one `Done` per mini-batch."""
        for batch in self.source.batches(epoch, start):
            with self.timeline.span(STEP, "train", batch.position):
                done = self.gradient(batch)
            # The batch's bytes are released when the source is asked for the next one, so no reference may outlive this line.
            del batch
            yield done


PLAIN = CrossEntropy()
"""The loss of classes, without weights or smoothing."""


class BatchGradient:
    """Adds the gradient of a mini-batch's summed loss to a model's parameters."""

    def __init__(self, model: Model, seed: int, loss: Loss = PLAIN, dtype: str = "float32"):
        self.model, self.seed, self.loss, self.dtype = model, seed, loss.of(model), dtype

    def __call__(self, batch: MiniBatch, between: Between | None = None) -> Done:
        """Computes forward and backward passes, with a function between the layers or None, and returns the finished batch."""
        more = () if between is None else (between,)
        random = StepRandom(self.seed, batch.train_epoch, batch.position)
        with computing(self.dtype, batch.x.device):
            logits = widened(self.model(batch.blocks, batch.x, random, *more))
        loss = self.loss(logits, torch.as_tensor(batch.labels))
        loss.backward()
        place, size = batch.group
        return Done(batch.position, loss_value(loss), batch.group_seeds, place + 1 == size)


class Gradients(NamedTuple):
    """The gradients of a batch."""

    # One tensor per parameter, None if the batch did not reach it.
    parameters: Sequence[Tensor | None]
    # Those of learnable rows of nodes (trainers/models/node_rows.py).
    rows: Sequence[RowGradient] = ()


def taken_gradients(model: Model) -> Gradients:
    """Returns the gradients of a model, and removes them from the model."""
    gradients, nodes = [parameter.grad for parameter in model.parameters()], node_rows(model)
    for parameter in model.parameters():
        parameter.grad = None
    return Gradients(gradients, () if nodes is None else nodes.taken())


def add_in_order(model: Model, gradients: Iterable[Gradients]) -> None:
    """Adds the gradients of successive batches to a model's, ((g0 + g1) + g2) + ...: the same bits as of one model."""
    parameters, nodes = list(model.parameters()), node_rows(model)
    for of_batch in gradients:
        for parameter, gradient in zip(parameters, of_batch.parameters, strict=True):
            if gradient is None:
                continue
            parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad.add_(gradient)
        if nodes is not None:
            nodes.gradients += of_batch.rows
