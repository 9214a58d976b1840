"""The technique `fresh-distributed`: a history of embeddings per part, and an exchange of the other rows (FastSample with FreshGNN).

    sample    ahead, on threads, from the whole topology                        as `distributed`
    prune     by the history of the batch's part                                as `fresh`
    exchange  distinct rows of other ranks that neither the history's arena nor the cache has: sizes, request, reply
    train     the gradients of all batches of a step are added in batch order   as `distributed`
    update    each history gets the rows and gradients of the step's batches of its part

A history belongs to a PART and not to a rank, since the rank that computes a batch must not affect the result: one rank with four parts,
two with two and four with one hold the same four histories. So weights are the same bits, and a run continues from a checkpoint on any
number of ranks. The parts share the bytes of `arena` evenly. The feature rows in an arena are hot rows of other parts, which are the costly
ones; with one part they are those of `fresh`, and so is every bit.

With `exchange = "peer"` the hottest rows lie on the devices of the ranks as well (trainers/techniques/distributed/device_rows.py): a batch
reads there what its arena lacks, rows of its own part above all. The arenas hold what they hold without, since an arena that left these
rows out would keep other embeddings.

With `rows = "packed"` a batch reads what its arena lacks from the packed rows of its rank's stored batches, and no feature row is exchanged
after the arenas are filled. The bits are those of rows from the shards.

A batch's request to other ranks is known when it is pruned, after the update before it. So the exchange does not overlap training, and
since no earlier reply can carry its sizes, a round of sizes precedes the two rounds of each batch.

Known limits: hotness counts the requests of the batches of all parts, not those of one. Every history has an index of all nodes, 4 bytes
per node and layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from graphmill.assets.shards.read import open_shards
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.loop.executor import Done, Run
from graphmill.trainers.models.layer import Between
from graphmill.trainers.models.own import require_layers
from graphmill.trainers.record.checks import ledger_numbers
from graphmill.trainers.record.ledger import STEP, Ledger
from graphmill.trainers.rows.source import RowIds, linked
from graphmill.trainers.techniques.distributed.executor import Distributed, Member, open_samplers, require_shareable
from graphmill.trainers.techniques.distributed.sharded import FILL_ROWS, ShardedSource
from graphmill.trainers.techniques.distributed.vanilla import VanillaSampler
from graphmill.trainers.techniques.fresh.batches import PrunedSource
from graphmill.trainers.techniques.fresh.history import PLAIN, BetweenLayers, SteppedHistory, epoch_numbers
from graphmill.trainers.techniques.openings import open_packed


def open_executor(run: Run) -> FreshDistributed:
    """Returns the executor that trains the run's model on pruned batches with the other ranks; all ranks call it.

    Raises:
        InputError: the model is one module, hotness counts no layers, stored batches or packed rows are missing, or the arenas do not
            fit.
    """
    require_layers(run.model, run.semantic.train.trainer)
    source = require_shareable(run)
    owned, shards, histories = source.owned, open_shards(run.reads["shards"]), {}
    for part in owned.parts:
        allowed = np.asarray(shards.row_of) >= 0
        if owned.num_parts > 1:
            allowed &= owned.part_of != part
        fill = ExchangedFill(source, allowed, int(shards.num_rows.sum()) * shards.row_bytes // owned.num_parts)
        histories[part] = SteppedHistory(run, fill)
    samplers, packed = open_samplers(run), None
    assert not isinstance(samplers, VanillaSampler), "the settings refuse a sampler that needs the other ranks"
    if run.semantic.train.settings.rows == "packed":
        packed = open_packed(run, owned.parts)
    rows = source if packed is None else linked(packed, run.features.device)
    batches = PrunedSource(run.batching, histories, owned.num_parts, rows, samplers, packed)
    batches.in_turn = run.in_turn
    return FreshDistributed(run, batches)


class ExchangedFill:
    """The rows that fill the arena of a part: own rows, and through the exchange those of other ranks.

    Args:
        allowed: bool[N], nodes whose rows the arena may hold.
        num_bytes: the bytes of which `arena` is a share: all features, divided by the number of parts.
    """

    def __init__(self, source: ShardedSource, allowed: Array, num_bytes: int):
        self.source, self.allowed, self.num_bytes, self.width = source, allowed, num_bytes, source.width

    def pieces(self, node_ids: Array, dtype: str) -> Iterator[tuple[int, Tensor]]:
        """Yields the rows of nodes in pieces: (place of the first row, rows); all ranks call it together, each for its own nodes."""
        for first in range(0, self.source.exchange.lane.most(len(node_ids)), FILL_ROWS):
            ids = node_ids[first : first + FILL_ROWS]
            rows = torch.empty((len(ids), self.width), dtype=getattr(torch, dtype))
            moved, device = Ledger(), self.source.device
            self.source.gather(RowIds(ids), rows, moved)
            device.traffic.merge(moved.without("h2d"))  # rows that are sent to a device are booked when it gets them
            if len(ids):
                yield first, rows


class FreshDistributed(Distributed):
    """Computes the pruned batches of this rank's parts, and updates their histories once per step."""

    def __init__(self, run: Run, source: PrunedSource):
        super().__init__(run, source)
        self.histories, self._step = source.histories, 0
        self._between = {part: BetweenLayers(history) for part, history in source.histories.items()}

    def _member(self, batch: MiniBatch, between: Between | None = None) -> Member:
        part = batch.key.step % self.num_parts
        history, between = self.histories[part], self._between[part]
        self._step = self.run.plan.step_of(batch.train_epoch, batch.position)
        history.book(batch, self.run.ledger)
        member = super()._member(batch, between)
        history.add(between.taken(history.keeps(self._step), self.run.batching.ends_of(batch)))
        return member

    def _joined(self, members: list[Member], seeds: int) -> Iterator[Done]:
        with self.run.timeline.span(STEP, "history", members[-1].position):
            # Before the loop's update: a checkpoint that is written after it must hold the histories of the next batch.
            for history in self.histories.values():
                history.update(self._step, self.run.ledger)
        yield from super()._joined(members, seeds)

    def epoch_numbers(self, epoch: int) -> dict[str, float | int]:
        """Returns the numbers of all histories for an epoch's row of metrics; all ranks call it."""
        found = [history.held(epoch) for history in self.histories.values()]
        held = {name: sum(each[name] for each in found) for name in found[0]}
        counted = ledger_numbers(self.run.ledger.rows())
        told = self.lane.gather_values([held, {name: counted.get(name, 0) for name in PLAIN}])
        held, counted = ({name: sum(rank[i][name] for rank in told) for name in told[0][i]} for i in (0, 1))
        return epoch_numbers(held, counted)

    def state(self) -> Mapping[str, Tensor]:
        """Returns index and rows of the histories of all parts at the first rank; all ranks call it."""
        own = {
            f"{part}/{name}": tensor
            for part, history in self.histories.items()
            for name, tensor in history.state().items()
        }
        if self.lane.world == 1:
            return own
        found = self.lane.gather_at_first(save(own))
        return {name: tensor for data in found for name, tensor in load(data).items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores the histories of this rank's parts, from any ranks."""
        for part, history in self.histories.items():
            begin = f"{part}/"
            history.restore({name.removeprefix(begin): each for name, each in state.items() if name.startswith(begin)})
