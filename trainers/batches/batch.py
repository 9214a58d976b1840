"""A mini-batch and its verbs: it is drawn, marked, extracted (its rows are gathered), counted and sent, whatever its source is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.tasks.labels import step_values
from graphmill.kernels.blocks.coefficients import (
    data_mean_weights,
    gcn_weights,
    self_mean_weights,
    source_degrees,
    sum_weights,
)
from graphmill.kernels.blocks.pyg_blocks import PygBlock, to_pyg
from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.history.csr2_cuda import Inputs
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.sampling.epoch_plan import Plan, PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, BatchKey, Block, Topology
from graphmill.trainers.batches.edge_rows import EdgeRows, give_rows, place_edges
from graphmill.trainers.devices.launches import Launches
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Ledger, Line, Timeline
from graphmill.trainers.rows.source import FeatureSource, RowIds

if TYPE_CHECKING:
    from graphmill.trainers.devices.accelerator import Accelerator

DATA_SUMS, DATA_MEANS = ("data gcn", "data sum"), ("data mean", "data mean with self")
DATA_WEIGHTS = ("data", *DATA_SUMS, *DATA_MEANS)
"""Kinds of edge weights that are made of the data's, see `attach_weights`."""
BLOCKS, LABELS = Line("h2d", "topology"), Line("h2d", "label")
FETCHED_BLOCKS = Line("d2h", "topology")
ARRAYS = (
    "start", "end", "indices", "dst_pos", "weight", "self_weight", "share", "edge_type", "edge_id", "edge_place",
    "t_start", "t_edge", "t_dst",
)  # fmt: skip
"""The arrays of a block besides the ids of its sources."""


@dataclass(kw_only=True)
class MiniBatch:
    """The seeds of one step, the blocks under them, and the step's position in the run.

    Attributes:
        key: the key of the batch's sampling decisions.
        seeds: ids[b] global; labels: their labels, of classes i32[b].
        blocks: blocks[0] consumes features; the output of the last block is the seeds'. fanouts[0] belongs to the last block.
        train_epoch, position: the training epoch and the batch's place in it, which never repeat; dropout and resume use them.
        group: (position, size) in the batch's optimiser step; group_seeds: seeds of that whole step.
        slots: i32[n], the place of each input row; None for plain node ids.
        edge_ids: i64[U], the edges whose rows the blocks share, ascending (`Block.edge_rows`); None without rows of edges.
        x: float[n, F] gathered input rows (a torch tensor), or None before the gather.
        origin: i32[n], after pruning: the place of each surviving input before it; None if nothing was pruned.
        staged: rows that were loaded for this batch (trainers/rows/source.py), or None.
        inputs: of a pruned batch on a device whose rows the host finds, ids and places of its inputs on the host; else None.
        moved: transfers for it so far, if the device drew it; else None.
        launches: the last launches for it on a device that are not waited for, joined before it is used; None without any.
    """

    key: BatchKey
    seeds: Array
    labels: Array
    blocks: tuple[Block, ...]
    train_epoch: int
    position: int
    group: tuple[int, int]
    group_seeds: int
    slots: Array | None = None
    edge_ids: Array | None = None
    x: Any = None
    origin: Array | None = None
    staged: Any = None
    inputs: Inputs | None = None
    moved: Ledger | None = None
    launches: Launches | None = None

    def join(self, keeps: Device | None = None) -> None:
        """Lets what this thread launches from now on come behind the launches for the batch.

        Args:
            keeps: the device if the batch may be dropped before that is done, which keeps its memory for it; None if it may not.
        """
        if self.launches is not None:
            self.launches.join()
            if keeps is not None:
                keeps.keep(_tensors_of(self))

    @property
    def input_ids(self) -> Array:
        """ids[n]: global ids of the rows that blocks[0] consumes; unique, in deterministic order."""
        return self.blocks[0].src_ids

    def to(self, device: Any, non_blocking: bool = False) -> MiniBatch:
        """Returns the batch with its input rows on a torch device, on which `to_pyg` gives its tensors then; loaders call it."""
        return replace(self, x=self.x.to(device, non_blocking=non_blocking))

    def to_dgl(self) -> list[Any]:
        """Returns DGL blocks: the first has `srcdata["x"]`, the last `dstdata["y"]`, classes as int64; raises InputError without DGL."""
        from graphmill.kernels.blocks.dgl_blocks import to_dgl

        made = [to_dgl(block) for block in self.blocks]
        if self.x is not None:
            made[0].srcdata["x"] = self.x
        import torch

        made[-1].dstdata["y"] = torch.from_numpy(step_values(self.labels))
        return made

    def to_pyg(self) -> list[PygBlock]:
        """Returns the blocks as bipartite edges of PyG, with `x` on the first and `y` on the last. PyG is not imported."""
        import torch

        made = [to_pyg(block) for block in self.blocks]
        made[0].x, made[-1].y = self.x, torch.from_numpy(step_values(self.labels))
        return made if self.x is None or self.x.is_cpu else [block.to(self.x.device) for block in made]


@dataclass(frozen=True, kw_only=True)
class Batching:
    """The data of a run that every source of mini-batches needs.

    Attributes:
        labels: labels of N nodes (assets/tasks/labels.py).
        plan: the seeds of each batch.
        edge_weight: kind of edge weights that the model needs, see `attach_weights`; or None.
        transpose: the blocks that get a transpose.
        queue_bytes: bound on the bytes of batches that wait or are trained on.
        most_queue_bytes: bound up to which `queue_bytes` grows if a batch is larger; None for no growth.
        ahead: (bytes, batches): beyond these bytes no more batches wait than threads prepare at once and these; None for no such bound.
        ledger: receives rows, edges and bytes of every batch that the step took.
        timeline: receives the spans of every thread, and of the step while it waits for a batch.
        dtype: NumPy name of the type of gathered input rows.
        edge_rows: the rows of edges, None if the model reads none.
    """

    topology: Topology
    labels: Array
    plan: Plan
    edge_weight: str | None
    queue_bytes: int
    most_queue_bytes: int | None = None
    ahead: tuple[int, int] | None = None
    transpose: Transposes = "hidden"
    ledger: Ledger = field(default_factory=Ledger)
    timeline: Timeline = field(default_factory=Timeline)
    dtype: str = "float32"
    edge_rows: EdgeRows | None = None
    device: Device = field(default_factory=LogicalDevice)

    def waiting(self, lanes: int) -> dict[str, Any]:
        """Returns the bounds on the batches that wait behind a task of some lanes, as keywords of `Task`."""
        if self.ahead is None:
            return {}
        eager_bytes, batches = self.ahead
        return {"most_waiting": max(1, lanes) + batches, "eager_bytes": eager_bytes}

    def edge_bytes(self, batch: MiniBatch) -> int:
        """Returns the bytes of the rows of the edges of a batch."""
        return 0 if self.edge_rows is None or batch.edge_ids is None else self.edge_rows.num_bytes(len(batch.edge_ids))

    def num_bytes(self, batch: MiniBatch, width: int) -> int:
        """Returns the bytes of a batch with input rows of `width` columns and the rows of its edges."""
        return batch_bytes(batch, width, self.dtype) + self.edge_bytes(batch)

    def labels_of(self, item: PlannedBatch) -> Array:
        """Returns the labels of the seeds of a planned batch."""
        return self.labels[item.seeds]

    def ends_of(self, batch: MiniBatch) -> int:
        """Returns the number of a batch's first seeds whose edges it leaves out: of these a history keeps no row, and gives none."""
        return 0

    def batch(self, item: PlannedBatch, epoch: int, blocks: tuple[Block, ...], **more: Any) -> MiniBatch:
        """Returns a planned batch of a training epoch with its blocks and labels; `more` are other fields of the batch."""
        return MiniBatch(
            key=item.key,
            seeds=item.seeds,
            labels=self.labels_of(item),
            blocks=blocks,
            train_epoch=epoch,
            position=item.position,
            group=item.group,
            group_seeds=item.group_seeds,
            **more,
        )


class Drawer(ABC):
    """Draws blocks on a device, in the place of a sampler; belongs to one thread."""

    @abstractmethod
    def __call__(self, item: PlannedBatch, transpose: Transposes) -> tuple[tuple[Block, ...], Ledger, Launches]:
        """Returns the blocks of a batch with the edge weights that the model needs, the ledger of the transfers, and the launches."""


def lanes_of(samplers: Sequence[AnySampler | Drawer]) -> int:
    """Returns the lanes of a task that draws, one per sampler; 0 for the one thread of a device (see `Task`)."""
    return 0 if isinstance(samplers[0], Drawer) else len(samplers)


def draw_batch(
    batching: Batching,
    sampler: AnySampler | Drawer,
    item: PlannedBatch,
    epoch: int,
    transpose: Transposes | None = None,
    pruned: bool = False,
) -> MiniBatch:
    """Returns a batch with blocks and their weights, without rows.

    Args:
        sampler: draws the blocks, or reads stored ones; a `Drawer` leaves them on its device.
        transpose: the blocks that get a transpose; None for those that the model needs.
        pruned: whether the batch is pruned next: edges that are left get their places among the rows of edges behind that.
    """
    transpose = transpose or batching.transpose
    if isinstance(sampler, Drawer):
        blocks, moved, launches = sampler(item, transpose)
        return batching.batch(item, epoch, blocks, moved=moved, launches=launches)
    more = {} if batching.edge_rows is None else {"edge_ids": True}
    blocks = sampler.sample(item.key, item.seeds, transpose=transpose, **more)
    attach_weights(blocks, batching.topology, batching.edge_weight)
    return batching.batch(item, epoch, blocks, edge_ids=place_edges(blocks) if more and not pruned else None)


def mark_batch(batch: MiniBatch, features: FeatureSource) -> None:
    """Writes the slot of each input row of a batch on the host, for a source that finds rows by slot."""
    if features.slotted and not on_device(batch.input_ids):
        batch.slots = np.empty(batch.blocks[0].num_src, np.int32)
        features.mark(batch.blocks[0].src_ids, batch.slots)


def extract_batch(
    batching: Batching, features: FeatureSource, device: Device, pool: BufferPool, batch: MiniBatch
) -> tuple[MiniBatch, Ledger]:
    """Returns a batch with its input rows on the device that trains, and the ledger of its transfers and counts.

    Args:
        pool: lends memory for the rows, on a device without memory of its own.
        batch: the batch, drawn and marked; its rows are staged here if they are not. `moved` has its transfers so far, if a device drew it.

    The host does not wait for the device: the thread that uses the result joins it (`MiniBatch.join`).
    """
    moved = batch.moved or Ledger()
    with device.launching() as launches:
        batch.join(device)
        staged = None
        if batch.staged is None:
            batch.staged = staged = features.stage(batch.key)
        batch.x = device.rows(pool, len(batch.input_ids), features.width, batching.dtype)
        if not on_device(batch.input_ids):
            features.gather(batch, batch.x, moved)
        elif batch.staged is not None:
            features.gather(RowIds(None, staged=batch.staged), batch.x, moved)
        else:
            features.gather_found(batch.input_ids, batch.x, moved, device)
        gather_edges(batching, device, batch, moved, pool)
        batch.staged = None
        if staged is not None:
            staged.release()
        count_batch(batch, moved)
        batch = send_batch(batch, device, moved)
    batch.launches = launches
    return batch, moved


def gather_edges(
    batching: Batching, device: Device, batch: MiniBatch, ledger: Ledger, pool: BufferPool | None = None
) -> None:
    """Gives the blocks of a drawn batch the rows of their edges, if the model reads some; a pool may lend memory for them."""
    if batch.edge_ids is not None and (edges := batching.edge_rows) is not None:
        wanted = RowIds(batch.edge_ids, staged=edges.stage(batch.key))
        give_rows(batch.blocks, edges.gather(wanted, len(batch.edge_ids), device, ledger, pool))


def send_batch(batch: MiniBatch, device: Device, ledger: Ledger) -> MiniBatch:
    """Returns a batch whose blocks and labels are on the device, for the step; its inputs are there already."""
    if device.holds(batch.labels):
        return batch
    blocks = send_blocks(batch.blocks, device, ledger)
    (labels,) = device.send([step_values(batch.labels)], LABELS, ledger)
    sent = replace(batch, blocks=blocks, labels=labels, slots=None, staged=None)
    device.hand_over(_tensors_of(sent))
    return sent


def _tensors_of(batch: MiniBatch) -> Iterator[Any]:
    """Yields the tensors of a batch that is on a device: inputs, labels, and the arrays of its blocks."""
    yield from (each for each in (batch.x, batch.labels) if hasattr(each, "data_ptr"))
    for block in batch.blocks:
        for value in (*vars(block).values(), *(() if block.splice is None else vars(block.splice).values())):
            if hasattr(value, "data_ptr"):
                yield value


def attach_weights(blocks: tuple[Block, ...], topology: Topology, edge_weight: str | None) -> None:
    """Puts the edge weights that a model needs on the blocks, in place; raises InputError if the data's are wanted, and a block has none.

    Args:
        edge_weight: "gcn" for GCN coefficients, "sum" for the factors of an unbiased sum, "mean with self" for the mean that includes the
            node itself, "degree" for the in-degrees of both ends (`source_degrees`); None for none. "data" keeps the data's weights,
            which the blocks carry; "data gcn" and "data sum" multiply the factors by them; "data mean" and "data mean with self" are
            means by them.
    """
    for block in blocks:
        given = require_weights(block) if edge_weight in DATA_WEIGHTS else None
        if edge_weight in ("gcn", "data gcn"):
            block.weight, block.self_weight = gcn_weights(block, topology.in_degree, topology.out_degree)
        elif edge_weight in ("sum", "data sum"):
            block.weight = sum_weights(block, topology.in_degree)
        elif edge_weight == "degree":
            block.weight, block.self_weight = source_degrees(block, topology.in_degree, topology.own_loops)
        elif edge_weight == "mean with self":
            block.weight, block.self_weight = self_mean_weights(block)
        elif edge_weight in DATA_MEANS:
            block.weight, block.self_weight = data_mean_weights(block, own=edge_weight != "data mean")
        if given is not None and block.weight is not None and edge_weight in DATA_SUMS:
            block.weight = block.weight * given


def require_weights(block: Block) -> Any:
    """Returns f32[nnz], the data's weights that a block carries; raises InputError if it carries none."""
    if block.weight is None:
        problem = "the model reads the data's edge weights, and a block has none"
        raise InputError(problem, "give the sampler a graph with weights")
    return block.weight


def batch_bytes(batch: MiniBatch, width: int, dtype: str = "float32") -> int:
    """Returns the bytes of a batch: all arrays of its blocks, slots, edge ids, and input rows of `width` columns of a NumPy dtype."""
    slots = sum(each.nbytes for each in (batch.slots, batch.edge_ids) if each is not None)
    return block_bytes(batch.blocks) + slots + len(batch.input_ids) * width * np.dtype(dtype).itemsize


def block_bytes(blocks: tuple[Block, ...]) -> int:
    """Returns the bytes of all arrays of blocks."""
    names = [field.name for field in fields(Block) if field.name != "edge_rows"]  # which the blocks of a batch share
    arrays = [getattr(block, name) for block in blocks for name in names]
    return sum(array.nbytes for array in arrays if hasattr(array, "nbytes"))  # device tensors have it, too


def count_batch(batch: MiniBatch, ledger: Ledger) -> None:
    """Counts a batch, its seeds, and its inputs and edges by layer."""
    ledger.count("batches", 0, 1)
    ledger.count("seeds", 0, len(batch.seeds))
    for layer, block in enumerate(batch.blocks):
        ledger.count("inputs", layer, block.num_src)
        ledger.count("edges", layer, len(block.indices))


def send_blocks(blocks: Sequence[Block], device: Device, ledger: Ledger) -> tuple[Block, ...]:
    """Returns blocks whose arrays are on the device, sent by one transfer; blocks that are there already are returned as they are."""
    if device.holds(blocks[0].src_ids):
        return tuple(blocks)
    return _moved(blocks, lambda arrays: device.send(arrays, BLOCKS, ledger))


def fetch_blocks(blocks: Sequence[Block], device: Accelerator, ledger: Ledger) -> tuple[Block, ...]:
    """Returns blocks of a device whose arrays are in pinned host memory, copied by one transfer: the inverse of `send_blocks`."""
    return _moved(blocks, lambda tensors: device.fetch_together(tensors, FETCHED_BLOCKS, ledger))


def _moved(blocks: Sequence[Block], move: Callable[[list[Any]], list[Any]]) -> tuple[Block, ...]:
    """Returns blocks of the arrays that a function returns for all of theirs.

    The sources of sampled blocks are a prefix of one list, which is moved once.
    """
    lists = {_address(block.src_ids): block.src_ids for block in sorted(blocks, key=lambda block: block.num_src)}
    moved = iter(move([*lists.values(), *(array for block in blocks for _, array in _held(block))]))
    ids = {address: next(moved) for address in lists}
    return tuple(
        replace(
            block,
            src_ids=ids[_address(block.src_ids)][: block.num_src],
            **{name: next(moved) for name, _ in _held(block)},
        )
        for block in blocks
    )


def _address(ids: Any) -> int:
    return ids.data_ptr() if hasattr(ids, "data_ptr") else ids.ctypes.data


def _held(block: Block) -> Iterator[tuple[str, Any]]:
    for name in ARRAYS:
        array = getattr(block, name)
        if array is not None:
            yield name, array
