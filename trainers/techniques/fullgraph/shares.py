"""The share of a rank or a device in the parts of a full-graph training, and whether its passes fit there.

Before the training the predicted bytes of a pass on a device are compared with `workspace`.

The prediction uses the counts of the chunks artifact (memory.py). If it does not fit, the parts are cut anew into more chunks, scheduled
and counted as in the stage: so the error names a number of chunks that fits. If METIS ordered the nodes, each number of chunks has an order
of its own, and the number is an estimate.

Nothing is predicted for a user's own layers, whose widths and intermediate results are unknown; the device's bound ends a pass that exceeds
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphmill.assets.chunks.read import StoredChunks
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.chunks.counts import StepCounts, count_step
from graphmill.kernels.chunks.cut import MOST, MOST_CHUNKS
from graphmill.kernels.chunks.schedule import Schedule
from graphmill.kernels.chunks.steps import chunk_steps
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Block
from graphmill.trainers.batches.batch import DATA_WEIGHTS, attach_weights
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.own import OwnModule
from graphmill.trainers.ranks.group import ALONE, Lane, LinkModel, Ranks
from graphmill.trainers.techniques.fullgraph.memory import ChunkCounts, Way, device_bytes, largest
from graphmill.trainers.techniques.fullgraph.rows.host_rows import Place
from graphmill.trainers.techniques.fullgraph.rows.lists import Mode, PartShare


def part_share(run: Run, chunks: StoredChunks, settings: Any) -> PartShare | None:
    """Returns the parts of this rank; None for one process.

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


def require_memory(run: Run, chunks: StoredChunks, settings: Any, way: Way) -> int:
    """Compares the predicted bytes of a pass on a device with `workspace`, and returns them; of a user's own layers `workspace` itself.

    Raises:
        InputError: it does not fit; the message names a number of chunks that fits, if there is one.
    """
    bound = run.features.device.work_bytes
    counts = largest(chunks.counts, settings.mode)
    needed = needed_bytes(run, counts, way)
    if bound is not None and is_reference(run.semantic.train.model):
        return bound
    if bound is None or needed <= bound:
        return needed
    problem = (
        f"a pass over chunks of up to {counts.nodes:,} nodes and {counts.edges:,} edges holds {format_bytes(needed)} on a "
        f"device, and workspace allows {format_bytes(bound)}"
    )
    more, remedies = chunks_that_fit(run, chunks, settings.mode, way, bound), []
    if more is not None:
        remedies.append(f"set chunks_per_part = {more} in [chunks]")
    if way.overlap and needed_bytes(run, counts, replace(way, overlap=False)) <= bound:
        remedies.append("set overlap = false in [train.fullgraph]")
    raise InputError(problem, ", or ".join([*remedies, "raise `workspace`"]))


def needed_bytes(run: Run, counts: ChunkCounts, way: Way) -> int:
    """Returns the most bytes that a device holds at once when the run's model passes over chunks."""
    num_parameters = sum(parameter.numel() for parameter in run.model.parameters())
    train, width = run.semantic.train, run.features.table.width
    edges = 0 if run.edge_rows is None else run.edge_rows.width
    classes = train.output_width(run.graph.num_classes)
    return device_bytes(train, width, classes, num_parameters, counts, way, edge_width=edges)


def chunks_that_fit(run: Run, chunks: StoredChunks, mode: Mode, way: Way, bound: int) -> int | None:
    """Returns a number of chunks per part with which a pass fits, None if none of up to 4,096 does, or 65,536 in all."""
    more = 2 * chunks.chunks_per_part
    while more <= min(MOST, MOST_CHUNKS // chunks.num_parts):
        # The free schedule excludes most numbers; a number that passes is counted again with the schedule of the stage.
        schedules: tuple[Schedule, ...] = ("identity", chunks.asked_schedule)
        if all(
            needed_bytes(run, largest(cut_counts(run, chunks, more, each), mode), way) <= bound for each in schedules
        ):
            return more
        more *= 2
    return None


def cut_counts(run: Run, chunks: StoredChunks, chunks_per_part: int, schedule: Schedule) -> StepCounts:
    """Returns the counts of the rows that every step would hold and move if the parts were cut into another number of chunks."""
    topology = run.graph.topology
    part_of = np.empty(topology.num_nodes, np.int32)
    for part in range(chunks.num_parts):
        part_of[chunks.nodes_of(part)] = part
    steps = chunk_steps(
        topology.indptr,
        topology.indices,
        part_of,
        chunks.num_parts,
        chunks_per_part=chunks_per_part,
        order=chunks.node_ids,
        schedule=schedule,
        self_term=chunks.self_term,
        threads=run.semantic.train.num_threads,
    )
    return StepCounts.of(np.array([[count_step(each) for each in devices] for devices in steps], np.int64))


def whole_block(run: Run) -> Block:
    """Returns the whole graph as one block, with weights and transpose.

    Raises:
        InputError: the graph has more edges than a block can number.
    """
    topology, given = run.graph.topology, run.graph.topology.weights
    if topology.num_edges >= 1 << 31 or topology.num_nodes >= 1 << 31:
        problem = f'mode = "device" makes one block of {topology.num_edges:,} edges, more than 2,147,483,647'
        raise InputError(problem, 'leave the key out, or set mode = "p2p+reuse"')
    indptr, reads_all = np.asarray(topology.indptr), isinstance(run.model, OwnModule)
    types = topology.edge_types if reads_all or run.model.reads_relations else None
    block = Block(
        num_dst=topology.num_nodes,
        num_src=topology.num_nodes,
        start=indptr[:-1].astype(np.int32),
        end=indptr[1:].astype(np.int32),
        indices=np.asarray(topology.indices).astype(np.int32),
        src_ids=np.arange(topology.num_nodes, dtype=topology.indices.dtype),
        edge_type=None if types is None else np.asarray(types),
        edge_id=None if run.edge_rows is None else np.asarray(topology.edge_ids),
        weight=None if given is None or not (reads_all or run.model.edge_weight in DATA_WEIGHTS) else np.array(given),
    )
    block = transpose(block)
    attach_weights((block,), topology, run.model.edge_weight)
    return block
