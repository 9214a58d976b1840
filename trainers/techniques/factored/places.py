"""The places of roles: their devices, and the sources of their rows."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field, fields

import numpy as np

from assets.sizes import format_bytes
from kernels.errors import InputError
from kernels.types import Array, Topology
from trainers.devices.logical import LogicalDevice
from trainers.devices.protocol import CACHE, Device
from trainers.loop.executor import Run
from trainers.rows.cache import CachedSource
from trainers.rows.linked import LinkedSource
from trainers.rows.source import FeatureSource
from trainers.techniques.factored.partitions import TopologyParts, cut


@dataclass(frozen=True, kw_only=True)
class DevicePlace:
    """A device and the source that it reads rows from.

    Attributes:
        device: the device.
        features: its source of rows.
        narrower: whether its cache is smaller than the trainers', so that marks of samplers do not fit it.
        parts: parts of a topology that is larger than the device; None if the device or the host holds all of it.
        booked: holds the bytes booked on the device for as long as the place lives.
    """

    device: Device
    features: FeatureSource
    narrower: bool = False
    parts: TopologyParts | None = None
    booked: ExitStack = field(default_factory=ExitStack)


def topology_bytes(topology: Topology) -> int:
    """Returns the bytes of all arrays of a topology."""
    arrays = [getattr(topology, each.name) for each in fields(topology)]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def unlinked(features: FeatureSource) -> FeatureSource:
    """Returns the source in front of the run's own link: every device has a link of its own."""
    return features.source if isinstance(features, LinkedSource) else features


def training_place(run: Run, index: int, features: FeatureSource) -> DevicePlace:
    """Returns the place of a trainer: it holds the whole cache.

    Args:
        run: the run.
        index: number of the device.
        features: the source of rows, without a link.
    """
    first = run.features.device
    if first.remote:
        return DevicePlace(device=first, features=features)
    device = LogicalDevice(index, first.work_bytes, first.cache_bytes, link_gbps=run.execution.link_gbps)
    if isinstance(features, CachedSource):
        device.adopt([features.device_rows], CACHE)
    return DevicePlace(device=device, features=_linked(features, device))


def sampling_place(run: Run, index: int, features: FeatureSource) -> DevicePlace:
    """Returns the place of a sampler: beside the topology it holds the hottest rows that fit; arguments as in `training_place`.

    Raises:
        InputError: the topology is larger than the device, and so is a single row of it.
    """
    first, whole = run.features.device, topology_bytes(run.graph.topology)
    held = whole if run.execution.topology == "device" and not first.remote else 0
    cached = (first.cache_bytes or 0) if isinstance(features, CachedSource) else 0
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
    return DevicePlace(device=device, features=_linked(features, device), narrower=narrower, parts=parts, booked=booked)


def _ranges(topology: Topology, held: int, cached: int, work: int) -> tuple[Array, Array]:
    found = cut(topology, cached + work // 2)
    if found is None:
        problem = (
            f'topology = "device" puts {format_bytes(held)} on each device that samples, and one has {format_bytes(cached + work)}: '
            "not even the longest row of it fits"
        )
        raise InputError(problem, 'raise `workspace`, or `device` in [memory], or set topology = "host"')
    return found


def _linked(features: FeatureSource, device: Device) -> FeatureSource:
    link = device.link("h2d")
    return features if link is None else LinkedSource(features, link)


def num_devices(devices: int) -> int:
    """Returns the number of devices: as asked, or one per core and at least two."""
    return devices or max(2, os.cpu_count() or 1)
