"""Pruning of mini-batches on a GPU; see kernels/history/csr2.py for the rule and kernels/cuda/history/csr2.cu for the kernels.

All blocks are marked from the seeds downwards without waiting for a size; then the sizes of all blocks come to the host in one download of
16 bytes per block, the arrays are allocated, and each block is filled. Not checked, since that would wait for the device: that indices and
row ends are in range.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, launch
from graphmill.kernels.types import Block, Splice

SIZE_BYTES = 16
"""Bytes downloaded per block."""
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
    """The launches of one call."""

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

    def fill(self, block: Block, marked: _Marked, sizes: Any, slots: Any, below: _Marked | None, num_hits: int) -> Any:
        """Returns (the compacted block, the places of its sources before, or None)."""
        num_kept, num_used, num_edges, num_moved = (int(size) for size in sizes)
        ids = self.device.empty((num_used,), self.id_name)
        origin = self.ints(num_used) if below is None else None
        splice = None
        if num_hits:
            computed, *hits = self.ints(num_used - num_hits), self.ints(num_hits), self.ints(num_hits)
            splice = Splice(computed=computed, hist_pos=hits[0], hist_slot=hits[1])
        made = self._rows(block, marked, num_kept, num_edges, bool(num_moved))
        found = (None, None, None) if splice is None else (splice.computed, splice.hist_pos, splice.hist_slot)
        self.launch(
            "fill_sources", block.num_src, self.at(block.src_ids, block.num_src, self.id_name), self.at(marked.used),
            self.at(marked.places), self.at(slots), self.at(None if below is None else below.rows),
            np.int32(block.num_src), self.at(ids, num_used, self.id_name), self.at(origin), *map(self.at, found),
        )  # fmt: skip
        return Block(num_dst=num_kept, num_src=num_used, src_ids=ids, splice=splice, **made), origin

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


def prune_cuda(blocks: Sequence[Block], slots: Sequence[Any], device: CudaDevice) -> tuple[tuple[Block, ...], Any]:
    """Returns (blocks that are left, without transposes, and the places of the inputs that are left).

    Args:
        blocks: all arrays on the device; see `graphmill.kernels.history.csr2.prune`.
        slots: one i32[num_src] on the device for each of blocks[1:].
    """
    pruning = _Pruning(device, dtype_name(blocks[0].src_ids.dtype))
    num_blocks, of_block = len(blocks), [None, *slots]
    counted = device.zeros((num_blocks, 4), np.int32)
    marked: list[_Marked | None] = [None] * num_blocks
    used = found = None
    for layer in reversed(range(num_blocks)):
        state = marked[layer] = pruning.mark(blocks[layer], used, found, counted[layer])
        used, found = state.used, of_block[layer]
    sizes = np.asarray(device.download(counted))
    made, origin = [], None
    for layer, block in enumerate(blocks):
        state, below = marked[layer], marked[layer - 1] if layer else None
        num_hits = int(sizes[layer][1] - sizes[layer - 1][0]) if layer else 0
        found = of_block[layer] if num_hits else None
        left, places = pruning.fill(block, state, sizes[layer], found, below, num_hits)  # type: ignore[arg-type]
        made.append(left)
        origin = places if layer == 0 else origin
    return tuple(made), origin


def remove_in_edges_cuda(block: Block, rows: Any, device: CudaDevice) -> None:
    """Removes all edges into destinations, in place; see `graphmill.kernels.history.csr2.remove_in_edges`."""
    pruning = _Pruning(device, "int32")
    ends = pruning.at(block.start, block.num_dst), pruning.at(block.end, block.num_dst)
    pruning.launch("remove_in_edges", len(rows), *ends, pruning.at(rows), np.int32(len(rows)))
