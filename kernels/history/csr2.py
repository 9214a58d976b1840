"""Pruning of mini-batches whose nodes are found in the history of embeddings (FreshGNN, section 5, Fig. 8; Algorithm 1, lines 7 to 11).

A node whose embedding of layer l is cached is not computed: its in-edges leave the block that would compute it, and so does everything that
only they reached. In CSR2 form, two arrays of row ends instead of one, the in-edges of a node are removed by `end[i] = start[i]`: O(1) per
node and without order, while compressed rows (CSR) shift all later edges and row ends, and edge lists (COO) are searched and closed up.

`prune` does the rest in the same call. From the seeds downwards it marks the sources that a remaining row reads, its own included; a
marked source that the history holds is cut off below and gets its row by a `Splice`, the others are the destinations that remain in the
block below. Then every block is compacted: destinations, sources, edges and all that belongs to them keep their order and close up. The
sources of pruned blocks are no longer prefixes of one list, so `dst_pos` holds the place of a destination's own row.

Weights of edges are computed before pruning and move with their edges, and so do the shares that weighted sampling and walks give them: a
node keeps all of its k sampled edges or none, so its coefficients and its mean stay what they were. Transposes are built here, after the
edges are gone. If nothing is cached, the blocks come back with equal bytes.

Cost: O(sources + edges that remain) per block, 8 bytes of scratch per source; nothing is sorted. Other names: computation-graph pruning,
dead-node elimination. Not checked: that slots are the history's for the block's sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_int32, as_out, block_edges, check_threads
from graphmill.kernels.blocks.transpose import transpose as transposed
from graphmill.kernels.blocks.transpose_cuda import transpose_cuda
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.history.csr2_cuda import Inputs, prune_cuda, remove_in_edges_cuda
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import NO_TRAFFIC, Array, Block, Splice, Traffic

BY_EDGE = ("weight", "edge_type", "edge_id", "share")


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """A pruned mini-batch."""

    # Compacted blocks, with a `splice` if rows come from the history; blocks[0] consumes features.
    blocks: tuple[Block, ...]
    # i32[n], ascending: the place of every input that is left among the inputs before.
    origin: Any
    # Sizes, and inputs, that a device sent back.
    traffic: Traffic = NO_TRAFFIC
    # The inputs that are left on the host, if a device was asked to send them back.
    inputs: Inputs | None = None


def remove_in_edges_reference(block: Block, rows: Array) -> None:
    """Removes all edges into destinations, in place (the rule in NumPy)."""
    block.end[rows] = block.start[rows]


def prune_reference(blocks: Sequence[Block], slots: Sequence[Array]) -> Pruned:
    """Returns the same as `prune`, without transposes (the rule in NumPy)."""
    made: list[Block] = []
    origin = np.empty(0, np.int32)
    needed = np.ones(blocks[-1].num_dst, bool)
    for layer in reversed(range(len(blocks))):
        block = blocks[layer]
        kept = np.flatnonzero(needed)
        own = kept if block.dst_pos is None else block.dst_pos[kept]
        edges = np.concatenate([np.empty(0, np.int64), *(np.arange(block.start[i], block.end[i]) for i in kept)])
        used = np.zeros(block.num_src, bool)
        used[own] = True
        used[block.indices[edges]] = True
        origin = np.flatnonzero(used).astype(np.int32)
        cached = np.full(len(origin), -1, np.int32) if layer == 0 else slots[layer - 1][origin]
        made.append(_compact(block, kept, own, edges, origin, cached))
        if layer:
            needed = used & (slots[layer - 1] < 0)
    return Pruned(blocks=tuple(made[::-1]), origin=origin)


def _compact(block: Block, kept: Array, own: Array, edges: Array, sources: Array, cached: Array) -> Block:
    """Returns the block of the rows that are left.

    Args:
        kept: destinations that are left; own: their places among the sources.
        edges: edges that are left; sources: sources that are left.
        cached: i32[sources], slots of those that the history holds, else -1.
    """
    place = np.full(block.num_src, -1, np.int32)
    place[sources] = np.arange(len(sources))
    end = np.cumsum((block.end - block.start)[kept], dtype=np.int32)
    dst_pos = place[own]
    hits = np.flatnonzero(cached >= 0).astype(np.int32)
    splice = Splice(
        computed=np.flatnonzero(cached < 0).astype(np.int32), hist_pos=hits, hist_slot=cached[hits].astype(np.int32)
    )
    by_edge = {name: None if getattr(block, name) is None else getattr(block, name)[edges] for name in BY_EDGE}
    return Block(
        num_dst=len(kept),
        num_src=len(sources),
        start=np.concatenate([np.zeros(1, np.int32), end])[:-1],
        end=end,
        indices=place[block.indices[edges]],
        src_ids=block.src_ids[sources],
        dst_pos=None if np.array_equal(dst_pos, np.arange(len(kept))) else dst_pos,
        self_weight=None if block.self_weight is None else block.self_weight[kept],
        splice=splice if len(hits) else None,
        **by_edge,
    )


def remove_in_edges(block: Block, rows: Array) -> None:
    """Removes all edges into destinations, in place: end[i] = start[i].

    Args:
        block: block whose `end` is written, by native code or, if it is on a device, by the CUDA kernel.
        rows: i32[k], destinations (which a device does not check).

    Raises:
        InputError: a row is not a destination, or the block's arrays cannot be written in place.
    """
    if on_device(block.end):
        remove_in_edges_cuda(block, rows, device_of(block.end))
        return
    end = as_out(block.end, (block.num_dst,), np.int32)
    _native.remove_in_edges(as_int32(block.start, "start", block.num_dst), end, as_int32(rows, "rows", len(rows)))


def prune(
    blocks: Sequence[Block], slots: Sequence[Any], transpose: Transposes = "none", threads: int = 1, beside: Any = None
) -> Pruned:
    """Removes from a mini-batch the rows and edges that the history's embeddings make unnecessary.

    Native code prunes blocks in host memory, CUDA kernels those on a device.

    Args:
        blocks: blocks[0] consumes features; the sources of a block are the destinations of the one below. They are not changed, so they may
            be stored and mapped; transposes are ignored.
        slots: one i32[num_src] for each of blocks[1:]: the history's slot of each source (`History.lookup`), negative if it has none.
        transpose: blocks that get a transpose: "none", "hidden" (all but blocks[0]) or "all".
        beside: of blocks on a device, i64[k] there that comes to the host with the sizes, and so do the inputs; None for the sizes alone.

    Returns:
        The blocks that are left, and the places of the inputs that are left. Seeds are never removed: nothing is cached above them.

    Raises:
        InputError: the blocks do not stand on each other, were pruned before, or an array has another shape.
    """
    _check(blocks, slots)
    if transpose not in get_args(Transposes):
        raise InputError(f"transpose = {transpose!r}", f"give one of {', '.join(get_args(Transposes))}")
    first = {"none": len(blocks), "hidden": 1, "all": 0}[transpose]
    if on_device(blocks[0].src_ids):
        device = device_of(blocks[0].src_ids)
        cut = prune_cuda(blocks, slots, device, beside)
        turned = (transpose_cuda(block, device) if layer >= first else block for layer, block in enumerate(cut.blocks))
        traffic = Traffic(fetched=cut.fetched, fetches=1)
        return Pruned(blocks=tuple(turned), origin=cut.origin, traffic=traffic, inputs=cut.inputs)
    given = [as_int32(found, "slots", block.num_src) for found, block in zip(slots, blocks[1:], strict=True)]
    made, origin = _native.prune([_arrays(block) for block in blocks], given, check_threads(threads))
    left = tuple(_block(arrays) for arrays in made)
    turned = (transposed(block) if layer >= first else block for layer, block in enumerate(left))
    return Pruned(blocks=tuple(turned), origin=origin)


def _arrays(block: Block) -> tuple[Any, ...]:
    """Returns a block as native code takes it."""
    dst_pos = None if block.dst_pos is None else as_int32(block.dst_pos, "dst_pos", block.num_dst)
    by_edge = tuple(getattr(block, name) for name in BY_EDGE)
    return block.num_dst, block.num_src, *block_edges(block), dst_pos, block.src_ids, block.self_weight, by_edge


def _block(arrays: tuple[Any, ...]) -> Block:
    start, end, indices, src_ids, dst_pos, self_weight, *by_edge, computed, hist_pos, hist_slot = arrays
    splice = None if computed is None else Splice(computed=computed, hist_pos=hist_pos, hist_slot=hist_slot)
    return Block(
        num_dst=len(start), num_src=len(src_ids), start=start, end=end, indices=indices, src_ids=src_ids, dst_pos=dst_pos,
        self_weight=self_weight, splice=splice, **dict(zip(BY_EDGE, by_edge, strict=True)),
    )  # fmt: skip


def _check(blocks: Sequence[Block], slots: Sequence[Any]) -> None:
    if not blocks or len(slots) != len(blocks) - 1:
        raise InputError(f"{len(slots)} lists of slots for {len(blocks)} blocks", "give one per block but the first")
    for layer, (below, block, found) in enumerate(zip(blocks, blocks[1:], slots, strict=False), start=1):
        if below.num_dst != block.num_src:
            problem = f"block {layer} has {block.num_src} sources, block {layer - 1} has {below.num_dst} destinations"
            raise InputError(problem, "give the blocks of one mini-batch, the one that consumes features first")
        if block.splice is not None:
            raise InputError(f"block {layer} was pruned before", "prune a sampled batch once")
        if found.shape != (block.num_src,):
            problem = f"slots of layer {layer} are {found.dtype}{list(found.shape)}"
            raise InputError(problem, f"give int32[{block.num_src}]")
