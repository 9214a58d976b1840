"""Opens the data of a rank: its parts, their rows, and the computation of logits without all rows on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.budgets.read import open_budgets
from graphmill.assets.features.read import node_types
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.shards.read import Shards, open_shards
from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.local.require import require
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.types import Array
from graphmill.trainers.devices.logical import open_device
from graphmill.trainers.inference.evaluation import evaluation
from graphmill.trainers.loop.device_room import device_room, peak_of_run
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.ranks.gpu_links import gpu_links
from graphmill.trainers.ranks.group import Lane, Ranks
from graphmill.trainers.ranks.links import Interconnect, parse_links
from graphmill.trainers.ranks.measured_links import measured_links
from graphmill.trainers.ranks.rounds import LinkModel, Rounds, faster_in_rounds, make_rounds
from graphmill.trainers.recipe.queue_bytes import prepared_in_turn
from graphmill.trainers.rows.cache import Features
from graphmill.trainers.techniques.distributed.hot_rows import choose_hot
from graphmill.trainers.techniques.distributed.inference import part_nodes
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.techniques.distributed.sharded import Ownership, ShardedSource

if TYPE_CHECKING:
    from graphmill.assets.storage.local.artifact import Artifact
    from graphmill.trainers.recipe.execution import TrainExecution


def open_data(run: Run) -> None:
    """Opens the shards of a rank and fills its cache; all ranks call it.

    Args:
        run: the run; its artifacts are `partitions`, `shards`, and for a cache `hotness` and `budgets`.

    Raises:
        InputError: an artifact is of another graph, the parts cannot be shared evenly, or a shard is missing.
    """
    graph, semantic, execution, ranks = run.graph, run.semantic, run.execution, run.ranks
    shards, owned = _open_shards(run)
    settings, sampling = semantic.train.settings, semantic.sampling
    assert isinstance(settings, DistributedSettings)
    assert sampling is not None and run.drawing is not None
    work_bytes = parse_size(execution.workspace) if execution.workspace else None
    device = open_device(semantic.train.device, work_bytes, execution.link_gbps)
    lane = open_lane(settings, ranks)
    in_turn = ranks.world == 1 and semantic.train.device == "cpu" and prepared_in_turn(semantic.train, execution)
    threads = semantic.train.num_threads if in_turn else 1
    reserved = run.bytes_to_come() if execution.features == "auto" else 0
    source = ShardedSource(shards, owned, lane, device, execution.features, ranks, threads, reserved)
    run.edge_rows = run.open_edge_rows(threads)
    source.at_hand = in_turn and not source.own.direct and (run.edge_rows is None or run.edge_rows.at_hand)
    seeds = run.seeds
    run.plan = PartPlan(
        seeds,
        # A link belongs to the part of its target.
        owned.part_of[seeds if run.edges is None else run.edges.target],
        owned.num_parts,
        sampling.batch_size,
        seed=semantic.sampling_seed,
        reuse=sampling.reuse,
        accumulate=semantic.train.accumulate,
    )
    given = {**run.inputs, **run.reads}
    record: dict[str, Any] = {}
    whole = node_types(graph.topology, shards)
    stored = replace(shards.tables(owned.parts)[0], type_columns=None if whole is None else whole.columns)
    if {"hotness", "budgets"} <= given.keys():
        record |= _fill_devices(run, shards, source, given)
        record |= _fill_cache(source, shards.row_of, given, execution)
    # No rank reads the table as a whole: evaluation goes through the source.
    run.features = Features(stored=stored, table=source, source=source, device=device, record=record)
    domain = part_nodes(graph.topology, source)
    run.infer = evaluation(semantic, graph.topology, source, device, run.drawing, domain, edge_rows=run.edge_rows)


def _open_shards(run: Run) -> tuple[Shards, Ownership]:
    """Returns the shards of all parts, and the owner of each node; errors are those of `open_data`."""
    graph, inputs, reads, ranks = run.graph, run.inputs, run.reads, run.ranks
    if "shards" not in reads:
        problem = f'trainer = "{run.semantic.train.trainer}", but no shards were given'
        raise InputError(problem, "graphmill build PIPELINE builds them")
    partitions, shards = open_partitions(inputs["partitions"]), open_shards(reads["shards"])
    made_of = {role: inputs[role] for role in ("partitions", "features") if role in inputs}
    require(reads["shards"], {"inputs": made_of})
    if len(partitions.part_of) != graph.topology.num_nodes:
        problem = f"{len(partitions.part_of)} nodes have a part, the graph has {graph.topology.num_nodes}"
        raise InputError(problem, "build both from one source: graphmill build PIPELINE")
    num_parts, part_of = partitions.num_parts, partitions.part_of
    return shards, Ownership(rank=ranks.rank, world=ranks.world, num_parts=num_parts, part_of=part_of)


def _fill_devices(
    run: Run, shards: Shards, source: ShardedSource, given: Mapping[str, Artifact]
) -> dict[str, int | None]:
    """Copies the hottest rows to the devices of the ranks within [memory] device, and returns facts about them.

    With `exchange = "peer"` the devices of a machine share rows; else each has the hottest for its rank alone, if training rows come from
    the shards.

    Raises:
        InputError: a device has too little memory, or cannot read that of another.
    """
    settings, budgets, ranks = run.semantic.train.settings, open_budgets(given["budgets"]), source.ranks
    if settings.rows == "packed":
        return {}
    peer, row_of, peak_bytes, device_bytes = settings.exchange == "peer", shards.row_of, None, budgets.device_bytes
    if "device" in budgets.automatic:
        peak_bytes = peak_of_run(run, shards, source.device)
        device_bytes = device_room(run, budgets, source.device, peak_bytes)
    rows = device_bytes // max(1, source.row_bytes)
    require(given["hotness"], {"arrays": {"order": {"shape": (len(row_of),)}}})
    room, share = {rank: each for rank, each in ranks.beside([ranks.rank, rows])}, settings.replicated if peer else 1.0
    if not peer and not any(room.values()):
        return {}
    hot = choose_hot(open_hotness(given["hotness"]).order, row_of, source.owned.ranks_of, room, share)
    hot = hot if peer else hot._replace(by_rank=())
    source.device.cache_bytes = device_bytes
    source.fill_devices(hot)
    by_rank = dict(zip(room, hot.by_rank, strict=peer))
    return {
        "simulated_peak_bytes": peak_bytes,
        "device_budget_bytes": device_bytes,
        "device_rows": len(hot.everywhere) + len(by_rank.get(ranks.rank, ())),
        "replicated_rows": len(hot.everywhere),
        "peer_rows": sum(map(len, hot.by_rank)),
    }


def _fill_cache(
    source: ShardedSource, row_of: Array, given: Mapping[str, Artifact], execution: TrainExecution
) -> dict[str, int]:
    """Copies the hottest rows of other ranks within [memory] host, and returns facts about the cache.

    If own rows are read past the page cache, they are among the copied ones; rows on devices are not.
    """
    budgets, hotness, owned = open_budgets(given["budgets"]), given["hotness"], source.owned
    require(hotness, {"arrays": {"order": {"shape": (len(row_of),)}}})
    held = source.held_bytes if execution.features == "memory" else 0
    if held > budgets.host_bytes and "host" not in budgets.automatic:
        problem = f'features = "memory" holds {format_bytes(held)} of shards where [memory] host allows {budgets.host_bytes:,} bytes'
        raise InputError(problem, 'raise host, or set features = "mapped"')
    num_rows = max(0, budgets.host_bytes - held) // max(1, source.row_bytes)
    order, chosen, left = open_hotness(hotness).order, [np.empty(0, np.int64)], num_rows
    for low, high in node_ranges(len(order)):
        if left <= 0:
            break
        ids = np.asarray(order[low:high])
        costly = row_of[ids] >= 0
        if not source.own.direct:
            costly &= owned.ranks_of(ids) != owned.rank
        if source.devices is not None:
            costly &= ~source.devices.on_devices(ids)
        chosen.append(ids[costly][:left])
        left -= len(chosen[-1])
    source.fill(np.sort(np.concatenate(chosen)))
    return {"host_budget_bytes": budgets.host_bytes, "host_rows": source.cached_rows}


def open_lane(settings: DistributedSettings, ranks: Ranks) -> Lane:
    """Returns the lane of the exchange, with its rounds and its modelled network; all ranks call it.

    Raises:
        InputError: the links are of fewer devices, or they cannot be found.
    """
    links = find_links(settings.links, ranks) if settings.links and ranks.world > 1 else None
    modelled = links if settings.model_links else None
    model = LinkModel(latency_seconds=settings.latency_us * 1e-6, gbps=settings.rank_gbps, links=modelled)
    lane = ranks.lane(model if settings.latency_us or settings.rank_gbps or modelled else None)
    if links is not None and settings.exchange != "all_to_all":
        lane.order = _order(settings, links, ranks)
    return lane


def find_links(named: str, ranks: Ranks) -> Interconnect:
    """Returns the links between the ranks; all ranks call it. Errors are those of `open_lane`."""
    if named == "measured":
        return measured_links(ranks)
    return gpu_links(ranks) if named == "nvml" else parse_links(named).between(range(ranks.world))


def _order(settings: DistributedSettings, links: Interconnect, ranks: Ranks) -> Rounds | None:
    """Returns the rounds, None if all transfers run at once."""
    order = make_rounds(links)
    if settings.exchange != "rounds" and not faster_in_rounds(links, order):
        order = None
    # The first rank decides: ranks may run other versions of Python, and rounds that differ would wait for one another.
    told = ranks.tell(None if order is None else [order.rounds, order.least])
    return None if told is None else Rounds.of(*told)
