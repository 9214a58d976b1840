"""The technique `distributed`: ranks share a training, each with the feature rows of its own parts (FastSample, section 3.3).

Every rank holds the whole topology and samples by itself. Per batch it fetches the distinct rows that other ranks hold, by one request and
one reply (exchange.py), while the batch before is trained on. The paper's vanilla baseline cuts the topology, too, and needs 2 (L - 1) more
rounds per batch of L layers; `scheme` selects it (vanilla.py).

With `rows = "packed"` nothing is fetched (FastSample with DiskGNN): offline sampling knows every batch of every part, so the rows that a
rank would fetch for one are packed beside its own ones before the training. What an exchange would send, a rank reads from its own disk, in
one sequential read per batch (trainers/batches/source.py), and an epoch exchanges gradients alone. Losses are those of the exchange, to the
bit. Batches of a part stand together (assets/samples/read.py), so a machine needs those of its own parts, and the static tiers, which hold
what batches of all parts need most, the same rows on each rank. Evaluations and predictions take rows from the shards.

A step is a group of `accumulate` rounds of all parts. With `gradients = "ordered"` the gradients of all its batches are gathered and added
in batch order at every rank, so all ranks make the same update, and its bits are those of one rank with all parts. A step moves (ranks - 1)
x batches x bytes of the model to each rank, which is cheap for models of a few MB; `all-reduce` moves the sums alone and adds them in
another order. Gradients stay on the devices if each rank has a GPU of its own (trainers/ranks/tensors.py), and go through the host else.

The rank that computes a batch does not affect the result: seeds are listed by part (kernels/sampling/part_plan.py) and keys contain no
rank. So a run continues from a checkpoint on another number of ranks. With one part it is `minibatch`, to the bit.

A batch normalisation takes the statistics of each batch. With several parts the running ones move once per step, by all its batches in
their order (gradients.py), so that they are the same on every rank, for any number of ranks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import TwoStepSampler
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import Drawer, MiniBatch
from graphmill.trainers.batches.source import DiskSource, PreparedSource
from graphmill.trainers.loop.executor import (
    BatchGradient,
    Done,
    Executor,
    Gradients,
    Run,
    add_in_order,
    taken_gradients,
)
from graphmill.trainers.models.layer import Between
from graphmill.trainers.models.node_rows import RowGradient, node_rows
from graphmill.trainers.ranks.group import PeerError
from graphmill.trainers.ranks.tensors import open_tensor_lane
from graphmill.trainers.record.checks import TIER_ROWS, move_name
from graphmill.trainers.record.ledger import STEP, Line
from graphmill.trainers.techniques.distributed.batches import RankSource
from graphmill.trainers.techniques.distributed.gradients import (
    Member,
    Placed,
    add_gathered,
    exchange_rows,
    move_together,
    taken_statistics,
    waiting_norms,
)
from graphmill.trainers.techniques.distributed.sharded import ShardedSource
from graphmill.trainers.techniques.distributed.vanilla import VanillaSampler
from graphmill.trainers.techniques.openings import (
    device_drawers,
    open_disk_source,
    open_sampler,
    open_stored,
    planned_reads,
    scheduled,
)

GRADIENTS, LOSS = Line("rank", "gradient", "backward"), Line("d2h", "loss")
TO_HOST, TO_DEVICE_AGAIN = Line("d2h", "gradient", "backward"), Line("h2d", "gradient", "backward")


def open_executor(run: Run) -> Distributed:
    """Returns the executor that trains the run's model with the other ranks.

    Raises:
        InputError: a user's own model has buffers, or stored batches or packed rows are missing or another run's.
    """
    source = require_shareable(run)
    if run.semantic.train.own_settings.rows == "packed":
        return Distributed(run, open_disk_source(run, source.owned.parts))
    return Distributed(run, RankSource(run.batching, source, open_samplers(run)))


def require_shareable(run: Run) -> ShardedSource:
    """Returns the source of rows of a run whose training ranks can share.

    Raises:
        InputError: a training pass changes buffers of a user's own model, which several parts cannot share.
    """
    source = run.features.source
    assert isinstance(run.plan, PartPlan) and isinstance(source, ShardedSource)
    num_parts = run.plan.num_parts
    if num_parts > 1 and run.model.changed_buffers:
        problem = f"model = {run.semantic.train.model!r} has buffers, which {num_parts} parts cannot share"
        raise InputError(problem, "use a model without running statistics, or [partitions] parts = 1")
    return source


def open_samplers(run: Run) -> Sequence[AnySampler | Drawer] | VanillaSampler:
    """Returns one sampler per thread, fused, in two steps, or of stored batches; or the one that draws on the device or with other ranks.

    Raises:
        InputError: samples are missing, or they are of another graph or other parts, drawn otherwise or too few.
    """
    if run.draws_on_device:
        return device_drawers(run, 1)
    settings, source = run.semantic.train.settings, run.features.source
    sampling, threads = run.semantic.sampling, rank_threads(run)
    assert sampling is not None and isinstance(source, ShardedSource)
    if run.execution.samples == "stored":
        return [open_stored(run, source.owned.parts)] * threads
    if settings.scheme == "hybrid":
        return [open_sampler(run) for _ in range(threads)]
    if settings.scheme == "vanilla":
        if run.edges is not None:
            raise InputError('scheme = "vanilla" draws neighbours of nodes, not of links', "remove the key")
        topology = run.graph.topology
        if not is_reference(run.semantic.train.model):  # the table refuses our models that read these
            topology = replace(topology, weights=None, edge_types=None)
        return VanillaSampler(topology, source.owned, sampling, run.semantic.sampling_seed, source.exchange.lane)

    def make(fanouts: tuple[Any, ...]) -> AnySampler:
        return TwoStepSampler(run.graph.topology, fanouts, seed=run.semantic.sampling_seed, replace=sampling.replace)

    return [run.seeded(scheduled(sampling, make)) for _ in range(threads)]


def rank_threads(run: Run) -> int:
    """Returns the threads of this rank that sample; ranks that may run on the same cores share them. All ranks call it."""
    if run.in_turn:
        return 1
    cores = sorted(os.sched_getaffinity(0))
    sharing = run.ranks.beside(cores).count(cores)
    return run.execution.samplers or max(1, usable_cores() // sharing - 1)


class Distributed(Executor):
    """Computes the batches of this rank's parts, and joins the other ranks once per step."""

    source: PreparedSource

    def __init__(self, run: Run, source: PreparedSource):
        super().__init__(run)
        self.source, self.num_parts, self.lane = source, source.num_parts, run.ranks.main
        self.ordered = run.semantic.train.settings.gradients == "ordered"
        self.gradient = BatchGradient(run.model, run.semantic.seed, run.loss, run.semantic.train.dtype)
        self.norms = waiting_norms(run.model) if self.num_parts > 1 else []
        self.tensors = open_tensor_lane(run.ranks, run.features.device.torch_device)
        rows = run.features.source
        assert isinstance(rows, ShardedSource)
        if (order := rows.exchange.lane.order) is not None:
            self.record = {"exchange_rounds": len(order.rounds), "fewest_rounds": order.fewest}

    def planned(self, epochs: int) -> dict[str, int]:
        """Returns the numbers of mini-batches without tiers, since own, cached and fetched rows are counted apart; or of packed rows."""
        if isinstance(self.source, DiskSource):
            return planned_reads(self.run, epochs) | {move_name("rank", "feature"): 0}
        planned = super().planned(epochs)
        if self.run.semantic.train.settings.rows == "packed":
            return planned | {move_name("rank", "feature"): 0}
        planned.pop(TIER_ROWS, None)
        return planned

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        """Yields one `Done` per batch of all ranks; an error ends this process if there are others (trainers/ranks/leave.py)."""
        try:
            yield from self._steps(epoch, start)
        except (GeneratorExit, PeerError):
            raise
        except BaseException as error:
            if self.lane.world > 1:
                self.run.ranks.leave(error)
            raise

    def _steps(self, epoch: int, start: int) -> Iterator[Done]:
        # Batches of an unfinished step are computed again, since a checkpoint does not contain their gradients.
        first, members = start - start % self.run.plan.batches_per_step, []
        for batch in self.source.batches(epoch, first):
            (_, size), seeds = batch.group, batch.group_seeds
            with self.run.timeline.span(STEP, "train", batch.position):
                members.append(self._member(batch))
            del batch
            if len(members) == size // self.lane.world:
                yield from self._joined(members, seeds)
                members = []

    def _member(self, batch: MiniBatch, between: Between | None = None) -> Member:
        """Returns a batch with its loss and gradients, which are removed from the model.

        Args:
            batch: the batch with its inputs; may have no seeds.
            between: a function between the layers, or None.
        """
        if not len(batch.seeds):
            return Member(batch.position, 0.0, Gradients([None for _ in self.run.model.parameters()]))
        done, device = self.gradient(batch, between), self.run.features.device
        loss, gradients = done.loss_sum, taken_gradients(self.run.model)
        if isinstance(loss, Tensor) and (self.lane.world > 1 or not self.ordered or self.tensors is not None):
            loss = device.fetch(loss, LOSS, device.traffic).item()  # it goes to other ranks, or with theirs
        if self.lane.world > 1:
            gradients = self._for_exchange(gradients)
        return Member(batch.position, loss, gradients, taken_statistics(self.norms))

    def _for_exchange(self, gradients: Gradients) -> Gradients:
        """Returns gradients where ranks exchange them: on the host, except those that a lane of tensors takes."""
        device, kept = self.run.features.device, gradients.parameters
        gradients = gradients if self.tensors is None else gradients._replace(parameters=())
        gradients = _moved(gradients, lambda each: device.fetch(each, TO_HOST, device.traffic))
        return gradients if self.tensors is None else gradients._replace(parameters=kept)

    def _joined(self, members: list[Member], seeds: int) -> Iterator[Done]:
        """Yields the batches of a step; the model then has the sum of all their gradients."""
        with self.run.timeline.span(STEP, "gradients", members[-1].position):
            if self.lane.world > 1 and node_rows(self.run.model) is not None:
                members = self._with_all_rows(members)
            if self.norms:
                move_together(self.norms, members, self.lane, self.run.features.device, self.run.ledger)
            losses = self._ordered_sum(members) if self.ordered else self._sum(members)
        for place, (position, loss_sum) in enumerate(losses):
            yield Done(position, loss_sum, seeds, place + 1 == len(losses))

    def _with_all_rows(self, members: list[Member]) -> list[Member]:
        """Gives the gradients of rows of nodes of all ranks' batches to the model; returns the members without theirs."""
        own = [Placed(each.position, rows) for each in members for rows in each.gradients.rows]
        found = Gradients((), exchange_rows(self.lane, own, self.run.ledger))
        nodes = node_rows(self.run.model)
        assert nodes is not None
        nodes.gradients += self._sent(found).rows
        return [each._replace(gradients=each.gradients._replace(rows=())) for each in members]

    def _ordered_sum(self, members: list[Member]) -> Sequence[tuple[int, float | Tensor]]:
        model = self.run.model
        if self.tensors is not None:
            found, num_bytes = add_gathered(model, members, self.lane, self.tensors)
            self.run.ledger.crossed(GRADIENTS, num_bytes * (self.lane.world - 1))
            return found
        if self.lane.world > 1:
            zeros = [torch.zeros(each.shape, dtype=each.dtype).numpy() for each in model.parameters()]
            packed, count = pack(members, zeros), len(members)
            pieces = self.lane.gather(packed)
            self.run.ledger.crossed(GRADIENTS, len(packed) * (self.lane.world - 1))
            found = (each for piece in pieces for each in unpack(piece, zeros, count))
            members = sorted(found, key=attrgetter("position"))
        add_in_order(model, (self._sent(each.gradients) for each in members))
        return [(each.position, each.loss_sum) for each in members]

    def _sent(self, gradients: Gradients) -> Gradients:
        """Returns gradients on the model's device."""
        device = self.run.features.device
        if self.lane.world == 1:
            return gradients
        return _moved(gradients, lambda each: device.send_tensor(each, TO_DEVICE_AGAIN, device.traffic))

    def _sum(self, members: list[Member]) -> list[tuple[int, float]]:
        model, found = self.run.model, []
        device = self.run.features.device
        add_in_order(model, (self._sent(each.gradients) for each in members))
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        own = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])  # pyright: ignore
        if self.tensors is not None:
            flat = own
            self.tensors.add(flat)
        else:
            flat = device.fetch(own, TO_HOST, device.traffic)
            self.lane.add(flat)
        self.run.ledger.crossed(GRADIENTS, 2 * flat.nbytes * (self.lane.world - 1) // self.lane.world)
        sums = device.send_tensor(flat, TO_DEVICE_AGAIN, device.traffic)
        sums = sums.split([parameter.numel() for parameter in model.parameters()])
        for parameter, values in zip(model.parameters(), sums, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(values.reshape(parameter.shape))
        losses = np.array([(each.position, each.loss_sum) for each in members], np.float64)
        for piece in self.lane.gather(losses.reshape(-1).view(np.uint8)):
            found += [(int(position), loss) for position, loss in piece.view(np.float64).reshape(-1, 2).tolist()]
        return sorted(found)


def _moved(gradients: Gradients, move: Callable[[Tensor], Tensor]) -> Gradients:
    """Returns gradients as a function moves each tensor."""
    parameters = [each if each is None else move(each) for each in gradients.parameters]
    return Gradients(parameters, [RowGradient(move(each.rows), move(each.values)) for each in gradients.rows])


def pack(members: list[Member], zeros: list[Array]) -> Array:
    """Returns u8[n]: position, loss, reached parameters, and the gradients of all parameters of each member.

    Args:
        members: batches of one rank, with gradients on the host.
        zeros: zeros of the shapes and types of the model's parameters, for those that a batch did not reach.
    """
    pieces = []
    for member in members:
        pieces.append(np.array([member.position, member.loss_sum], np.float64))
        gradients = member.gradients.parameters
        pieces.append(np.array([gradient is not None for gradient in gradients], np.uint8))
        for gradient, zero in zip(gradients, zeros, strict=True):
            pieces.append(zero if gradient is None else gradient.detach().numpy())
    return np.concatenate([np.ascontiguousarray(piece).reshape(-1).view(np.uint8) for piece in pieces])


def unpack(packed: Array, zeros: list[Array], count: int) -> Iterator[Member]:
    """Yields the `count` members that `pack` packed; arguments as there."""
    ends = np.cumsum([16, len(zeros), *(zero.nbytes for zero in zeros)])
    for record in np.split(packed, count):
        head, reached, *values = (piece.copy() for piece in np.split(record, ends[:-1]))
        position, loss = head.view(np.float64).tolist()
        arrays = [value.view(zero.dtype).reshape(zero.shape) for value, zero in zip(values, zeros, strict=True)]
        gradients = [torch.from_numpy(array) if there else None for array, there in zip(arrays, reached, strict=True)]
        yield Member(int(position), loss, Gradients(gradients))
