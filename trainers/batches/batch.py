"""A mini-batch, and the functions that every source of mini-batches uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphmill.kernels.blocks.coefficients import data_mean_weights, gcn_weights, self_mean_weights, sum_weights
from graphmill.kernels.blocks.pyg_blocks import PygBlock, to_pyg
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.types import Array, BatchKey, Block, Topology
from graphmill.trainers.record.ledger import Ledger

DATA_SUMS, DATA_MEANS = ("data gcn", "data sum"), ("data mean", "data mean with self")
DATA_WEIGHTS = ("data", *DATA_SUMS, *DATA_MEANS)
"""Kinds of edge weights that are made of the data's, see `attach_weights`."""


@dataclass(kw_only=True)
class MiniBatch:
    """The seeds of one step, the blocks under them, and the step's position in the run.

    Attributes:
        key: the key of the batch's sampling decisions.
        seeds: ids[b] global; labels: i32[b].
        blocks: blocks[0] consumes features; the output of the last block is the seeds'. fanouts[0] belongs to the last block.
        train_epoch, position: the training epoch and the batch's place in it, which never repeat; dropout and resume use them.
        group: (position, size) in the batch's optimiser step; group_seeds: seeds of that whole step.
        slots: i32[n], the place of each input row; None for plain node ids.
        x: float[n, F] gathered input rows (a torch tensor), or None before the gather.
        origin: i32[n], after pruning: the place of each surviving input before it; None if nothing was pruned.
        staged: rows that were loaded for this batch (trainers/rows/source.py), or None.
        moved: transfers for it so far, if the device drew it; else None.
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
    x: Any = None
    origin: Array | None = None
    staged: Any = None
    moved: Ledger | None = None

    @property
    def input_ids(self) -> Array:
        """ids[n]: global ids of the rows that blocks[0] consumes; unique, in deterministic order."""
        return self.blocks[0].src_ids

    def to_dgl(self) -> list[Any]:
        """Returns the blocks as DGL blocks, with `srcdata["x"]` on the first and `dstdata["y"]` (int64) on the last.

        Raises:
            InputError: DGL is not installed.
        """
        from graphmill.kernels.blocks.dgl_blocks import to_dgl

        made = [to_dgl(block) for block in self.blocks]
        if self.x is not None:
            made[0].srcdata["x"] = self.x
        import torch

        made[-1].dstdata["y"] = torch.from_numpy(self.labels.astype(np.int64))
        return made

    def to_pyg(self) -> list[PygBlock]:
        """Returns the blocks as bipartite edges of PyG, with `x` on the first and `y` (int64) on the last; PyG is not imported."""
        import torch

        made = [to_pyg(block) for block in self.blocks]
        made[0].x, made[-1].y = self.x, torch.from_numpy(self.labels.astype(np.int64))
        return made


def planned_batch(item: PlannedBatch, epoch: int, labels: Array, blocks: tuple[Block, ...], **more: Any) -> MiniBatch:
    """Returns the mini-batch of a planned batch.

    Args:
        item: the planned batch.
        epoch: the training epoch.
        labels: i32[N].
        blocks: the blocks under its seeds.
        more: other fields of the batch, if they are known (slots, rows).
    """
    return MiniBatch(
        key=item.key,
        seeds=item.seeds,
        labels=labels[item.seeds],
        blocks=blocks,
        train_epoch=epoch,
        position=item.position,
        group=item.group,
        group_seeds=item.group_seeds,
        **more,
    )


def attach_weights(blocks: tuple[Block, ...], topology: Topology, edge_weight: str | None) -> None:
    """Puts the edge weights that a model needs on the blocks, in place.

    Args:
        blocks: the blocks.
        topology: the whole graph.
        edge_weight: "gcn" for GCN coefficients, "sum" for the factors of an unbiased sum, "mean with self" for the mean that includes the
            node itself; None for none. "data" keeps the data's weights, which the blocks carry; "data gcn" and "data sum" multiply the
            factors by them; "data mean" and "data mean with self" are means by them.

    Raises:
        InputError: the data's weights are wanted, and a block has none.
    """
    for block in blocks:
        given = require_weights(block) if edge_weight in DATA_WEIGHTS else None
        if edge_weight in ("gcn", "data gcn"):
            block.weight, block.self_weight = gcn_weights(block, topology.in_degree, topology.out_degree)
        elif edge_weight in ("sum", "data sum"):
            block.weight = sum_weights(block, topology.in_degree)
        elif edge_weight == "mean with self":
            block.weight, block.self_weight = self_mean_weights(block)
        elif edge_weight in DATA_MEANS:
            block.weight, block.self_weight = data_mean_weights(block, own=edge_weight != "data mean")
        if given is not None and block.weight is not None and edge_weight in DATA_SUMS:
            block.weight = block.weight * given


def require_weights(block: Block) -> Any:
    """Returns f32[nnz], the data's weights that a block carries.

    Raises:
        InputError: it carries none.
    """
    if block.weight is None:
        raise InputError(
            "the model reads the data's edge weights, and a block has none", "give the sampler a graph with weights"
        )
    return block.weight


def batch_bytes(batch: MiniBatch, width: int, dtype: str = "float32") -> int:
    """Returns the bytes of a batch: all arrays of its blocks, its slots, and input rows of `width` columns of a NumPy dtype."""
    slots = 0 if batch.slots is None else batch.slots.nbytes
    return block_bytes(batch.blocks) + slots + len(batch.input_ids) * width * np.dtype(dtype).itemsize


def block_bytes(blocks: tuple[Block, ...]) -> int:
    """Returns the bytes of all arrays of blocks."""
    arrays = [getattr(block, field.name) for block in blocks for field in fields(block)]
    return sum(array.nbytes for array in arrays if hasattr(array, "nbytes"))  # device tensors have it, too


def count_batch(batch: MiniBatch, ledger: Ledger) -> None:
    """Counts a batch, its seeds, and its inputs and edges by layer."""
    ledger.count("batches", 0, 1)
    ledger.count("seeds", 0, len(batch.seeds))
    for layer, block in enumerate(batch.blocks):
        ledger.count("inputs", layer, block.num_src)
        ledger.count("edges", layer, len(block.indices))


def tensors_of(batch: MiniBatch) -> Iterator[Any]:
    """Yields the tensors of a batch that is on a device: inputs, labels, and the arrays of its blocks."""
    yield from (batch.x, batch.labels)
    for block in batch.blocks:
        for value in (*vars(block).values(), *(() if block.splice is None else vars(block.splice).values())):
            if hasattr(value, "data_ptr"):
                yield value
