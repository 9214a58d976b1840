"""Pruning of mini-batches on a GPU; see kernels/history/csr2.py for the rule and kernels/cuda/history/csr2.cu for the kernels.

All blocks are marked from the seeds downwards without waiting for a size; then the sizes of all blocks come to the host in one download of
16 bytes per block, the arrays are allocated, and each block is filled. If the host is to find the rows of the inputs that are left, their
ids and places come with the sizes, so that it need not wait again: they are written before their number is known, to arrays with space for
all inputs. Not checked, since that would wait for the device: that indices and row ends are in range.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, launch
from graphmill.kernels.types import Array, Block, Splice

SIZES, ALIGNED_WORDS = 4, 4
"""Numbers downloaded per block; words from one piece of a download to the next are a multiple of this number."""


class Inputs(NamedTuple):
    """What came to the host with the sizes.

    Attributes:
        ids: ids[n], the inputs that are left; origin: i32[n], ascending, their places among the inputs before.
        beside: i64[k], as it was given.
    """

    ids: Array
    origin: Array
    beside: Array


class Cut(NamedTuple):
    """A pruned mini-batch on a device.

    Attributes:
        blocks: blocks that are left, without transposes.
        origin: i32[n] on the device, the places of the inputs that are left.
        inputs: the same inputs on the host, or None.
        fetched: bytes that came to the host.
    """

    blocks: tuple[Block, ...]
    origin: Any
    inputs: Inputs | None
    fetched: int


EDGE_DTYPES = {"weight": "float32", "edge_type": "uint8", "edge_id": "int64", "share": "float32"}


@dataclass(frozen=True)
class _Marked:
    """State of a block after the first walk: flags and their running sums."""

    needed: Any
    rows: Any
    edges: Any
    used: Any
    places: Any


class _Pruning:
    def __init__(self, device: CudaDevice, id_name: str):
        self.device, self.id_name = device, id_name

    def launch(self, name: str, num_threads: int, *arguments: Any) -> None:
        launch(self.device, "history/csr2", name, num_threads, arguments, {"ID": ID_TYPES[self.id_name]})

    def at(self, array: Any, length: int | None = None, dtype: str = "int32") -> np.uint64:
        return address(array, "an array of a block", self.device, length, dtype)

    def ints(self, count: int) -> Any:
        return self.device.empty((count,), np.int32)

    def sums(self, flags: Any) -> Any:
        return self.device.running_sums(flags) if len(flags) else flags

    def mark(self, block: Block, used: Any, slots: Any, sizes: Any) -> _Marked:
        """Marks the rows, edges and sources of a block that are left.

        Args:
            used: flags of the sources of the block above, None for the seeds' block; slots: history's slots of the same.
            sizes: i32[4] of zeros, receives the sizes.
        """
        num_dst, num_src = block.num_dst, block.num_src
        needed, degrees, marks = self.ints(num_dst), self.ints(num_dst), self.device.zeros((num_src,), np.int32)
        ends = self.at(block.start, num_dst), self.at(block.end, num_dst)
        own, count = self.at(block.dst_pos, num_dst), np.int32(num_dst)
        self.launch(
            "need_rows", num_dst, self.at(used), self.at(slots), *ends, count, self.at(needed), self.at(degrees)
        )
        edges = *ends, self.at(block.indices), own
        self.launch("mark_sources", 32 * num_dst, *edges, self.at(needed), count, self.at(marks))
        rows, kept, places = self.sums(needed), self.sums(degrees), self.sums(marks)
        counted = self.at(needed), own, self.at(rows), self.at(kept), count, self.at(places), np.int32(num_src)
        self.launch("measure", num_dst, *counted, self.at(sizes))
        return _Marked(needed, rows, kept, marks, places)

    def fill(self, block: Block, marked: _Marked, sizes: Any, slots: Any, below: _Marked, num_hits: int) -> Block:
        """Returns the compacted block of a layer above the lowest."""
        num_kept, num_used, num_edges, num_moved = (int(size) for size in sizes)
        ids, splice = self.device.empty((num_used,), self.id_name), None
        if num_hits:
            computed, *hits = self.ints(num_used - num_hits), self.ints(num_hits), self.ints(num_hits)
            splice = Splice(computed=computed, hist_pos=hits[0], hist_slot=hits[1])
        made = self._rows(block, marked, num_kept, num_edges, bool(num_moved))
        found = (None, None, None) if splice is None else (splice.computed, splice.hist_pos, splice.hist_slot)
        self.sources(block, marked, ids, None, slots, below.rows, *found)
        return Block(num_dst=num_kept, num_src=num_used, src_ids=ids, splice=splice, **made)

    def sources(
        self, block: Block, marked: _Marked, ids: Any, origin: Any, slots: Any = None, below: Any = None, computed: Any = None,
        hist_pos: Any = None, hist_slot: Any = None,
    ) -> None:  # fmt: skip
        """Writes the sources that are left to ids, which may have space for more; those of the lowest block with their places."""
        self.launch(
            "fill_sources", block.num_src, self.at(block.src_ids, block.num_src, self.id_name), self.at(marked.used),
            self.at(marked.places), self.at(slots), self.at(below), np.int32(block.num_src), self.at(ids, None, self.id_name),
            *map(self.at, (origin, computed, hist_pos, hist_slot)),
        )  # fmt: skip

    def lowest(self, block: Block, marked: _Marked, sizes: Any, ids: Any) -> Block:
        """Returns the compacted block that consumes features, whose sources are written already."""
        num_kept, num_used, num_edges, num_moved = (int(size) for size in sizes)
        made = self._rows(block, marked, num_kept, num_edges, bool(num_moved))
        return Block(num_dst=num_kept, num_src=num_used, src_ids=ids, splice=None, **made)

    def _rows(self, block: Block, marked: _Marked, num_kept: int, num_edges: int, moved: bool) -> dict[str, Any]:
        made = {"start": self.ints(num_kept), "end": self.ints(num_kept), "indices": self.ints(num_edges)}
        made["dst_pos"] = self.ints(num_kept) if moved else None
        dtypes = {"self_weight": "float32"} | EDGE_DTYPES
        for name, dtype in dtypes.items():
            length = num_kept if name == "self_weight" else num_edges
            made[name] = None if getattr(block, name) is None else self.device.empty((length,), dtype)
        given = [self.at(getattr(block, name)) for name in ("start", "end", "indices", "dst_pos")]
        given += [self.at(getattr(block, name), None, dtype) for name, dtype in dtypes.items()]
        flags = [self.at(array) for array in (marked.needed, marked.rows, marked.edges, marked.places)]
        target = [self.at(made[name]) for name in ("start", "end", "indices", "dst_pos")]
        target += [self.at(made[name], None, dtype) for name, dtype in dtypes.items()]
        self.launch("fill_rows", 32 * block.num_dst, *given, *flags, np.int32(block.num_dst), *target)
        return made


def prune_cuda(blocks: Sequence[Block], slots: Sequence[Any], device: CudaDevice, beside: Any = None) -> Cut:
    """Returns the rest of a mini-batch.

    Args:
        blocks: all arrays on the device; see `graphmill.kernels.history.csr2.prune`.
        slots: one i32[num_src] on the device for each of blocks[1:].
        beside: i64[k] on the device, which comes to the host with the sizes, and so do the inputs then; None for the sizes alone.
    """
    pruning = _Pruning(device, dtype_name(blocks[0].src_ids.dtype))
    num_blocks, of_block, lowest = len(blocks), [None, *slots], blocks[0]
    ids_words = lowest.num_src * np.dtype(pruning.id_name).itemsize // 4
    words = [SIZES * num_blocks] + ([] if beside is None else [ids_words, lowest.num_src, 2 * len(beside)])
    starts = np.concatenate([[0], np.cumsum([-(-each // ALIGNED_WORDS) * ALIGNED_WORDS for each in words])]).tolist()
    sent = device.zeros((starts[-1],), np.int32)
    pieces = [sent[start : start + count] for start, count in zip(starts, words, strict=False)]
    marked: list[_Marked] = []
    used = found = None
    for layer in reversed(range(num_blocks)):
        state = pruning.mark(blocks[layer], used, found, pieces[0][SIZES * layer : SIZES * (layer + 1)])
        marked.insert(0, state)
        used, found = state.used, of_block[layer]
    if beside is None:
        here = np.asarray(device.download(sent))
        count = int(here[1])
        ids, origin = device.empty((count,), pruning.id_name), pruning.ints(count)
        pruning.sources(lowest, marked[0], ids, origin)
    else:
        ids, origin = pieces[1].view(lowest.src_ids.dtype), pieces[2]
        pruning.sources(lowest, marked[0], ids, origin)
        pieces[3].view(beside.dtype)[...] = beside
        here = np.asarray(device.download(sent))
        count = int(here[1])
        ids, origin = ids[:count], origin[:count]
    sizes = here[: SIZES * num_blocks].reshape(num_blocks, SIZES)
    made = [pruning.lowest(lowest, marked[0], sizes[0], ids)]
    for layer in range(1, num_blocks):
        num_hits = int(sizes[layer][1] - sizes[layer - 1][0])
        held = of_block[layer] if num_hits else None
        made.append(pruning.fill(blocks[layer], marked[layer], sizes[layer], held, marked[layer - 1], num_hits))
    inputs = None if beside is None else _inputs(here, starts, words, pruning.id_name, count)
    return Cut(tuple(made), origin, inputs, here.nbytes)


def _inputs(here: Array, starts: Sequence[int], words: Sequence[int], id_name: str, count: int) -> Inputs:
    ids, origin, beside = (here[start : start + number] for start, number in zip(starts[1:], words[1:], strict=False))
    return Inputs(ids.view(id_name)[:count].copy(), origin[:count].copy(), beside.view(np.int64).copy())


def remove_in_edges_cuda(block: Block, rows: Any, device: CudaDevice) -> None:
    """Removes all edges into destinations, in place; see `graphmill.kernels.history.csr2.remove_in_edges`."""
    pruning = _Pruning(device, "int32")
    ends = pruning.at(block.start, block.num_dst), pruning.at(block.end, block.num_dst)
    pruning.launch("remove_in_edges", len(rows), *ends, pruning.at(rows), np.int32(len(rows)))
