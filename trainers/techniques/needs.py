"""The terms of the memory of each technique's training, without torch; trainers/recipe/need.py has what they share."""

from __future__ import annotations

from typing import Any

from graphmill.assets.building.needs import Term
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.machine import usable_cores
from graphmill.kernels.rows.aligned import space_for
from graphmill.trainers.recipe.need import (
    BATCH,
    LAUNCHER_BYTES,
    PARAMETER_COPIES,
    PRODUCT_BYTES,
    Case,
    evaluation_terms,
    model_terms,
    parameter_term,
    process_terms,
    queue_terms,
    row_terms,
    sampler_terms,
    tier_rows,
    tier_terms,
)
from graphmill.trainers.recipe.step_bytes import item_bytes
from graphmill.trainers.recipe.terms import LAUNCHER, RANK_WINDOWS, ROWS_ON_THEIR_WAY

DISK_QUEUES, DISK_WAITING, DISK_LOADERS, RANGE_BYTES = 3, 3, 6, 256 << 10
"""Of trainers/techniques/disk.py: parts of the queue, batches in one with that in work, loaders, and bytes of a range that one reads."""
RANK_WINDOW_BYTES = 32 << 20
"""Of trainers/techniques/distributed/own_rows.py: rows of a shard that are read at once."""
FACTORED_BATCHES = 2
"""Batches of a trainer (trainers/techniques/factored/queue.py): one is trained on, and rows of the next are extracted."""
ARENA_WINDOW_BYTES, WINDOW_COPIES = 16 << 20, 3
"""Of trainers/techniques/fresh/arena_rows.py: rows on their way to the arena's batch; packed ones as read, as staged and put together."""


def minibatch_terms(case: Case) -> list[Term]:
    """Returns the terms of `minibatch`."""
    return [
        *process_terms(case),
        *queue_terms(case),
        *model_terms(case),
        *sampler_terms(case),
        *row_terms(case),
        *tier_terms(case),
    ]


def disk_terms(case: Case) -> list[Term]:
    """Returns the terms of `disk`: a third of the queue each for graphs, staged rows and input rows."""
    return [
        *process_terms(case),
        *_from_disk_terms(case),
        *evaluation_terms(case, 0),  # its batches are in heaps of other threads
        *model_terms(case),
        *sampler_terms(case),
        *tier_terms(case, 0),
    ]


def _from_disk_terms(case: Case, ranks: int = 1) -> list[Term]:
    """Returns the terms of batches whose graphs and rows are read from disk, by each of several ranks."""
    ready, staged = space_for(case.batch.inputs * case.row_bytes), _staged_bytes(case)
    graphs = 1 + _waiting(case, case.block_bytes, DISK_WAITING)
    stagings, inputs = _waiting(case, staged, DISK_WAITING + DISK_LOADERS), _waiting(case, ready, DISK_WAITING)
    sure = case.batch.exact
    found = {
        "staged rows of batches in work": (staged, BATCH, not sure),
        "staged rows that wait": ((stagings - 1) * staged, "queue", not sure),
        "inputs of batches": (inputs * ready, "queue", not sure),
        "blocks of batches": (graphs * case.block_bytes, "queue", True),
        "readers of cached rows": (reader_bytes(case, DISK_LOADERS), "io_depth", True),
    }
    return [Term(what, ranks * num_bytes, key, bound=at_most) for what, (num_bytes, key, at_most) in found.items()]


def _waiting(case: Case, each: int, most: int) -> int:
    return case.held(case.shared_bytes(DISK_QUEUES, each), each, most)


def fresh_terms(case: Case) -> list[Term]:
    """Returns the terms of `fresh`: half of the queue for sampled blocks, half for the batch that is trained on."""
    settings: Any = case.semantic.train.settings
    packed = settings.rows == "packed"
    rows = tier_terms(case, 0) if packed else [*row_terms(case), *tier_terms(case)]
    windows = ARENA_WINDOW_BYTES * (WINDOW_COPIES if packed else 1)
    return [
        *process_terms(case),
        *_pruned_terms(case),
        Term(ROWS_ON_THEIR_WAY, windows, bound=True),
        *_arena_terms(case, settings),
        *model_terms(case, extra_rows=_history_bytes(case)),
        *sampler_terms(case),
        *rows,
    ]


def fresh_factored_terms(case: Case) -> list[Term]:
    """Returns the terms of `fresh-factored`: those of `factored`, whose trainers load packed rows themselves, and the arena."""
    settings: Any = case.semantic.train.settings
    trainers = sum(settings.roles(usable_cores()))
    windows = trainers * ARENA_WINDOW_BYTES * (WINDOW_COPIES if settings.rows == "packed" else 1)
    return [
        *factored_terms(case, staged=0, extra_rows=_history_bytes(case)),
        Term(ROWS_ON_THEIR_WAY, windows, bound=True),
        *_arena_terms(case, settings),
    ]


def factored_terms(case: Case, staged: int | None = None, extra_rows: int = 0) -> list[Term]:
    """Returns the terms of `factored`: one queue of sampled batches, and for each trainer the rows of two batches and a step.

    Args:
        case: the training.
        staged: bytes of packed rows that wait with a batch; None for those of its packed chunk, if rows are packed.
        extra_rows: bytes of rows between layers, of each trainer.
    """
    settings: Any = case.semantic.train.settings
    samplers, trainers = settings.roles(usable_cores())
    ready, count = space_for(case.batch.inputs * case.row_bytes), case.batch.count
    packed = settings.rows == "packed"
    if staged is None:
        staged = _staged_bytes(case) if packed else 0
    waiting = case.held(case.shared_bytes(1, case.block_bytes + staged), case.block_bytes + staged, count)
    standby = samplers if settings.switching and settings.sharing == "space" else 0
    trainers, taken = min(count, trainers + standby), min(count, FACTORED_BATCHES * trainers + standby)
    sums = min(count, case.semantic.train.accumulate) * parameter_term(case).most // PARAMETER_COPIES
    visits = 4 * case.sizes.num_nodes if settings.presample else 0
    return [
        *process_terms(case),
        Term("blocks of sampled batches", waiting * case.block_bytes, "queue", bound=True),
        Term("staged rows of sampled batches", waiting * staged, "queue", bound=True),
        Term("readers of cached rows", reader_bytes(case, samplers) * packed, "io_depth", bound=True),
        Term("rows of the trainers' batches", taken * ready, "trainers", bound=True),
        # Each computes on a thread of its own.
        Term("libraries of further trainers", (trainers - 1) * PRODUCT_BYTES, "trainers", bound=True),
        Term("gradients that an update waits for", sums, "accumulate", bound=True),
        Term("visits of nodes", visits, "presample"),
        *evaluation_terms(case, 0),  # roles keep their rows
        *model_terms(case, trainers, extra_rows=extra_rows),
        *sampler_terms(case, samplers=samplers),
        *(tier_terms(case, 0) if packed else [*row_terms(case), *tier_terms(case)]),
    ]


def distributed_terms(case: Case) -> list[Term]:
    """Returns the terms of `distributed`, of all ranks and of the process that starts them."""
    ranks, packed = case.ranks, case.semantic.train.own_settings.rows == "packed"
    return [
        *([Term(LAUNCHER, LAUNCHER_BYTES)] if ranks > 1 else []),
        *process_terms(case, ranks),
        *(_from_disk_terms(case, ranks) if packed else queue_terms(case, ranks)),
        *model_terms(case, ranks),
        *sampler_terms(case, ranks),
        *row_terms(case),
        Term(RANK_WINDOWS, ranks * RANK_WINDOW_BYTES, bound=True),
        Term("places of rows", ranks * 4 * case.sizes.num_nodes),
        *(_each_tier(case) if packed else _exchange_terms(case)),
    ]


def _exchange_terms(case: Case) -> list[Term]:
    """Returns the terms of rows of other ranks: cached ones, and those that are fetched for a batch."""
    ranks, sizes = case.ranks, case.sizes
    cached = min(tier_rows(sizes, "host")[0], sizes.num_rows)
    fetched = space_for(case.batch.inputs * sizes.row_bytes) if ranks > 1 else 0
    peer = getattr(case.semantic.train.own_settings, "exchange", "") == "peer"
    on_devices, bound = tier_rows(sizes, "device") if peer else (0, False)
    return [
        Term("rows on the ranks' devices", ranks * on_devices * sizes.row_bytes, "[memory] device", bound=bound),
        Term("places of rows on devices", ranks * 4 * sizes.num_nodes if peer else 0),
        Term("cached rows of other ranks", ranks * cached * sizes.row_bytes, "[memory] host", bound=True),
        Term("rows of other ranks for a batch", ranks * fetched, BATCH, bound=True),
    ]


def _each_tier(case: Case) -> list[Term]:
    """Returns the terms of the static tiers, which every rank has."""
    return [term.times(case.ranks) for term in tier_terms(case, 0)]


def fresh_distributed_terms(case: Case) -> list[Term]:
    """Returns the terms of `fresh-distributed`: those of `distributed`, and an arena per rank."""
    settings: Any = case.semantic.train.settings
    return [*distributed_terms(case), *_arena_terms(case, settings, case.ranks)]


def _pruned_terms(case: Case) -> list[Term]:
    blocks = case.batch.block_bytes(case.sizes.id_bytes, 0)
    waiting = case.held(case.shared_bytes(2, blocks), blocks, case.batch.count)
    ready = space_for(case.batch.inputs * case.row_bytes) + case.block_bytes
    return [
        Term("the batch that is trained on", ready, BATCH, bound=not case.batch.exact),
        Term("blocks of sampled batches", (waiting + case.threads) * blocks, "queue", bound=True),
        *evaluation_terms(case, ready),
    ]


def _arena_terms(case: Case, settings: Any, ranks: int = 1) -> list[Term]:
    train, sizes = case.semantic.train, case.sizes
    size, cached = parse_size(settings.arena, sizes.feature_bytes), train.layers - 1
    slots = size // max(1, train.hidden * item_bytes(train)) if cached else 0
    # Places of embeddings and of features, and scores of embeddings.
    each = 4 * cached + 4 * settings.features + 4 * cached * settings.ranked
    index = each * sizes.num_nodes + 16 * slots
    return [
        # Pages that no row has entered take nothing.
        Term("arena", ranks * size, "[train.fresh] arena", bound=True),
        Term("places and scores of the arena's rows", ranks * index),
    ]


def _history_bytes(case: Case) -> int:
    """Returns the bytes of rows between layers that wait for their gradients, and of these."""
    train = case.semantic.train
    return 2 * sum(case.batch.rows[1:-1]) * train.hidden * item_bytes(train)


def reader_bytes(case: Case, loaders: int) -> int:
    """Returns the bytes of the ranges of cached rows that a number of loaders read at once; 0 if the plan has no such rows."""
    plan = case.sizes.artifacts.get("cache_plan")
    cached = plan is None or bool(plan.array("tier_rows")[:, 2].any())
    return loaders * case.execution.io_depth * RANGE_BYTES * cached


def _staged_bytes(case: Case) -> int:
    """Returns the bytes of the staging buffer of the largest batch: its packed chunk, and its cached rows behind."""
    chunks, plan = case.sizes.artifacts.get("packed_chunks"), case.sizes.artifacts.get("cache_plan")
    if chunks is None or plan is None:
        return space_for(case.batch.inputs * (case.sizes.row_bytes + 8))
    cached = plan.array("tier_rows")[:, 2].astype("int64") * case.sizes.row_bytes
    return space_for(int((chunks.array("num_bytes") + cached).max()))
