"""The technique `fresh`: stable and young embeddings of earlier steps take the place of computed ones (FreshGNN, Algorithm 1).

    lookup    the nodes of layers 1..L-1 that the history holds, at the present step        ->  slots
    prune     nodes that are not needed then leave the batch (batches.py)                   ->  fewer inputs, by the factor of a subtree
    train     forward with their rows spliced between the layers, backward                  ->  a gradient in every row
    update    rows of the smallest gradients enter, those of the largest leave              ->  the next step's history

The history is bounded by an age (`t_stale`), by the gradients (`p_grad`) and by the bytes of its arena, which it shares with the hottest
feature rows (kernels/history/arena.py). With p_grad = 0 or t_stale = 0 it stays empty, and losses are bit-equal to `minibatch`; with p_grad
= 1 and t_stale = "forever" it is the history of GAS and VR-GCN, whose rows drift away.

Links: the seeds are the ends of a batch's edges, which a batch leaves out of its blocks. Only the rows of these ends have messages along
such edges, so a batch computes them itself, and keeps none of them: they lack edges that other batches have. Rows above the first layer
have messages along edges of other nodes, which may be those that a later batch predicts. So the history of links is that of the first
layer. With `exclude_targets = false` it is that of nodes.

A row is kept as the layer's output before dropout; the step that reads it draws its own mask. So kept rows carry no mask of an earlier
step, and the probe compares embeddings and not masks.

Known limits: the output of a layer that continues after its dropout (`pinsage`) is kept with the mask of the step that computed it. The
statistics of norm = "batch" are those of the computed rows. Weights depend on the size of the arena. A model of one layer has nothing to
keep.

The distance of cached embeddings from authentic ones (FreshGNN, Figs. 1 and 3): cosine similarity and relative error of the norm.

Some of the embeddings that a lookup could return are computed anew, with the present weights, without dropout, from neighbours that are
drawn on a stream of their own. Even a row that was just computed differs, since its neighbours are others: a second draw for the same nodes
measures this difference, and the rest is the effect of the updates since then.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.history.arena import History
from graphmill.kernels.types import Array, BatchKey, Stream
from graphmill.trainers.batches.batch import attach_weights, send_blocks
from graphmill.trainers.loop.executor import BatchGradient, Done, Executor, Run
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import require_layers
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.record.checks import ledger_numbers
from graphmill.trainers.record.ledger import STEP, WAIT, Line
from graphmill.trainers.rows.source import RowIds, linked
from graphmill.trainers.techniques.fresh.ahead import AHEAD, Decision
from graphmill.trainers.techniques.fresh.batches import PrunedSource
from graphmill.trainers.techniques.fresh.history import BetweenLayers, SteppedHistory, TableFill, epoch_numbers
from graphmill.trainers.techniques.openings import open_packed, open_samplers


def open_executor(run: Run) -> FreshExecutor:
    """Returns the executor that trains the run's model on pruned batches.

    Raises:
        InputError: the model is one module, hotness counts no layers, required stored batches or packed rows are missing, or the arena does
            not fit.
    """
    require_layers(run.model, run.semantic.train.trainer)
    settings = run.semantic.train.settings
    history = SteppedHistory(run, TableFill(run))
    samplers = open_samplers(run)
    packed = open_packed(run) if settings.rows == "packed" else None
    rows = run.features.source if packed is None else linked(packed, run.features.device)
    probe = Probe(run, history.arena, settings.probe) if settings.probe else None
    batches = PrunedSource(run.batching, {0: history}, 1, rows, samplers, packed, settings.lookahead)
    batches.in_turn = run.in_turn
    return FreshExecutor(run, batches, history, probe)


class WithHistory(Executor):
    """What a history adds to an executor: numbers of an epoch, and tensors of a checkpoint."""

    # The history of the embeddings that batches leave out.
    history: SteppedHistory
    # Compares cached embeddings with authentic ones, or None.
    probe: Probe | None

    def epoch_numbers(self, epoch: int) -> dict[str, float | int]:
        """Returns the history's numbers for an epoch's row of metrics."""
        numbers = epoch_numbers(self.history.held(epoch), ledger_numbers(self.run.ledger.rows()))
        return numbers | (self.probe(epoch) if self.probe else {})

    def state(self) -> Mapping[str, Tensor]:
        """Returns the history's index and rows."""
        return self.history.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores the history of the run that was stopped."""
        super().restore(state)
        self.history.restore(state)


class FreshExecutor(WithHistory):
    """Trains on pruned batches, one after the other, and updates the history after each optimiser step.

    Args:
        probe: compares cached embeddings with authentic ones, or None.
    """

    source: PrunedSource

    def __init__(self, run: Run, source: PrunedSource, history: SteppedHistory, probe: Probe | None = None):
        super().__init__(run)
        self.source, self.packed, self.history, self.probe = source, source.packed, history, probe
        self.between = BetweenLayers(history)
        self.gradient = BatchGradient(run.model, run.semantic.seed, run.loss, run.semantic.train.dtype)

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        """Yields one `Done` per mini-batch; the history is updated before the last one of an optimiser step is yielded."""
        for batch in self.source.batches(epoch, start):
            step = self.run.plan.step_of(epoch, batch.position)
            with self.run.timeline.span(STEP, "train", batch.position):
                self.history.book(batch, self.run.ledger)
                if self.source.lookahead:
                    self.history.compare(batch, step, self.run.ledger)
                done = self.gradient(batch, self.between)
            if done.last:
                with self.run.timeline.span(STEP, WAIT, batch.position):
                    self.source.await_decision(batch.position + 1)
            with self.run.timeline.span(STEP, "history", batch.position):
                ends = self.run.batching.ends_of(batch)
                self.history.add(self.between.taken(self.history.keeps(step), ends))
                if done.last:
                    # Before the loop's update: a checkpoint that is written after it must hold the history of the next batch.
                    self.history.update(step, self.run.ledger)
            # The batch's bytes are released when the source is asked for the next one, so no reference may outlive this line.
            del batch
            yield done

    def state(self) -> Mapping[str, Tensor]:
        """Returns the history's index and rows, and what is decided about the next batch."""
        pending = self.source.restored or self.source.decisions.pending
        return {**super().state(), **({} if pending is None else pending.state())}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores the history of the run that was stopped, and its decision about the next batch."""
        arena, device = self.history.arena, self.run.features.device
        ahead = {name: device.fetch(state[name], TO_HOST, device.traffic) for name in state if name.startswith(AHEAD)}
        super().restore({name: tensor for name, tensor in state.items() if name not in ahead})
        self.source.restored = Decision.restored(ahead, self.history.layers, arena.num_nodes, arena.embeddings)


DRAWINGS = 2
TO_HOST = Line("d2h", "output")


class Probe:
    """Compares cached embeddings at the end of an epoch."""

    def __init__(self, run: Run, arena: History, count: int):
        self.run, self.arena, self.count = run, arena, count

    def __call__(self, epoch: int) -> dict[str, float]:
        """Returns the means over the probed embeddings, {} if the history holds none.

        Args:
            epoch: training epoch, from 0, which has just ended.
        """
        state, device = self.arena.state(), self.run.features.device
        device.traffic.carried(self.arena.read_traffic(state), "output")
        owner, age = state["owner"], (epoch + 1) * self.run.plan.steps_per_epoch - state["born"]
        valid = np.flatnonzero((owner >= 0) & (age > 0) & (age <= self.arena.t_stale))
        if not len(valid):
            return {}
        drawn = valid[np.unique(np.linspace(0, len(valid) - 1, min(self.count, len(valid))).astype(np.int64))]
        layers, ids = owner[drawn] // self.arena.num_nodes + 1, owner[drawn] % self.arena.num_nodes
        found: list[Tensor] = []
        for layer in np.unique(layers).tolist():
            at = layers == layer
            cached = torch.from_numpy(state["rows"][drawn[at]])
            fresh = [self._authentic(layer, ids[at], epoch * DRAWINGS + each) for each in range(DRAWINGS)]
            found.append(torch.stack([*_compared(cached, fresh[0]), *_compared(fresh[1], fresh[0])]))
        means = torch.cat(found, dim=1).double().nanmean(dim=1).tolist()
        names = ("cached_cosine", "cached_norm_error", "redrawn_cosine", "redrawn_norm_error")
        return dict(zip(names, means, strict=True)) | {"probed": len(drawn), "mean_age": float(age[drawn].mean())}

    def _authentic(self, layer: int, ids: Array, step: int) -> Tensor:
        """Returns float[n, H] in the host's memory, embeddings of a layer computed anew."""
        run, model, device = self.run, self.run.model, self.run.features.device
        assert isinstance(model, LayeredModel) and run.drawing is not None
        topology, seed = run.graph.topology, run.semantic.sampling_seed
        below = run.drawing.neighbours.fanouts[-layer:]
        sampler = run.drawing.with_fanouts(below).sampler(topology, seed=seed)
        wanted, place = np.unique(ids.astype(topology.indices.dtype), return_inverse=True)
        blocks = sampler.sample(BatchKey(Stream.PROBE, 0, step), wanted, transpose="none")
        attach_weights(blocks, topology, model.edge_weight)
        dtype = np.dtype(kept_dtype(run.semantic.train.dtype))
        x = device.alloc((blocks[0].num_src, run.features.table.width), dtype, "inputs")
        run.features.table.gather(RowIds(blocks[0].src_ids), x, device.traffic)
        there = send_blocks(blocks, device, device.traffic)
        random = StepRandom(seed, training=False)
        model.eval()  # for a user's layers, which are called one by one; each training pass sets its own mode
        with torch.no_grad():
            h = model.input(x, there[0].src_ids, random)
            for number, block in enumerate(there):
                h = model.forward_layer(number, block, h, random)
        return device.fetch(h, TO_HOST, device.traffic)[torch.from_numpy(place)]


def _compared(rows: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Returns float[n] cosine similarities, and float[n] norms of the differences relative to those of `others`; NaN for rows of zeros."""
    cosine = torch.nn.functional.cosine_similarity(rows, others, dim=1)
    norms = others.norm(dim=1)
    cosine = torch.where((norms > 0) & (rows.norm(dim=1) > 0), cosine, torch.nan)
    return cosine, torch.where(norms > 0, (rows - others).norm(dim=1) / norms, torch.nan)
