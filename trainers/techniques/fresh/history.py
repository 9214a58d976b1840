"""The history of embeddings in the steps of a training: lookup, splicing and update (FreshGNN, Algorithm 1)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.hotness.read import Hotness, open_hotness
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.require import require
from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.history.admit import LayerRows
from graphmill.kernels.history.arena import FOREVER, FeatureSide, History
from graphmill.kernels.history.row_norms import row_norms
from graphmill.kernels.types import Array, Block
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.devices.protocol import CACHE, kernel_array
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.ops import splice
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.record.checks import INPUTS, count_name
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.source import COUNTS, TableSource
from graphmill.trainers.techniques.fresh.ahead import index_of
from graphmill.trainers.techniques.fresh.arena_rows import HITS
from graphmill.trainers.techniques.fresh.ranking import BatchVisits, Share, share_arena
from graphmill.trainers.techniques.fresh.settings import FreshSettings, kept_layers

SENT, TO_HOST = Line("h2d", "ids"), Line("d2h", "checkpoint")
FILLED_BYTES = 16 << 20
"""Bytes of feature rows that are read at a time while the arena is filled."""
PLAIN = (INPUTS, count_name("pruned_nodes", 0), count_name(HITS, 0))
"""Numbers of the ledger from which the share of rows that were not loaded follows."""


class ArenaFill(Protocol):
    """The feature rows that an arena may hold."""

    # The nodes whose rows it may hold, bool[N].
    allowed: Array
    # The bytes of which the key `arena` is a share.
    num_bytes: int
    # Columns of a row.
    width: int

    def pieces(self, node_ids: Array, dtype: str) -> Iterator[tuple[int, Array | Tensor]]:
        """Yields the converted rows of nodes in pieces: (place of the first row, rows)."""
        ...


class TableFill:
    """The rows of the run's table."""

    def __init__(self, run: Run):
        self.source: TableSource = run.features.table
        stored, num_nodes = run.features.stored, run.graph.topology.num_nodes
        self.allowed = np.ones(num_nodes, bool) if stored.row_of is None else np.asarray(stored.row_of >= 0)
        self.num_bytes, self.width = stored.num_bytes, stored.width

    def pieces(self, node_ids: Array, dtype: str) -> Iterator[tuple[int, Array]]:
        """Yields the rows of nodes; see `ArenaFill`."""
        row_bytes = self.width * np.dtype(dtype).itemsize
        step = max(1, FILLED_BYTES // max(1, row_bytes))
        for first in range(0, len(node_ids), step):
            ids = node_ids[first : first + step]
            rows = np.empty((len(ids), self.width), dtype)
            self.source.require(ids)
            self.source.fill(ids, rows, Ledger())
            yield first, rows


class SteppedHistory:
    """The history in the steps of a run: lookup, splicing and update.

    Args:
        fill: the feature rows that the arena may hold, and the bytes of which it is a share.

    Attributes:
        layers: number of layers whose rows may be kept, from the first one on.
        first_step, t_stale: the first optimiser step whose rows are kept, and their oldest age; None for no bound.
        updated: the launches of the last update, which lookups on other streams join.

    Raises:
        InputError: hotness is of another graph or counts no layers, or the arena does not fit.
    """

    def __init__(self, run: Run, fill: ArenaFill):
        settings: FreshSettings = run.semantic.train.settings
        self.run, self.settings, self.fill = run, settings, fill
        per_epoch, train = run.plan.steps_per_epoch, run.semantic.train
        self.t_stale, self.first_step = settings.stale_steps(per_epoch), settings.first_step(per_epoch)
        self.layers = kept_layers(train)
        self.dtype = kept_dtype(train.dtype)
        hotness, num_nodes = run.inputs["hotness"], run.graph.topology.num_nodes
        width = self._row_width()
        shape = {"layer_inputs": {"shape": (train.layers, num_nodes)}}
        require(hotness, {"inputs": {"graph": run.inputs["graph"]}, "arrays": shape})
        device, size = run.features.device, parse_size(settings.arena, fill.num_bytes) // 8 * 8
        share = self._share(open_hotness(hotness), size) if settings.ranked else None
        side = self._features(open_hotness(hotness), size, share) if settings.features else None
        self._score: Any = None if share is None else share.score
        # The user sets the arena's size, so it has its own budget beside that of cached features.
        if device.cache_bytes is not None:
            device.cache_bytes += size
        self.memory = device.alloc((size,), torch.uint8, CACHE)
        self.arena = History(
            memory=kernel_array(self.memory),
            num_layers=self.layers,
            num_nodes=num_nodes,
            width=width,
            dtype=self.dtype,
            t_stale=FOREVER if self.t_stale is None else self.t_stale,
            p_grad=str(settings.p_grad),
            features=side,
            max_slots=None if share is None else share.max_slots,
            least=0.0 if share is None else share.least,
            reuse=settings.ranked,
            threads=train.num_threads,
        )
        device.traffic.carried(self.arena.index_traffic, "ids")
        if share is not None:
            (self._score,) = device.send([share.score], SENT, device.traffic)
        self._fill()
        self._rows: list[LayerRows] = []
        self.updated = device.mark()

    def _row_width(self) -> int:
        model = self.run.model
        assert isinstance(model, LayeredModel)
        widths = model.border_widths
        if len({*widths}) > 1:
            problem = f"rows of {', '.join(map(str, widths))} columns pass between the layers, and a history holds rows of one width"
            raise InputError(problem, "make all hidden layers of the model equally wide")
        return widths[0] if widths else self.run.semantic.train.hidden

    def _share(self, hotness: Hotness, size: int) -> Share:
        """Returns the shares of embeddings and feature rows in the arena."""
        run, layers = self.run, self.layers
        assert hotness.layer_inputs is not None and hotness.layer_visits is not None
        # If the hotness policy counts no visits of features, the visits of the first layer's nodes stand in.
        visits = np.array(hotness.layer_visits[0] if hotness.visits is None else hotness.visits)
        itemsize = np.dtype(self.dtype).itemsize
        visits[~self.fill.allowed] = 0
        rounds = run.inputs["hotness"].config["hotness"]["rounds"]
        # Hotness is counted on batches without parts.
        presampled = -(-len(run.plan.train_ids) // run.plan.batch_size)
        counted = BatchVisits(
            num_batches=rounds * presampled,
            visits=visits,
            layer_visits=np.asarray(hotness.layer_visits[:layers]),
            layer_inputs=np.asarray(hotness.layer_inputs[:layers]),
        )
        longest = None if self.t_stale is None else self.t_stale * run.plan.accumulate
        row_bytes = self._row_width() * itemsize, self.fill.width * itemsize
        return share_arena(counted, self.settings.p_grad, longest, *row_bytes, size)

    def _features(self, hotness: Hotness, size: int, share: Share | None) -> FeatureSide:
        """Returns the feature rows that the arena may hold, hottest first."""
        fill, order, itemsize = self.fill, np.asarray(hotness.order), np.dtype(self.dtype).itemsize
        # A selection of all nodes would be a copy of 12 bytes per node.
        ids = order if fill.allowed.all() else order[fill.allowed[order]]
        if self.settings.lookahead and share is not None:
            # Batches copy them beside updates, so that no embedding may ever reach one.
            ids = ids[: (size - share.max_slots * self._row_width() * itemsize) // max(1, fill.width * itemsize)]
        return FeatureSide(ids, fill.width)

    def _fill(self) -> None:
        """Writes the feature rows of the arena."""
        device = self.run.features.device
        for first, rows in self.fill.pieces(self.arena.feature_ids, self.dtype):
            with device.filling(self.arena.features[first : first + len(rows)]) as filled:
                filled[:] = rows

    def held(self, epoch: int) -> dict[str, float]:
        """Returns rows and bytes of embeddings, and bytes of feature rows, that it holds at the end of a training epoch (from 0)."""
        arena, device = self.arena, self.run.features.device
        embeddings, features = arena.held((epoch + 1) * self.run.plan.steps_per_epoch)
        device.traffic.carried(arena.read_traffic(), "ids")
        return {
            "history_rows": embeddings,
            "history_bytes": embeddings * arena.width * arena.dtype.itemsize,
            "arena_feature_bytes": features * self.fill.width * arena.dtype.itemsize,
        }

    def state(self) -> dict[str, Tensor]:
        """Returns index and rows, on the host."""
        state, device = self.arena.state(), self.run.features.device
        device.traffic.carried(self.arena.read_traffic(state), "checkpoint")
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores the tensors that `state` returned."""
        device, arena = self.run.features.device, self.arena
        arrays = {name: device.fetch(tensor, TO_HOST, device.traffic).numpy() for name, tensor in state.items()}
        device.traffic.carried(arena.restore(arrays), "checkpoint")
        device.traffic.carried(arena.index_traffic, "ids")
        self.updated = device.mark()

    def slots(self, blocks: Sequence[Block], step: int, ends: int = 0) -> list[Any]:
        """Returns i32[num_src] for each of blocks[1:], the slot of each source's row in the arena, negative for none.

        A head that reads all layers needs the seeds' rows of each. So their rows above the first hidden layer are computed; else those
        below would be pruned. Seeds are the first sources of every sampled block.

        Args:
            step: the optimiser step of the run that the batch belongs to.
            ends: number of first seeds whose rows are computed in any case (`Batching.ends_of`).
        """
        found = [self._slots(layer, blocks[layer].src_ids, step) for layer in range(1, len(blocks))]
        for layer, slots in enumerate(found):
            slots[: blocks[-1].num_dst if layer and self.run.model.jumps else ends] = -1
        return found

    def _slots(self, layer: int, ids: Any, step: int) -> Any:
        if layer <= self.layers:
            return self.arena.lookup(layer, ids, step)
        return torch.full_like(ids, -1, dtype=torch.int32) if on_device(ids) else np.full(len(ids), -1, np.int32)

    def keeps(self, step: int) -> bool:
        """Whether rows of an optimiser step may be kept."""
        return self.t_stale != 0 and self.settings.p_grad > 0 and step >= self.first_step

    def add(self, rows: Sequence[LayerRows]) -> None:
        """Keeps rows of a batch for the update; batches come in order."""
        self._rows += rows

    def saved_access(self, layer: int, ids: Any) -> Any:
        """Returns f32[n], the accesses that a byte of each node's row saves; None if rows are not ranked by them."""
        if self._score is None:
            return None
        found = self._score[layer - 1]
        return found[index_of(ids)]

    def update(self, step: int, ledger: Ledger) -> None:
        """Evicts and admits after the backward passes of an optimiser step, and counts it."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        counts = self.arena.update(step, rows).counts
        if on_device(counts):
            device = self.run.features.device
            ledger.later(device.note(torch.as_tensor(counts), COUNTS, ledger), self._book_update)
            self.updated = device.mark()
        else:
            self._book_update(counts.tolist(), ledger)

    def _book_update(self, counts: Sequence[int], ledger: Ledger) -> None:
        """Counts the rows that an update let in and took out, and the bytes of those that entered; counts are those of `Admission`."""
        row_bytes = self.arena.width * self.arena.dtype.itemsize
        for layer in range(1, self.layers + 1):
            entered, left = counts[layer - 1], counts[self.layers + layer - 1]
            ledger.count("history_admitted", layer, entered)
            ledger.count("history_evicted", layer, left)
            if entered:
                ledger.crossed(Line("d2d", "embedding", "backward", layer), entered * row_bytes)
        ledger.count("history_overflow", 0, counts[-1])

    def compare(self, batch: MiniBatch, step: int, ledger: Ledger) -> None:
        """Counts the rows of a pruned batch that were decided ahead of an update, and otherwise than a lookup behind it decides.

        Args:
            step: the optimiser step of the batch, whose update is to come.
        """
        found, hits, sums = self.slots(batch.blocks, step, self.run.batching.ends_of(batch)), [], []
        for block, slots in zip(batch.blocks[1:], found, strict=True):
            held, places = slots >= 0, slice(0, 0) if block.splice is None else index_of(block.splice.hist_pos)
            hits.append(0 if block.splice is None else len(block.splice.hist_pos))
            sums += [held.sum(), held[places].sum()]
        if sums and on_device(batch.input_ids):
            note = self.run.features.device.note(torch.stack(sums), COUNTS, ledger)
            ledger.later(note, lambda found, to: self._book_compared(hits, found, to))
        else:
            self._book_compared(hits, sums, ledger)

    def _book_compared(self, hits: Sequence[int], sums: Sequence[int], ledger: Ledger) -> None:
        """Counts by layer; hits are those that the batch reads, and sums of each layer those that are held now, and of these the same."""
        for layer, (read, held, both) in enumerate(zip(hits, sums[::2], sums[1::2], strict=True), 1):
            ledger.count("history_hits_evicted", layer, read - int(both))
            ledger.count("history_hits_missed", layer, int(held) - int(both))

    def book(self, batch: MiniBatch, ledger: Ledger) -> None:
        """Books the rows that a batch reads from the arena."""
        row_bytes = self.arena.width * self.arena.dtype.itemsize
        for layer, block in enumerate(batch.blocks):
            if block.splice is not None:
                ledger.crossed(Line("d2d", "embedding", "forward", layer), len(block.splice.hist_pos) * row_bytes)


class BetweenLayers:
    """Puts kept rows between the layers of one model, and collects rows and gradients there; each replica of the model has its own."""

    def __init__(self, history: SteppedHistory):
        self.history = history
        self._between: list[tuple[int, Block, Tensor]] = []

    def __call__(self, layer: int, block: Block, h: Tensor) -> Tensor:
        """Puts cached rows between computed ones, and remembers all of them until their gradients are there."""
        if block.splice is not None:
            cached = block.splice.rows
            if cached is None:
                cached = torch.as_tensor(self.history.arena.embeddings[index_of(block.splice.hist_slot)])
            h = splice(h, cached, block.splice)
        h.retain_grad()
        self._between.append((layer, block, h))
        return h

    def taken(self, keep: bool, ends: int) -> list[LayerRows]:
        """Returns rows and gradients of a batch whose backward pass is done, none without `keep`, and forgets them.

        Args:
            ends: number of first seeds whose rows are not kept (`Batching.ends_of`).
        """
        found = []
        for layer, block, h in self._between if keep else ():
            assert h.grad is not None, "every row is read by a layer that a seed reads"
            if layer > self.history.layers:
                continue
            ids = block.src_ids[ends:]
            rows = LayerRows(
                layer=layer,
                ids=ids,
                rows=self._kept(h.detach()[ends:]),
                norms=row_norms(self._kept(h.grad[ends:])),
                cached=None if block.splice is None else block.splice.hist_pos - ends,
                saved=self.history.saved_access(layer, ids),
            )
            found.append(rows)
        self._between.clear()
        return found

    def _kept(self, rows: Tensor) -> Any:
        """Returns rows in the type of the arena, as kernels take them."""
        return kernel_array(rows.to(getattr(torch, self.history.dtype)).contiguous())


def epoch_numbers(held: Mapping[str, float], counted: Mapping[str, int]) -> dict[str, float | int]:
    """Returns the history's numbers for an epoch's row of metrics: bytes that it holds, and the share of rows that were not loaded.

    Args:
        held: the result of `SteppedHistory.held`, summed if there are several.
        counted: the numbers PLAIN of the ledger.
    """
    inputs, pruned, hits = (counted.get(name, 0) for name in PLAIN)
    return {**held, "io_saving": 1 - (inputs - hits) / (inputs + pruned)}
