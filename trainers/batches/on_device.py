"""Mini-batches that are drawn on the device (FGNN, section 3: the time-sharing design).

The topology lies on the device, or in pinned host memory that the device reads over the bus. One thread draws the batches on a stream of
its own, beside the training step: the blocks, their transposes and weights are made on the device and never leave it. If the device reads
every row, in its own or in pinned memory, it gathers the rows as well; else the ids of the inputs go to the host, which gathers them.
Batches have the same bytes as those that the CPU samples.

Memory on the device: 8 bytes per node for the sampler's map, the topology if it is copied, and the batches that wait, within `queue`.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from graphmill.kernels.blocks.coefficients_cuda import gcn_weights_cuda, sum_weights_cuda
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.layers.aggregate_cuda import aggregate_cuda
from graphmill.kernels.sampling.alias import AliasTables
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.sampling.sample_cuda import CudaSampler
from graphmill.kernels.types import Array, Block, Topology
from graphmill.trainers.batches.batch import DATA_MEANS, DATA_SUMS, DATA_WEIGHTS, Batching, Drawer, require_weights
from graphmill.trainers.devices.launches import Launches
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Ledger, Line

TOPOLOGY = Line("h2d", "topology")


def place_topology(topology: Topology, where: str, device: Device, hosted: dict[str, Array] | None = None) -> Topology:
    """Returns the topology in the memory that a device samples from; call it in `device.preparing()`, for other streams will read it.

    Args:
        topology: mapped or in memory.
        where: "device" copies it, "uva" puts it into pinned host memory.
        device: the device that samples; degrees and weights go there either way.
        hosted: arrays in pinned memory that other devices of the process read already, which receives those of this call.
    """
    places = {"indptr": where, "indices": where}
    names = ("indptr", "indices", "weights", "edge_types", "in_degree", "out_degree")
    arrays = {name: array for name in names if (array := getattr(topology, name)) is not None}
    placed = {name: _placed(array, places.get(name, "device"), device, name, hosted) for name, array in arrays.items()}
    return replace(topology, edge_ids=None, **placed)


def place_tables(
    tables: AliasTables, where: str, device: Device, hosted: dict[str, Array] | None = None
) -> AliasTables:
    """Returns alias tables in the memory that a device draws from; call it in `device.preparing()`, for other streams will read them.

    Args:
        tables: mapped or in memory.
        where: "device" copies the table, "uva" puts it into pinned host memory.
        device: the device that samples; the counts of neighbours with weight go there either way.
        hosted: as in `place_topology`.
    """
    support = None if tables.support is None else _placed(tables.support, "device", device, "support")
    table = np.asarray(tables.table).view(np.int32)  # kernels read words, and some devices lack unsigned numbers
    return AliasTables(table=_placed(table, where, device, "alias table", hosted), support=support)


def _placed(array: Array, where: str, device: Device, name: str, hosted: dict[str, Array] | None = None) -> Any:
    """Returns an array in the device's memory, or for "uva" the one copy in host memory that all devices read in place."""
    if where == "uva":
        hosted = {} if hosted is None else hosted
        if name not in hosted:
            hosted[name] = device.host_array(array.shape, array.dtype)
            hosted[name][...] = array
        return hosted[name]
    (sent,) = device.send([np.asarray(array)], TOPOLOGY, device.traffic)
    return sent


class DeviceDrawer(Drawer):
    """Draws the blocks of batches on a device, which with `uva` reads the topology over the bus."""

    def __init__(self, batching: Batching, sampler: CudaSampler, kernels: CudaDevice, uva: bool):
        self.batching, self.sampler, self.kernels, self.uva = batching, sampler, kernels, uva
        self._last = Launches()

    def __call__(self, item: PlannedBatch, transpose: Transposes) -> tuple[tuple[Block, ...], Ledger, Launches]:
        """Returns the blocks of a batch, the ledger of the transfers, and the launches; see `Drawer`. It waits for the sizes alone."""
        moved = Ledger()
        with self.batching.device.launching() as launches:
            self._last.join()  # it may still copy the arrays that the sampler uses again
            blocks = self.sampler.sample(item.key, item.seeds, transpose=transpose)
            blocks = tuple(self._weighted(block) for block in blocks)
        self._last = launches
        moved.carried(self.sampler.traffic(item.seeds), "ids")
        if self.uva:
            moved.crossed(TOPOLOGY, self.sampler.topology_bytes(blocks), requests=len(blocks))
        return blocks, moved, launches

    def _weighted(self, block: Block) -> Block:
        """Returns the block with the edge weights that the model needs."""
        graph, wanted, weight, own = self.sampler.topology, self.batching.edge_weight, block.weight, None
        given = cast(Any, require_weights(block) if wanted in DATA_WEIGHTS else None)
        if wanted in ("gcn", "data gcn"):
            weight, own = gcn_weights_cuda(block, graph.in_degree, graph.out_degree, self.kernels)
        elif wanted in ("sum", "data sum"):
            weight = sum_weights_cuda(block, graph.in_degree, self.kernels)
        elif wanted == "mean with self":
            weight, own = _self_mean(block)
        elif wanted in DATA_MEANS:
            weight, own = _data_mean(block, wanted != "data mean", self.kernels)
        return replace(block, weight=weight * given if wanted in DATA_SUMS else weight, self_weight=own)


def _self_mean(block: Block) -> tuple[Any, Any]:
    """Returns (weight f32[nnz], self_weight f32[num_dst]) of tensors; see `graphmill.kernels.blocks.coefficients.self_mean_weights`."""
    start, end = (cast(torch.Tensor, each) for each in (block.start, block.end))
    taken = end - start
    own = 1 / (taken + 1).float()
    shares = own if block.share is None else taken * own
    weight = torch.repeat_interleave(shares, taken.long(), output_size=len(block.indices))
    return weight if block.share is None else weight * cast(torch.Tensor, block.share), own


def _data_mean(block: Block, own: bool, kernels: CudaDevice) -> tuple[Any, Any]:
    """Returns (weight f32[nnz], self_weight f32[num_dst] or None) of tensors.

    See `graphmill.kernels.blocks.coefficients.data_mean_weights`.
    """
    start, end, weight = (cast(torch.Tensor, each) for each in (block.start, block.end, block.weight))
    taken, given = end - start, weight.double()
    given = given if block.share is None else given * cast(torch.Tensor, block.share).double()
    # The kernel adds a row's values in edge order, as the CPU does; values stand where an edge's source is its own place.
    places = torch.arange(len(weight), device=weight.device, dtype=torch.int32)
    edges = Block(
        num_dst=block.num_dst, num_src=len(weight), start=block.start, end=block.end, indices=cast(Any, places),
        src_ids=cast(Any, places), dst_pos=cast(Any, torch.zeros_like(start)),
    )  # fmt: skip
    total = torch.zeros((block.num_dst, 1), dtype=torch.float64, device=weight.device)
    aggregate_cuda(edges, given.view(-1, 1), "sum", total, kernels)
    one = torch.ones_like(total[:, 0]) if block.share is None else 1 / taken.clamp(min=1).double()
    sums = total[:, 0] + one if own else total[:, 0]
    inverse = torch.where(sums != 0, 1 / sums, torch.zeros_like(sums))
    spread = torch.repeat_interleave(inverse, taken.long(), output_size=len(weight))
    return (spread * given).float(), (inverse * one).float() if own else None
