"""Sampling, gathering, summing and whole epochs on a GPU, against the memory's bandwidth and against a composition of torch's operations.

First each kernel's result is compared with the CPU's, to the byte, and gathers with the rows themselves. Then rates stand beside a copy on
the device, measured in the same run:

    sampling      edges per second; bytes that the choice has to touch: a row's two ends, an id and an entry of the map per edge
    gather        bytes of rows read and written, device rows by random slot
    aggregation   bytes of rows read per edge, and written per destination
    peer          the gather's bytes, device rows of another process (benchmarks/gpu_peers.py)

An epoch is 3-layer GraphSAGE over an R-MAT graph whose features, float16, lie on the device, or a tenth of them (by degree) with the rest
in pinned memory. The baseline is what one would compose of torch: neighbours by random numbers with replacement, `unique`, index, and
sums by `index_add`; it trains the same model on as many neighbours.

Without a GPU the same command runs scaled down on the CPU: the sampler, gather and sums of the CPU, and the same baseline.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import gpu_peers
from benchmarks.gpu_graph import make_topology
from benchmarks.record import interleave, ratio, record
from graphmill.kernels.cuda.device import CudaDevice, device_of
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.graph.generate import rmat_labels
from graphmill.kernels.layers.aggregate import aggregate
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.gather_cuda import gather_tiered_cuda
from graphmill.kernels.rows.slots import DEVICE, HOST, PEER, Tiers, make_slots
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.sample_cuda import CudaSampler
from graphmill.kernels.types import Array, BatchKey, Block, Topology
from graphmill.trainers.batches.on_device import place_topology
from graphmill.trainers.devices.logical import open_device
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.ops import aggregate as aggregate_rows
from graphmill.trainers.recipe.config import TrainConfig

FANOUTS, BATCH_SIZE, WIDTH, CLASSES, HIDDEN = (20, 15, 10), 1000, 128, 64, 256
CONFIG = TrainConfig(model="sage", layers=3, hidden=HIDDEN, dropout=0.5)
CACHED = 0.1


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large everything is."""

    nodes: int
    edges: int
    seeds: int
    repeats: int = 5
    epochs: int = 3


SIZES = {
    "cpu": Size(nodes=100_000, edges=1_500_000, seeds=4_000, repeats=3, epochs=1),
    "quick": Size(nodes=2_000_000, edges=30_000_000, seeds=50_000),
    "full": Size(nodes=111_000_000, edges=1_600_000_000, seeds=1_200_000, epochs=2),
}


def main(quick: bool, scale: float | None = None) -> None:
    there = num_gpus() > 0
    name = ("quick" if quick else "full") if there else "cpu"
    size = SIZES[name] if scale is None else scaled(scale)
    device = open_device("cuda" if there else "cpu")
    where = torch.cuda.get_device_name() if there else "this machine's CPU"
    print(f"{where}: {size.nodes:,} nodes, {size.edges:,} edges", flush=True)
    found = measure(size, device)
    print(f"copy {found['copy_gb_per_second']:.1f} GB/s")
    for row in found["kernels"]:
        print(f"{row['name']:12} {row['gb_per_second']:8.2f} GB/s, {row['of_copy']:.2f} of the copy; {row['rate']}")
    for row in found["epochs"]:
        ours, composed = row["ours_seconds"], row["torch_seconds"]
        print(
            f"features {row['features']:14} epoch {ours:.3f} s, composed of torch {composed:.3f} s: {row['ratio']:.2f}x"
        )
    record(
        "gpu",
        {"scale": name if scale is None else scale, "device": where, **found},
        ("torch", "numpy", "cupy-cuda13x", "cupy-cuda12x"),
    )


def scaled(scale: float) -> Size:
    """Returns a share of the full size: of nodes, edges and seeds."""
    full = SIZES["full"]
    counts = {name: round(scale * getattr(full, name)) for name in ("nodes", "edges", "seeds")}
    return replace(full, **counts)


def measure(size: Size, device: Device) -> dict[str, Any]:
    """Returns all figures.

    Args:
        size: of the graph and the epoch.
        device: that computes.

    Raises:
        AssertionError: the device's results are not the CPU's.
    """
    place = Place(make_topology(size.nodes, size.edges, device), device)
    rows = make_rows(size.nodes)
    check_equality(place, rows)
    bandwidth = copy_bandwidth(place, size)
    rates = [*kernel_rates(place, rows, size), peer_rate(place, size)]
    kernels = [each | {"of_copy": each["gb_per_second"] / bandwidth} for each in rates]
    labels = rmat_labels(size.nodes, CLASSES, 1)
    seeds = np.random.default_rng(1).permutation(size.nodes)[: size.seeds]
    epochs = [compare_epochs(place, rows, labels, seeds, share, size) for share in (1.0, CACHED)]
    return {"size": vars(size), "copy_gb_per_second": bandwidth, "kernels": kernels, "epochs": epochs}


def make_rows(num_nodes: int) -> Array:
    """Returns f16[N, WIDTH]: drawn rows that repeat after a million nodes, since drawing 14 billion numbers takes minutes and 57 GB."""
    drawn = np.random.default_rng(0).standard_normal((min(num_nodes, 1 << 20), WIDTH), dtype=np.float32)
    rows = np.empty((num_nodes, WIDTH), np.float16)
    for first in range(0, num_nodes, len(drawn)):
        rows[first : first + len(drawn)] = drawn[: num_nodes - first]
    return rows


class Place:
    """The graph and its sampler where the device computes.

    Args:
        topology: on the host.
        device: that computes.
    """

    def __init__(self, topology: Topology, device: Device):
        self.topology, self.device = topology, device
        with device.preparing():
            self.there = place_topology(topology, "device", device) if device.remote else topology
        self.kernels: CudaDevice | None = device_of(self.there.in_degree) if device.remote else None

    def sampler(self) -> Any:
        """Returns what samples on the device."""
        if self.kernels is None:
            return Sampler(self.topology, FANOUTS, seed=0, threads=torch.get_num_threads())
        return CudaSampler(self.there, FANOUTS, seed=0, device=self.kernels)

    def tensor(self, array: Array) -> Tensor:
        """Returns a copy on the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device.torch_device)

    def finished(self, run: Callable[[], object]) -> Callable[[], None]:
        """Returns the run, ended when the device is done with it."""

        def whole() -> None:
            run()
            if self.kernels is not None:
                self.kernels.synchronize()

        return whole

    def gather(self, slots: Any, tiers: Tiers, out: Tensor) -> Tensor:
        """Writes the rows of slots, which are on the device, to `out`."""
        if self.kernels is None:
            gather_tiered(slots.numpy(), tiers, out.numpy(), threads=torch.get_num_threads())
            return out
        return gather_tiered_cuda(slots, tiers, out, self.kernels, trusted=True)


def check_equality(place: Place, rows: Array) -> None:
    """Compares a batch that the device samples, and the means of its rows, with the CPU's."""
    seeds, batch = np.arange(min(200, place.topology.num_nodes)), BatchKey(0, 0, 0)
    found = place.sampler().sample(batch, seeds, transpose="all")
    expected = Sampler(place.topology, FANOUTS, seed=0).sample(batch, seeds, transpose="all")
    for one, other in zip(found, expected, strict=True):
        for name in ("start", "end", "indices", "src_ids", "t_start", "t_edge", "t_dst"):
            assert np.array_equal(_host(getattr(one, name)), getattr(other, name)), f"{name} differs from the CPU's"
    h = rows[expected[0].src_ids].astype(np.float32)
    sums = aggregate_rows(found[0], place.tensor(h), "mean")
    assert np.array_equal(_host(sums), aggregate(expected[0], h, "mean")), "means differ from the CPU's"


def check_gather(place: Place, rows: Array, slots: Tensor, tiers: Tiers, ids: Array) -> None:
    """Compares what the device gathers by slot with the rows of these nodes, i64[n]; slots is i32[n], on the device."""
    found = place.gather(slots, tiers, torch.empty((len(ids), WIDTH), device=place.device.torch_device))
    assert np.array_equal(_host(found), rows[ids].astype(np.float32)), "gathered rows differ from the features"


def copy_bandwidth(place: Place, size: Size) -> float:
    """Returns GB/s of a copy on the device, bytes read and written."""
    count = min(1 << 28, size.nodes * WIDTH)
    source = torch.ones(count, device=place.device.torch_device)
    target = torch.empty_like(source)
    seconds = interleave({"copy": place.finished(lambda: target.copy_(source))}, size.repeats)
    return 2 * source.nbytes / statistics.median(seconds["copy"]) / 1e9


def kernel_rates(place: Place, rows: Array, size: Size) -> Iterator[dict[str, Any]]:
    """Yields what sampling, gather and aggregation reach."""
    sampler, batch = place.sampler(), BatchKey(0, 1, 0)
    seeds = np.random.default_rng(2).permutation(size.nodes)[: min(BATCH_SIZE, size.nodes)]
    blocks = sampler.sample(batch, seeds, transpose="none")
    edges = sum(len(block.indices) for block in blocks)
    touched = sum(16 * block.num_dst + 12 * len(block.indices) for block in blocks)
    runs = {"sampling": place.finished(lambda: sampler.sample(batch, seeds, transpose="none"))}
    table, ids = place.tensor(rows), torch.as_tensor(_host(blocks[0].src_ids).astype(np.int32))
    slots = ids.to(place.device.torch_device)
    tiers = Tiers(device=table if place.device.remote else rows)
    check_gather(place, rows, slots, tiers, ids.numpy())
    out = torch.empty((len(ids), WIDTH), device=place.device.torch_device)
    runs["gather"] = place.finished(lambda: place.gather(slots, tiers, out))
    runs["aggregation"] = place.finished(lambda: aggregate_rows(blocks[0], out, "mean"))
    seconds = {name: statistics.median(values) for name, values in interleave(runs, size.repeats).items()}
    lowest = blocks[0]
    moved = {
        "sampling": touched,
        "gather": len(ids) * WIDTH * (2 + 4),
        "aggregation": 4 * WIDTH * (len(lowest.indices) + lowest.num_dst),
    }
    counts = {"sampling": (edges, "edges"), "gather": (len(ids), "rows"), "aggregation": (len(lowest.indices), "edges")}
    for name, value in seconds.items():
        number, what = counts[name]
        yield {
            "name": name,
            "seconds": value,
            "gb_per_second": moved[name] / value / 1e9,
            "rate": f"{number / value / 1e6:,.1f} million {what} per second",
        }


def peer_rate(place: Place, size: Size) -> dict[str, Any]:
    """Returns what a gather of rows reaches that another process has, compared with the rows themselves before."""
    count, rows = min(gpu_peers.ROWS, size.nodes), min(400_000, size.nodes)
    ids = np.random.default_rng(3).permutation(count)[:rows]
    with gpu_peers.other_process(count, WIDTH) as (handle, where):
        seconds = _peer_seconds(place, handle, ids, size.repeats)  # drops the rows before their process ends
    return {
        "name": "peer",
        "seconds": seconds,
        "gb_per_second": len(ids) * WIDTH * (2 + 4) / seconds / 1e9,
        "rate": f"{len(ids) / seconds / 1e6:,.1f} million rows of {where} per second",
    }


def _peer_seconds(place: Place, handle: dict[str, Any], ids: Array, repeats: int) -> float:
    peer = place.device.open_peer(handle)
    tiers, slots = Tiers(peers=(peer,), peer_stride=len(peer)), place.tensor(make_slots(PEER, ids))
    check_gather(place, gpu_peers.drawn_rows(len(peer), WIDTH), slots, tiers, ids)
    out = torch.empty((len(ids), WIDTH), device=place.device.torch_device)
    seconds = interleave({"peer": place.finished(lambda: place.gather(slots, tiers, out))}, repeats)
    return statistics.median(seconds["peer"])


def compare_epochs(place: Place, rows: Array, labels: Array, seeds: Array, share: float, size: Size) -> dict[str, Any]:
    """Times epochs of ours and of the composition of torch's operations, with a share of the rows on the device."""
    tiers, slot_of = placed_rows(place, rows, share)
    ids = seeds[:BATCH_SIZE]
    check_gather(place, rows, slot_of[place.tensor(ids)], tiers, ids)
    ours = OurEpochs(place, tiers, slot_of, labels, seeds)
    torch_epochs = TorchEpochs(place, rows if share < 1 else None, tiers, labels, seeds)
    runs = {"ours": place.finished(ours.run), "torch": place.finished(torch_epochs.run)}
    seconds = interleave(runs, size.epochs)
    return {
        "features": "on the device" if share == 1 else f"{share:.0%} cached",
        "ours_seconds": statistics.median(seconds["ours"]),
        "torch_seconds": statistics.median(seconds["torch"]),
        "ratio": round(ratio(seconds, "torch", "ours"), 3),
        "seconds": seconds,
    }


def placed_rows(place: Place, rows: Array, share: float) -> tuple[Tiers, Tensor]:
    """Returns tiers with the rows of highest out-degree on the device and the others in pinned memory, and the slot of each node."""
    order = np.argsort(-place.topology.out_degree, kind="stable")
    cached, others = np.split(order, [round(share * len(order))])
    slot_of = np.empty(len(order), np.int32)
    slot_of[cached] = make_slots(DEVICE, np.arange(len(cached)))
    slot_of[others] = make_slots(HOST, np.arange(len(others)))
    host = place.device.host_array((len(others), rows.shape[1]), rows.dtype)
    host[...] = rows[others]
    first = place.tensor(rows[cached]) if place.device.remote else rows[cached]
    return Tiers(device=first, host=host), place.tensor(slot_of)


class OurEpochs:
    """Epochs of the sampler, gather and model of this project."""

    def __init__(self, place: Place, tiers: Tiers, slot_of: Tensor, labels: Array, seeds: Array):
        self.place, self.tiers, self.slot_of, self.sampler = place, tiers, slot_of, place.sampler()
        self.plan, self.labels = EpochPlan(seeds, BATCH_SIZE, seed=0), place.tensor(labels.astype(np.int64))
        self.model = build_model(CONFIG, WIDTH, CLASSES, seed=0).to(place.device.torch_device)
        self.optimiser, self.epoch = torch.optim.Adam(self.model.parameters(), lr=CONFIG.lr), 0

    def run(self) -> None:
        """Trains one epoch."""
        for item in self.plan.batches(self.epoch):
            blocks: tuple[Block, ...] = self.sampler.sample(item.key, item.seeds, transpose="hidden")
            ids = torch.as_tensor(blocks[0].src_ids).long()
            x = torch.empty((len(ids), WIDTH), device=self.place.device.torch_device)
            self.place.gather(self.slot_of[ids], self.tiers, x)
            logits = self.model(blocks, x, StepRandom(0, self.epoch, item.position))
            wanted = self.labels[torch.as_tensor(blocks[-1].src_ids)[: len(item.seeds)].long()]
            functional.cross_entropy(logits, wanted).backward()
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        self.epoch += 1


class TorchEpochs:
    """Epochs of what one composes of torch's operations."""

    def __init__(self, place: Place, rows: Array | None, tiers: Tiers, labels: Array, seeds: Array):
        self.at = place.device.torch_device
        self.indptr, self.indices = (
            place.tensor(np.asarray(each)) for each in (place.topology.indptr, place.topology.indices)
        )
        # With all rows on the device they are in the order of their slots; what they hold does not matter to the time.
        self.host = None if rows is None else torch.from_numpy(rows)
        self.table = torch.as_tensor(tiers.device) if rows is None else None
        self.labels, self.seeds = place.tensor(labels.astype(np.int64)), place.tensor(seeds.astype(np.int64))
        layers = [(WIDTH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)]
        self.maps = torch.nn.ModuleList([torch.nn.Linear(2 * first, last) for first, last in layers]).to(self.at)
        self.optimiser = torch.optim.Adam(self.maps.parameters(), lr=CONFIG.lr)

    def run(self) -> None:
        """Trains one epoch."""
        order = self.seeds[torch.randperm(len(self.seeds)).to(self.at)]
        for seeds in order.split(BATCH_SIZE):
            layers, nodes = [], seeds
            for fanout in FANOUTS:
                nodes, edges = self._layer(nodes, fanout)
                layers.insert(0, edges)
            h = self._rows(nodes).float()
            for number, (sources, rows, num_dst) in enumerate(layers):
                sums = torch.zeros((num_dst, h.shape[1]), device=self.at).index_add_(0, rows, h[sources])
                counts = torch.bincount(rows, minlength=num_dst).clamp(min=1)
                h = self.maps[number](torch.cat([h[:num_dst], sums / counts[:, None]], dim=1))
                if number + 1 < len(layers):
                    h = functional.dropout(h.relu(), CONFIG.dropout)
            functional.cross_entropy(h, self.labels[seeds]).backward()
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)

    def _layer(self, nodes: Tensor, fanout: int) -> tuple[Tensor, tuple[Tensor, Tensor, int]]:
        """Returns the nodes with their neighbours behind them, and the edges: sources, destinations, number of these."""
        first, degree = self.indptr[nodes], self.indptr[nodes + 1] - self.indptr[nodes]
        drawn = (torch.rand((len(nodes), fanout), device=self.at) * degree[:, None]).long()
        valid = torch.arange(fanout, device=self.at)[None, :] < degree[:, None]
        places = (first[:, None] + drawn)[valid]
        rows = torch.arange(len(nodes), device=self.at)[:, None].expand(-1, fanout)[valid]
        reached = self.indices[places].long()
        found, inverse = torch.unique(torch.cat([nodes, reached]), return_inverse=True)
        # Destinations stay first: the ids behind them are those that are new.
        local = torch.full((len(found),), -1, dtype=torch.long, device=self.at)
        local[inverse[: len(nodes)]] = torch.arange(len(nodes), device=self.at)
        new = local < 0
        local[new] = len(nodes) + torch.arange(int(new.sum()), device=self.at)
        return torch.cat([nodes, found[new]]), (local[inverse[len(nodes) :]], rows, len(nodes))

    def _rows(self, nodes: Tensor) -> Tensor:
        if self.host is None:
            assert self.table is not None
            return self.table[nodes]
        return self.host[nodes.cpu()].to(self.at)


def _host(array: Any) -> Array:
    return array.cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
