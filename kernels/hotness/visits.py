"""The number of mini-batches that need each node: the counts behind a feature cache (FGNN, section 6).

A batch visits a node once, however many of its edges name it, for its row is fetched once. So `visits[v]` is the number of batches
whose input set contains v; of a batch as of times, in which a node may be several inputs, each is a visit. The fused sampler's direct
map counts them (`Sampler.take_visits`), where they cost next to nothing; the counter here takes the batches of any sampler, and counts
layers:

    layer_visits[l, v]  batches in which v is a destination of blocks[l]
    layer_inputs[l, v]  sum over batches of the number of distinct input rows under v there, v's own row included. FreshGNN's saved
                        access of a cached (l, v) is layer_inputs / layer_visits inputs at each of its visits

The sources of every block are a prefix of one list of nodes, and a node's place in it determines all blocks in which it is a destination:
additions to the L neighbouring columns of one row count all its layers.

Additions are relaxed atomics on integers: any number of threads add to one table, in any order, and the sums are the same bytes.

Cost: one random read and write of 4 bytes per input and of 4 L per destination, one native call each per batch; inputs-under walks every
edge under every destination, O(sum over destinations of the edges below). Memory: 4 N bytes for visits alone, 4 N (L + 1) with
layers, 8 N L more for inputs-under, and 4 bytes per source of scratch in each running call.

Not checked: that the sources of every block are a prefix of one list, which holds for sampled blocks and not for pruned ones.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, block_edges
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.visits_cuda import count_visits_cuda
from graphmill.kernels.types import Array, Block

Layers = Literal["none", "visits", "inputs"]


def count_reference(batches: Iterable[Sequence[Block]], num_nodes: int, num_layers: int) -> tuple[Array, Array, Array]:
    """Returns (visits u32[N], layer_visits u32[L, N], layer_inputs u64[L, N]) of batches (the rule in plain Python)."""
    visits = np.zeros(num_nodes, np.uint32)
    layer_visits = np.zeros((num_layers, num_nodes), np.uint32)
    layer_inputs = np.zeros((num_layers, num_nodes), np.uint64)
    for blocks in batches:
        visits[blocks[0].src_ids] += 1
        under: list[set[int]] = [{i} for i in range(blocks[0].num_src)]
        for layer, block in enumerate(blocks):
            rows = [block.indices[low:high].tolist() for low, high in zip(block.start, block.end, strict=True)]
            under = [set.union(under[i], *(under[s] for s in row)) for i, row in enumerate(rows)]
            for node, inputs in zip(block.dst_ids, under, strict=True):
                layer_visits[layer, node] += 1
                layer_inputs[layer, node] += np.uint64(len(inputs))
    return visits, layer_visits, layer_inputs


def count_visits(node_ids: Any, visits: Any) -> None:
    """Adds one visit to every node of a list, by native code or, if `visits` is on a device, by the CUDA kernel.

    Args:
        node_ids: ids[n], the inputs of one batch, each once; where `visits` is.
        visits: i32[N].

    Raises:
        InputError: a dtype does not fit; on the host also if an id is out of range.
    """
    if on_device(visits):
        return count_visits_cuda(node_ids, visits, device_of(visits))
    if visits.dtype != np.int32:
        raise InputError(f"visits are {visits.dtype}", "give int32")
    _native.count_prefixes(as_ids(node_ids, "node_ids"), [len(node_ids)], visits.view(np.uint32)[:, None])
    return None


class VisitCounter:
    """Counts mini-batches; several threads may add to one counter at the same time.

    Args:
        layers: counts that are kept besides `visits`: "visits" adds `layer_visits`, "inputs" adds `layer_inputs` as well.

    Attributes:
        visits: u32[N], batches whose inputs contain the node.
    """

    def __init__(self, num_nodes: int, num_layers: int, layers: Layers = "none"):
        if layers not in get_args(Layers):
            raise InputError(f"layers = {layers!r}", f"give one of {', '.join(get_args(Layers))}")
        if num_nodes < 0 or num_layers < 1:
            raise InputError(f"{num_nodes} nodes, {num_layers} layers", "give a count of nodes and at least one layer")
        self.num_layers, self.layers = num_layers, layers
        self.visits = np.zeros(num_nodes, np.uint32)
        # Column j: batches in which the node is a destination of blocks[L - 1 - j].
        self._columns = np.zeros((num_nodes, 0 if layers == "none" else num_layers), np.uint32)
        self._inputs = np.zeros((num_layers if layers == "inputs" else 0, num_nodes), np.uint64)

    def add(self, blocks: Sequence[Block]) -> None:
        """Counts one batch; blocks[0] consumes features. InputError if blocks do not stand on one another, or are of another graph."""
        self._check(blocks)
        ids = as_ids(blocks[0].src_ids, "src_ids")
        _native.count_prefixes(ids, [len(ids)], self.visits[:, None])
        self.add_layers(blocks)

    def add_layers(self, blocks: Sequence[Block]) -> None:
        """Counts the layers of one batch, and not its visits: for a sampler that counts those itself (`Sampler.take_visits`)."""
        self._check(blocks)
        if self.layers == "none":
            return
        ids = as_ids(blocks[0].src_ids, "src_ids")
        ends = [block.num_dst for block in reversed(blocks)]
        _native.count_prefixes(ids[: ends[-1]], ends, self._columns)
        if self.layers == "inputs":
            native = [(*block_edges(block), block.num_src) for block in blocks]
            _native.count_inputs_under(ids, native, self._inputs)

    @property
    def layer_visits(self) -> Array:
        """u32[L, N]: batches in which the node is a destination of blocks[l]; a view, whose rows have the stride L."""
        return self._columns.T[::-1]

    @property
    def layer_inputs(self) -> Array:
        """u64[L, N]: distinct inputs under the node as a destination of blocks[l], summed over batches."""
        return self._inputs

    def _check(self, blocks: Sequence[Block]) -> None:
        sound = all(block.dst_pos is None and block.num_dst <= block.num_src for block in blocks)
        sound &= all(low.num_dst == high.num_src for low, high in pairwise(blocks))
        if len(blocks) != self.num_layers or not sound or blocks[0].num_src != len(blocks[0].src_ids):
            problem = f"{len(blocks)} blocks of {[(block.num_dst, block.num_src) for block in blocks]} destinations and sources"
            raise InputError(problem, f"give the {self.num_layers} blocks of a batch as a sampler returns them")
