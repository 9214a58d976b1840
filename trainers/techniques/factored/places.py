"""The places of roles: their devices, the sources of their rows, and parts of a topology that is larger than a device."""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from graphmill.assets.sizes import format_bytes
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Block, Topology
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.link import Link
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import CACHE, Device
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.cache import CachedSource, PackedRows
from graphmill.trainers.rows.source import FeatureSource, linked
from graphmill.trainers.techniques.factored.costs import topology_bytes

TOPOLOGY = Line("h2d", "topology")


class TopologyParts:
    """Ranges of nodes of a topology that is larger than a device, one of which is on it (FGNN, section 5.2, leaves them as future work).

    A batch is sampled layer by layer, from the seeds outwards; for each layer every part that holds one of its destinations is loaded, the
    one that is on the device first. Samples are keyed by node, so they do not depend on the parts: blocks are those of a topology in one
    piece, and the cost of parts is counted from the destinations.

    On a logical device nothing is copied: the bytes are booked as transfers, and the device's modelled link takes the time for them. Bound:
    a batch loads each part at most once per layer. Known limit: parts are ranges of ids, so a layer of many nodes touches nearly all.

    Args:
        starts: i64[P + 1], first node of each part, and the number of nodes.
        num_bytes: i64[P], bytes of each part's rows.
        link: the link that carries them; None if it has the machine's own speed.
    """

    def __init__(self, starts: Array, num_bytes: Array, link: Link | None, traffic: Ledger):
        self.starts, self.num_bytes, self.link, self.traffic = starts, num_bytes, link, traffic
        self._resident = -1

    def load(self, blocks: Sequence[Block]) -> None:
        """Loads the parts that sampling a batch needs, by its blocks from the one that consumes features on."""
        for block in reversed(blocks):
            needed = np.unique(np.searchsorted(self.starts, block.dst_ids, side="right") - 1)
            for part in needed[needed != self._resident].tolist():
                since = self.link.now() if self.link else 0
                moved = int(self.num_bytes[part])
                self.traffic.crossed(TOPOLOGY, moved)
                if self.link:
                    self.link.carry(moved, since)
                self._resident = part


@dataclass(frozen=True, kw_only=True)
class DevicePlace:
    """A device and the source that it reads rows from.

    Attributes:
        narrower: whether its cache is smaller than the trainers', so that marks of samplers do not fit it.
        parts: parts of a topology that is larger than the device; None if the device or the host holds all of it.
        booked: holds the bytes booked on the device for as long as the place lives.
    """

    device: Device
    features: FeatureSource
    narrower: bool = False
    parts: TopologyParts | None = None
    booked: ExitStack = field(default_factory=ExitStack)


def standby_place(device: Accelerator, features: FeatureSource, held: int) -> DevicePlace:
    """Returns the place of a sampler on an accelerator where no trainer is: it has the hottest rows that the topology leaves room for.

    What the topology takes of the cache's bytes is added to those of work, where it is allocated.

    Args:
        device: the accelerator, with the budgets of one that trains.
    """
    cached = (device.cache_bytes or 0) if isinstance(features, CachedSource) else 0
    left = max(0, cached - held)
    if device.work_bytes is not None:
        device.work_bytes += cached - left
    if not isinstance(features, CachedSource):
        return DevicePlace(device=device, features=features.beside(device))
    device.cache_bytes = left
    return DevicePlace(device=device, features=features.beside(device, left), narrower=True)


def training_place(run: Run, index: int, features: FeatureSource) -> DevicePlace:
    """Returns the place of a trainer: it holds the whole cache."""
    first = run.features.device
    device = LogicalDevice(index, first.work_bytes, first.cache_bytes, link_gbps=run.execution.link_gbps)
    if isinstance(features, CachedSource | PackedRows):
        device.adopt([features.device_rows], CACHE)
    return DevicePlace(device=device, features=linked(features, device))


def sampling_place(run: Run, index: int, features: FeatureSource, arena_bytes: int = 0) -> DevicePlace:
    """Returns the place of a sampler: beside the topology it holds the hottest rows that fit.

    Args:
        arena_bytes: bytes that it holds beside cached rows, of which the budget of a cache has them already.

    Raises:
        InputError: the topology is larger than the device, and so is a single row of it.
    """
    first, whole = run.features.device, topology_bytes(run.graph.topology)
    held = whole if run.execution.topology == "device" and not run.draws_on_device else 0
    image_bytes = len(features.device_rows) * features.row_bytes if isinstance(features, PackedRows) else 0
    cached = (first.cache_bytes or 0) if isinstance(features, CachedSource) else image_bytes + arena_bytes
    ranges = None
    if first.work_bytes is not None and held > cached + first.work_bytes:
        # One part of the topology may take the cache's share of the device and half of the work's.
        ranges = _ranges(run.graph.topology, held, cached, first.work_bytes)
        held = int(ranges[1].max())
    left = max(0, cached - held)
    work = None if first.work_bytes is None else first.work_bytes + cached - left
    device, booked = LogicalDevice(index, work, left, link_gbps=run.execution.link_gbps), ExitStack()
    booked.enter_context(device.holding(held, "topology"))
    parts = None if ranges is None else TopologyParts(*ranges, device.link("h2d"), device.traffic)
    narrower = isinstance(features, CachedSource) and left < cached
    if isinstance(features, CachedSource):
        features = features.prefix(left) if narrower else features
        # The image is shared with the trainers, and its first rows are those that this device would hold.
        booked.enter_context(device.holding(len(features.placement.device_ids) * features.row_bytes, CACHE))
    elif isinstance(features, PackedRows):
        booked.enter_context(device.holding(image_bytes, CACHE))
    return DevicePlace(device=device, features=linked(features, device), narrower=narrower, parts=parts, booked=booked)


def cut(topology: Topology, room: int) -> tuple[Array, Array] | None:
    """Returns (starts, bytes) of ranges of nodes that fit, for `TopologyParts`; None if a single node's row does not fit.

    Args:
        topology: the graph; a node costs 8 bytes of `indptr` and its row of `indices` and weights.
    """
    per_edge = topology.indices.dtype.itemsize + (0 if topology.weights is None else topology.weights.dtype.itemsize)
    if topology.num_nodes and 8 + int(topology.in_degree.max()) * per_edge > room:
        return None

    def end(node: int) -> int:
        return 8 * node + per_edge * int(topology.indptr[node])

    nodes, starts = range(topology.num_nodes + 1), [0]
    while starts[-1] < topology.num_nodes:
        starts.append(bisect_right(nodes, end(starts[-1]) + room, key=end) - 1)
    return np.array(starts, np.int64), np.diff([end(node) for node in starts])


def _ranges(topology: Topology, held: int, cached: int, work: int) -> tuple[Array, Array]:
    found = cut(topology, cached + work // 2)
    if found is None:
        problem = (
            f'topology = "device" puts {format_bytes(held)} on each device that samples, and one has {format_bytes(cached + work)}: '
            "not even the longest row of it fits"
        )
        raise InputError(problem, 'raise `workspace`, or `device` in [memory], or set topology = "host"')
    return found
