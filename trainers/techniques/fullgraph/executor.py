"""The technique `fullgraph`: every step is a pass over the whole graph, with all neighbours, chunk by chunk (HongTu, Algorithm 1).

    features -> layer 1 over all chunks -> rows on the host -> ... -> layer L -> loss of the training nodes
    parameters' gradients <- layer 1 <- gradients on the host <- ... <- layer L <-

A device holds one chunk of one layer. Output rows, gradients and cached aggregates are on the host, and in files if memory is short:

    host     N x (sum of the widths of all outputs and cached aggregates + the two widest layers' gradients)
    device   buffer of neighbour rows, twice in a backward pass, and one chunk's block, inputs and activations (memory.py)

An epoch is one optimiser step. Dropout is keyed by node, so masks are those of an uncut pass, and losses equal it except for the order in
which sums are rounded. That order is fixed by the chunks and the mode: two runs end with the same bits, for any number of devices that
share the parts and whether aggregates are cached or computed again.

Ranks may share the parts (buffers.py, replicas.py). The host of a rank has the rows of its parts' nodes alone, so this memory
falls with the number of ranks. Rows that its chunks read of other parts come by messages, and their gradients go back. Gradients of
parameters and rows are added in the order of one process, so the bits are those of one process. Each rank has the topology and reads
features from the table; in modes p2p and p2p+reuse the rank that has a row of a step loads it, features too.

An exact evaluation is a forward pass over the same chunks; its logits are those of exact inference, in less time, since rows are loaded as
few times as in training. Their last bits differ, as those of an uncut pass do: a training's products with a matrix of few entries are those
of BLAS (trainers/models/products.py), and its first layer sums features before it maps them, since these sums may be kept. Ranks share an
evaluation, and the batches of a sampled one.

`mode = "device"` is uncut: the whole pass runs on the device of one process. It is the baseline for chunks.

The losses do not show whether rows were moved as few times as the mode promises. The ledger does (`planned`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.chunks.read import StoredChunks, open_chunks
from graphmill.assets.costs.needs import sizes_of
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.tasks.labels import step_values
from graphmill.kernels.blocks.transpose import order_weights
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import LABELS, send_blocks
from graphmill.trainers.batches.source import PreparedSource
from graphmill.trainers.devices.malloc import return_freed_memory
from graphmill.trainers.inference.bounds import OUTPUT_ROWS
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.loop.executor import Done, Executor, Run
from graphmill.trainers.models.cut.cut_layer import DEGREE
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.loss import loss_value
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import Model, OwnModule, require_layers
from graphmill.trainers.models.products import computing, kept_dtype, widened
from graphmill.trainers.ranks.group import Lane, PeerError
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.memory import memory_terms, training_case
from graphmill.trainers.record.checks import count_name, move_name
from graphmill.trainers.record.ledger import STEP
from graphmill.trainers.rows.source import RowIds
from graphmill.trainers.techniques.fullgraph.memory import BLOCKS, ROWS, HostRoom, Way
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import Passes
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import splits
from graphmill.trainers.techniques.fullgraph.passes.replicas import Replicas, open_gradients
from graphmill.trainers.techniques.fullgraph.passes.row_passes import InputRows, maps_apart
from graphmill.trainers.techniques.fullgraph.passes.whole_pass import Losses, NodeLosses, PairLosses, WholePass
from graphmill.trainers.techniques.fullgraph.rows.buffers import Mover
from graphmill.trainers.techniques.fullgraph.rows.lists import Walk, Ways, walk
from graphmill.trainers.techniques.fullgraph.rows.supply import ChunkBlocks, sums_back
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from graphmill.trainers.techniques.fullgraph.shares import (
    open_lane,
    open_places,
    part_share,
    require_memory,
    rows_of_nodes,
    whole_block,
)
from graphmill.trainers.techniques.fullgraph.tiers import NO_TIERS, feature_loads, open_tiers


def open_executor(run: Run) -> Executor:
    """Returns the executor that trains the run's model on the whole graph.

    Raises:
        InputError: the model cannot be cut, the chunks lack the nodes' own rows, or the number of devices or ranks does not fit.
    """
    settings = run.semantic.train.settings
    if settings.mode == "device":
        if run.ranks.world > 1:
            problem = (
                f'{run.ranks.world} ranks, but mode = "device" does not cut the graph into parts that they could share'
            )
            raise InputError(problem, 'leave --ranks out, or set mode = "p2p+reuse"')
        return Uncut(run)
    chunks = open_chunks(run.inputs["chunks"])
    if isinstance(run.model, OwnModule) and chunks.num_parts * chunks.chunks_per_part == 1:
        return Uncut(run)
    model = require_layers(run.model, "fullgraph")
    if buffers := model.changed_buffers:
        problem = (
            f"the model has buffers ({', '.join(buffers[:3])}), which a pass in chunks would change once per chunk"
        )
        raise InputError(problem, 'use a model without running statistics, or trainer = "minibatch"')
    if model.edge_weight == DEGREE and model.reads_weights and run.graph.topology.weights is not None:
        problem = "the model's convolutions make weights of the degrees and of the data's weights, which a chunk does not show"
        raise InputError(problem, 'set mode = "device" in [train.fullgraph], or give the convolutions no weights')
    if not chunks.self_term:
        problem = "[chunks] self_term = false, so the steps lack the rows of the nodes that they compute"
        raise InputError(problem, "set self_term = true, which is the default")
    return FullGraph(run, model, chunks, settings)


class OneStep(Executor):
    """The base of both executors: an epoch is one optimiser step over all training nodes, and no state is kept between two.

    Attributes:
        crossing: rows that cross between ranks in a pass over all steps, of all ranks.
        tiers: the cached feature rows of this process, with the counts of those that a pass finds on devices of all ranks.
        num_seeds: number of training nodes of this rank.
        keeps_first: whether the first layer's aggregates of the features are kept over the passes.
    """

    crossing: Ways[int]
    tiers = NO_TIERS
    num_seeds: int

    def __init__(self, run: Run):
        super().__init__(run)
        self.keeps_first = keeps_first(run.semantic.train, run.model)

    def total_loss(self, random: StepRandom) -> float | Tensor:
        """Adds the gradients of the model's parameters, and returns the sum of the losses."""
        raise NotImplementedError

    def evaluation_source(self, plan: EpochPlan) -> PreparedSource:
        """Returns the source of an evaluation's batches, for which the memory of a pass is given back: it is kept for tensors of chunks."""
        return_freed_memory()
        return super().evaluation_source(plan)

    def planned(self, epochs: int) -> dict[str, int]:
        """Returns the numbers of the ledger: volumes x bytes of rows x layers, of all ranks."""
        run = self.run
        settings, train = run.semantic.train.settings, run.semantic.train
        planned = {count_name("seeds", 0): epochs * len(run.plan.train_ids)}
        # The widths of a user's own layers are not known beforehand.
        if settings.mode == "device" or run.features.stored.row_of is not None or is_reference(train.model):
            return planned
        counts, value = open_chunks(run.inputs["chunks"]).counts, np.dtype(kept_dtype(train.dtype)).itemsize
        volume = {"vanilla": counts.v_ori, "p2p": counts.v_p2p, "p2p+reuse": counts.v_ru}[settings.mode]
        loads = leaving = came = found = 0
        for columns, again, features in self._buffered():
            row_bytes = run.features.stored.row_bytes if features else value * columns
            loads += row_bytes * (1 + again)
            found += features * row_bytes * (self.tiers.hits.up + self.tiers.hits.down * again)
            leaving += 0 if features else row_bytes
            # In mode vanilla every rank reads features itself.
            if not (features and settings.mode == "vanilla"):
                came += value * columns * (self.crossing.up + self.crossing.down * again)
        if run.ranks.world > 1:
            planned[move_name("rank", "neighbour")] = epochs * came
            planned[move_name("rank", "gradient")] = epochs * leaving * self.crossing.up
        if self.tiers.sources:
            planned[move_name("d2d", "feature")] = epochs * self.tiers.rows * run.features.stored.row_bytes
        return planned | {
            move_name("h2d", "neighbour"): epochs * (volume * loads - found),
            move_name("d2h", "gradient"): epochs * volume * leaving,
        }

    def _buffered(self) -> Iterator[tuple[int, bool, bool]]:
        """Yields for each layer that fills buffers their columns, whether the backward pass fills them again, and whether with features."""
        run, model = self.run, self.run.model
        assert isinstance(model, LayeredModel)
        for index, layer in enumerate(model.layers):
            first = index == 0 and model.projection is None
            if first and self.keeps_first:
                continue  # its aggregates are known, and nothing below it needs a gradient
            below = run.semantic.train.hidden if index or model.projection is None else model.projection.width
            columns = run.features.table.width if first else below
            apart = maps_apart(layer, columns)
            again = not (run.semantic.train.settings.hybrid and splits(layer, apart))
            yield int(layer.projected_width if apart else columns), again, first and not apart  # pyright: ignore

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        """Yields the one `Done` of an epoch; an error ends this process if there are others (trainers/ranks/leave.py)."""
        if start > 0:
            return
        try:
            loss = self.total_loss(StepRandom(self.run.semantic.seed, epoch, 0))
        except PeerError:
            raise
        except BaseException as error:
            if self.run.ranks.world > 1:
                self.run.ranks.leave(error)
            raise
        self.run.ledger.count("seeds", 0, self.num_seeds)
        yield Done(0, loss, len(self.run.plan.train_ids), True)


class FullGraph(OneStep):
    """Walks over the chunks of all layers, forwards and backwards.

    Args:
        settings: the technique's settings; not `mode = "device"`.
    """

    def __init__(self, run: Run, model: LayeredModel, chunks: StoredChunks, settings: FullGraphSettings):
        super().__init__(run)
        assert settings.mode != "device"
        train, device = run.semantic.train, run.features.device
        share = part_share(run, chunks, settings)
        lane = None if share is None else open_lane(run, settings)
        places = open_places(device, chunks.num_parts, settings.devices, share, run.ranks)
        self.replicas = replicas = Replicas(model, places)
        mover = Mover(places, run.ledger, run.timeline, settings.peer_gbps, train.num_threads, settings.overlap, lane)
        shared, peers = len(places) // len(replicas.devices), len(replicas.devices) if replicas.several else 1
        way = Way(hybrid=settings.hybrid, parts=shared, overlap=mover.overlaps, devices=peers)
        step_bytes = require_memory(run, chunks, settings, way)
        walked = walk(chunks, settings.mode, share)
        own = run.graph.topology.num_nodes if share is None else sum(len(chunks.nodes_of(part)) for part in share.parts)
        folder, room = self._room()
        passes = Passes(
            replicas=replicas,
            walk=walked,
            blocks=ChunkBlocks(chunks, run.graph.topology, model, room.blocks, run.edge_rows),
            mover=mover,
            dtype=train.dtype,
            hybrid=settings.hybrid,
            folder=folder,
            gradients=open_gradients(replicas, lane, run.ledger),
            rows_of=None if share is None else rows_of_nodes(chunks, share),
        )
        loads = feature_loads(model, run.features.table.width, self.keeps_first, settings.hybrid)
        self.tiers = open_tiers(run.features, walked, places, step_bytes, loads)
        inputs = InputRows(run.features.table, replicas, kept_dtype(train.dtype), self.tiers.sources)
        losses: Losses
        if run.edges is None:
            losses = NodeLosses(passes, run.graph.labels, run.seeds, run.loss)
        else:
            losses = PairLosses(passes, run.loss.of(model), run.edges, run.plan)
        self.whole, self.num_seeds, self.crossing = WholePass(passes, inputs, losses), losses.num_seeds, Ways(0, 0)
        if lane is not None:
            share = {"nodes": own, "host_row_bytes": room.rows * own // run.graph.topology.num_nodes}
            self.record = self._of_all_ranks(walked, lane, share)

    def _of_all_ranks(self, walked: Walk, lane: Lane, share: dict[str, Any]) -> dict[str, Any]:
        """Adds up the rows that cross and those on devices, and returns facts about the share of each rank; all ranks call it."""
        up, down = (
            sum(len(get.rows) for trades in walked.trades for get in trades.way(down).gets) for down in (False, True)
        )
        record = {"parts": list(walked.lists), **share, "rows_of_other_ranks": up}
        found = lane.gather_values([up, down, *self.tiers.hits, self.tiers.rows, record])
        *sums, rows = (sum(each[place] for each in found) for place in range(5))
        self.crossing, self.tiers = Ways(*sums[:2]), self.tiers._replace(hits=Ways(*sums[2:]), rows=rows)
        return {"ranks": [each[-1] for each in found]}

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        """Yields the one `Done` of an epoch. The loop bounds the memory of the first device, and this one that of the others."""
        others = self.replicas.devices[1:] if self.replicas.several else []
        with ExitStack() as bounds:
            for device in others:
                bounds.enter_context(device.active())
            yield from super().steps(epoch, start)
        if others:
            held = [{"device": str(each.torch_device), "peak_bytes": dict(each.peak)} for each in self.replicas.devices]
            self.record = {**self.record, "devices": held}

    def total_loss(self, random: StepRandom) -> float | Tensor:
        """Walks over the chunks of all layers and back; the first call keeps the first layer's aggregates, if they stay the same."""
        run, whole = self.run, self.whole
        if whole.summed is None and self.keeps_first:
            # Not a part of an epoch: a training that goes on computes them once more.
            whole.summed = whole.first_sums(run.features.device.traffic, random)
        loss = whole(random)
        run.features.device.enter_thread()  # this thread has launched work on the others as well
        return loss

    def exact_logits(self, node_ids: Array) -> Tensor:
        """Returns the logits of nodes by a forward pass over the chunks; all ranks call it, and each gets all logits."""
        asked = np.asarray(node_ids, np.int64)
        ids, back = np.unique(asked, return_inverse=True)
        found = self.whole.logits(ids)
        self.run.features.device.enter_thread()
        return found if np.array_equal(ids, asked) else found[torch.from_numpy(back)]

    def _room(self) -> tuple[Path | None, HostRoom]:
        """Returns the folder of the rows between two passes, None for memory, and the bytes of rows of all ranks and of blocks of this one.

        The terms of the training's memory decide, so that `inspect` says the same beforehand. All ranks call it.
        """
        run, world = self.run, self.run.ranks.world
        sizes = sizes_of({**run.inputs, **run.reads})
        assert sizes is not None, "the graph is among the inputs"
        case = training_case(run.semantic, run.execution, sizes, world)
        if case.free is not None and world > 1:  # as many bytes for each rank as those of this machine have
            case = replace(case, free=case.free * world // len(run.ranks.beside(None)))
        held = {term.name: term.most for term in memory_terms(case)}
        folder = None if held[ROWS] else run.execution.checkpoints.parent / "spill"  # pyright: ignore
        return folder, HostRoom(held[ROWS], held[BLOCKS] // world)


class Uncut(OneStep):
    """Runs each pass as a whole on the device; the block of the whole graph stays there."""

    def __init__(self, run: Run):
        super().__init__(run)
        self.num_seeds, self.crossing = len(run.plan.train_ids), Ways(0, 0)
        model, graph, device = run.model, run.graph, run.features.device
        self.summed: Tensor | None = None
        block = whole_block(run)
        if isinstance(model, LayeredModel) and sums_back(model, block, device):
            order_weights(block)
        (self.block,) = send_blocks((block,), device, device.traffic)
        if run.edge_rows is not None:
            run.edge_rows.give((self.block,), device)
            self.block.edge_id = None
        device.adopt([array for array in vars(block).values() if isinstance(array, np.ndarray)], "topology")
        shape = graph.topology.num_nodes, run.features.table.width
        self.x = device.alloc(shape, getattr(torch, kept_dtype(run.semantic.train.dtype)), "inputs")
        run.features.table.gather(RowIds(np.arange(len(self.x))), self.x, device.traffic)
        self.loss, self._of_nodes = (
            run.loss.of(model),
            None if run.edges else self._sent(run.seeds, graph.labels[run.seeds]),
        )

    def total_loss(self, random: StepRandom) -> float | Tensor:
        """Runs the model on the whole graph and back."""
        run, dtype = self.run, self.run.semantic.train.dtype
        with run.timeline.span(STEP, "train", 0):
            with computing(dtype, self.x.device):
                logits = self._logits(random)
            seeds, labels = self._of_nodes or self._of_links(random.train_epoch)
            loss = self.loss(logits[seeds], labels)
            loss.backward()
        return loss_value(loss)

    def _of_links(self, epoch: int) -> Sequence[Tensor]:
        """Returns the ends of all training links and of their negatives, which each epoch draws, and their places among these."""
        item, edges = next(self.run.plan.batches(epoch)), self.run.edges
        assert edges is not None
        links = edges.batch(item.key, item.seeds)
        return self._sent(links.nodes, links.scored)

    def _sent(self, ids: Array, labels: Array) -> Sequence[Tensor]:
        """Returns i64[n], nodes, and the labels of their loss, on the device."""
        device = self.run.features.device
        sent = device.send([ids.astype(np.int64), step_values(labels)], LABELS, device.traffic)
        return [torch.as_tensor(each) for each in sent]

    def exact_logits(self, node_ids: Array) -> Tensor:
        """Returns the logits of nodes by a pass over what is on the device already."""
        device = self.run.features.device
        with torch.no_grad(), computing(self.run.semantic.train.dtype, self.x.device):
            logits = self._logits(EVALUATION)
        ids = torch.as_tensor(np.asarray(node_ids, np.int64), device=logits.device)
        return device.fetch(logits[ids], OUTPUT_ROWS, device.traffic)

    def _logits(self, random: StepRandom) -> Tensor:
        """Returns float[N, num_classes]; the first call keeps the first layer's aggregates of the features, if they stay the same."""
        model, blocks = self.run.model, (self.block,) * self.run.semantic.train.layers
        if not isinstance(model, LayeredModel):
            return widened(model(blocks, self.x, random))
        layer: Any = model.layers[0]
        if self.summed is None and self.keeps_first:
            with torch.no_grad():
                self.summed = layer.aggregate(self.block, self.x, random.layer(1, self.block.dst_ids))
            if not layer.reads_own:
                self.x = self.x[:, :0].clone()  # frees the features, which nothing reads any more
        return widened(model(blocks, self.x, random, summed=self.summed))


def keeps_first(train: TrainConfig, model: Model) -> bool:
    """Returns whether the first layer's aggregates of the features are kept over the passes of a training."""
    if is_reference(train.model) or not train.own_settings.keep_first:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    return isinstance(model, LayeredModel) and model.keeps_first_sums
