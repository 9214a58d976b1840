"""The share of a rank or a device in the parts of a full-graph training."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.assets.chunks.read import StoredChunks
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.ranks.group import ALONE, Lane, LinkModel, Ranks
from graphmill.trainers.techniques.fullgraph.rows.lists import PartShare
from graphmill.trainers.techniques.fullgraph.rows.places import Place


def part_share(run: Run, chunks: StoredChunks, settings: Any) -> PartShare | None:
    """Returns the parts of this rank; None for one process.

    Args:
        settings: `[train.fullgraph]`.

    Raises:
        InputError: the ranks cannot share the parts or the devices evenly, or one would have no node.
    """
    rank, world = run.ranks.rank, run.ranks.world
    if world == 1:
        return None
    if chunks.num_parts % world:
        problem = f"{world} ranks do not divide [partitions] parts = {chunks.num_parts}"
        raise InputError(problem, "give a divisor, so that each rank has as many parts")
    if settings.devices % world:
        problem = f"devices = {settings.devices} is not a multiple of {world} ranks, and each has devices of its own"
        raise InputError(problem, "remove the key, or give a multiple")
    each = chunks.num_parts // world
    sizes = np.array([len(chunks.nodes_of(part)) for part in range(chunks.num_parts)]).reshape(world, each).sum(1)
    if not sizes.all():
        problem = f"the parts of rank {int(np.argmin(sizes))} of {world} have no node"
        raise InputError(problem, "start fewer ranks, or set fewer `parts` in [partitions]")
    rank_of = None
    if settings.mode == "vanilla":
        rank_of = np.empty(chunks.num_nodes, np.uint16)
        for part in range(chunks.num_parts):
            rank_of[chunks.nodes_of(part)] = part // each
    return PartShare(rank, world, chunks.num_parts, rank_of)


def rows_of_nodes(chunks: StoredChunks, share: PartShare) -> Array:
    """Returns i32[N], the row of each node of a rank's parts among their rows in the order of ids; -1 for nodes of other ranks."""
    own = np.sort(np.concatenate([np.asarray(chunks.nodes_of(part)) for part in share.parts]))
    found = np.full(chunks.num_nodes, -1, np.int32)
    found[own] = np.arange(len(own), dtype=np.int32)
    return found


def open_lane(run: Run, settings: Any) -> Lane:
    """Returns the lane of the thread that trains, with the modelled speed of `peer_gbps`; all ranks call it."""
    return run.ranks.lane(None if settings.peer_gbps is None else LinkModel(gbps=settings.peer_gbps))


def open_places(
    first: Device, num_parts: int, devices: int, share: PartShare | None = None, ranks: Ranks = ALONE
) -> list[Place]:
    """Returns the place of each part of this process.

    Args:
        num_parts: m, number of parts.
        devices: number of devices of all ranks; 0 for one per part on the CPU, or for the one device with memory of its own of each rank.
        share: the parts of this rank; None for one process with all.

    Raises:
        InputError: the parts cannot be shared evenly, or the machine has fewer devices.
    """
    parts, world = (range(num_parts), 1) if share is None else (share.parts, share.world)
    count = devices // world or (len(parts) if first.kind == "logical" else 1)
    if len(parts) % count:
        problem = f"devices = {devices} does not divide [partitions] parts = {num_parts}"
        raise InputError(problem, "give a divisor, so that each device has as many parts")
    all_devices = [first, *_others(first, count, devices, ranks)]
    return [
        Place(part=part, device=all_devices[place * count // len(parts)], several=count > 1)
        for place, part in enumerate(parts)
    ]


def _others(first: Device, count: int, devices: int, ranks: Ranks) -> list[Device]:
    """Returns the devices of a rank behind its first one: `count` with that.

    Accelerators of ranks that see the same devices are dealt out in turn: with two ranks, the first has those of even numbers.
    """
    if isinstance(first, LogicalDevice):
        limits = first.work_bytes, first.cache_bytes, first.link_gbps
        return [LogicalDevice(index, *limits) for index in range(1, count)]
    if count == 1:
        return []
    assert isinstance(first, Accelerator)
    apart = 1 + max(ranks.beside(first.index)) if ranks.world > 1 else 1
    indices = [first.index + number * apart for number in range(1, count)]
    there = first.backend.num_devices()
    if indices[-1] >= there:
        who = "" if ranks.world == 1 else f" of {ranks.world} ranks"
        problem = f"devices = {devices}{who} needs {indices[-1] + 1} accelerators on this machine, which shows {there}"
        raise InputError(problem, "set fewer devices, a divisor of [partitions] parts, or remove the key")
    return [first.sibling(index) for index in indices]
