"""What trainings on stored batches with packed chunks take, by the cache plan and the samples: memory, rows and bytes; without torch.

`DISK` is what a training by `disk` takes: a third of the queue each for graphs, staged rows and input rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graphmill.assets.cache_plan.read import open_placement
from graphmill.assets.costs.needs import Term
from graphmill.assets.features.config import of_edges
from graphmill.assets.samples.read import Samples, open_samples
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.rows.direct_io import ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.types import Array
from graphmill.trainers.batches.stored import batch_uses, require_samples
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.edge_rows import packs_edges, rows_of_batch
from graphmill.trainers.recipe.costs.forecast import Costs, Links, Seconds
from graphmill.trainers.recipe.costs.memory import (
    BATCH,
    evaluation_terms,
    model_terms,
    process_terms,
    sampler_terms,
    source_terms,
)
from graphmill.trainers.rows.packed_loader import MOST_WAITING, NUM_LOADERS, NUM_QUEUES
from graphmill.trainers.techniques.batch_costs import (
    BEHIND,
    CHUNK_PASSES,
    DEVICE,
    HOST,
    Pieces,
    added,
    by_hotness,
    edge_links,
    epoch_edge_rows,
    epoch_edges,
    epoch_inputs,
    evaluated,
)


class StoredVolumes(NamedTuple):
    """Volumes of stored batches."""

    # Tier, by its name in the ledger -> rows.
    rows: Mapping[str, int]
    # Kind -> bytes that are read from disk.
    disk: Mapping[str, int]
    # Bytes of the rows that are asked of the disk.
    read_bytes: int
    # Bytes of the rows of all tiers.
    to_device: int


def stored_volumes(samples: Samples, plan: Artifact, chunks: Artifact, times: Array, row_bytes: int) -> StoredVolumes:
    """Returns the volumes of a number of uses of each stored batch.

    Args:
        samples, plan, chunks: stored batches, and the artifacts of their cache plan and packed chunks.
        times: i64[B], how often each batch is used.
    """
    tiers = np.asarray(plan.array("tier_rows")).astype(np.int64)
    device, host, cached, packed = (tiers * times[:, None]).sum(axis=0).tolist()
    sections = padded_bytes(tiers[:, 3] * row_bytes)
    pages = np.asarray(plan.array("pages")) * PAGE_BYTES
    moved = {
        "feature": sections + pages,
        "ids": np.asarray(chunks.array("num_bytes")) - sections,
        "topology": np.asarray(samples.num_bytes),
    }
    rows = {"hits_device": device, "hits_host": host, "hits_disk_cache": cached, "hits_packed": packed}
    return StoredVolumes(
        rows=rows,
        disk={kind: int((num_bytes * times).sum()) for kind, num_bytes in moved.items()},
        read_bytes=(cached + packed) * row_bytes,
        to_device=sum(rows.values()) * row_bytes,
    )


def stored_links(case: Case, *, topology: bool) -> tuple[Mapping[str, float], bool]:
    """Returns (link -> bytes of an epoch on packed rows, whether they are exact).

    Args:
        topology: whether the records of batches are read past the page cache, too.

    Raises:
        InputError: the stored batches are not those of the training, or too few.
    """
    volumes, epochs, exact = _volumes(case)
    read = sum(num_bytes for kind, num_bytes in volumes.disk.items() if topology or kind != "topology")
    on_device = volumes.rows["hits_device"] * case.sizes.row_bytes
    links = {"disk": read, "h2d": volumes.to_device - on_device, "d2d": on_device}
    found = {link: num_bytes / epochs for link, num_bytes in links.items()}
    if not case.semantic.train.edge_features:
        return found, exact
    packed = packs_edges(case.sizes)
    return added(found, _packed_edge_links(case) if packed else edge_links(case)), exact and packed


def _packed_edge_links(case: Case) -> dict[str, float]:
    """Returns link -> bytes of an epoch's packed rows of edges: of the artifacts, else all rows from chunks."""
    plan, chunks = (of_edges(stage) for stage in ("cache_plan", "packed_chunks"))
    row_bytes, found = case.sizes.edge_row_bytes, case.artifacts
    if {"samples", plan, chunks} <= found.keys() and case.plan is not None:
        samples, epochs = open_samples(found["samples"], parts=()), case.semantic.train.epochs
        times = batch_uses(case.plan, epochs, samples)
        volumes = stored_volumes(samples, found[plan], found[chunks], times, row_bytes)
        read = volumes.disk["feature"] + volumes.disk["ids"]
        return {"disk": read / epochs, "h2d": volumes.to_device / epochs}
    assert case.drawn is not None
    rows, count = epoch_edge_rows(case), case.drawn.count
    sections = padded_bytes(np.array([4 * rows / count, rows / count * row_bytes])).sum()
    return {"disk": float(sections) * count, "h2d": rows * row_bytes}


def pruned_links(
    case: Case, whole: Sequence[Array], left: Sequence[Array], chances: Sequence[Array]
) -> dict[str, float]:
    """Returns link -> bytes of an epoch on packed rows of which only some are read: those of each tier by the share that is left.

    A page is read if one of its rows is left, so that few pages are spared where a page has several rows of a batch, unless rows that
    are seldom read stand side by side (assets/packed_chunks/expected_reads.py). Errors are those of `stored_links`.

    Args:
        whole: ids[n] of drawn batches: the nodes whose rows they have.
        left: those of them that are read.
        chances: f64[n], the chance of each row of `whole` that it is read.
    """
    volumes, epochs, _ = _volumes(case)
    tiers, row_bytes = _tiers(case), case.sizes.row_bytes
    behind, device, host = (_counted(tiers, left) / np.maximum(1, _counted(tiers, whole))).tolist()
    rows = volumes.rows
    from_disk = rows["hits_disk_cache"] + rows["hits_packed"]
    touched = from_disk * (PAGE_BYTES + row_bytes - 1) / PAGE_BYTES
    rows_of_page = max(1.0, touched / max(1.0, volumes.disk["feature"] / PAGE_BYTES))
    pages = 1 - (1 - behind) ** rows_of_page
    if "packed_chunks" in case.artifacts and case.artifacts["packed_chunks"].config.get("order") == "reads":
        behind_tiers = [each[tiers[ids] == BEHIND] for each, ids in zip(chances, whole, strict=True)]
        pages = min(pages, _pages_read(behind_tiers, rows_of_page))
    found = {
        "disk": volumes.disk["ids"] + volumes.disk["feature"] * pages,
        "h2d": (rows["hits_host"] * host + from_disk * behind) * row_bytes,
        "d2d": rows["hits_device"] * device * row_bytes,
    }
    return {link: num_bytes / epochs for link, num_bytes in found.items()}


def _pages_read(chances: Sequence[Array], rows_of_page: float) -> float:
    """Returns the expected share of pages that are read if rows stand by falling chance, f64[n] of each batch."""
    each, shares = max(1, round(rows_of_page)), []
    for chance in chances:
        falling = np.concatenate([np.sort(chance)[::-1], np.zeros(-len(chance) % each)])
        shares.append(1 - np.prod(1 - falling.reshape(-1, each), axis=1))
    pages = np.concatenate([np.zeros(0), *shares])
    return float(pages.mean()) if len(pages) else 0.0


def _volumes(case: Case) -> tuple[StoredVolumes, int, bool]:
    """Returns (volumes of a training, its number of epochs, whether they are exact)."""
    found = case.artifacts
    if not {"samples", "cache_plan", "packed_chunks"} <= found.keys() or case.plan is None:
        return _expected(case), 1, False
    semantic, samples = case.semantic, open_samples(found["samples"], parts=())
    sampling, epochs = semantic.sampling, semantic.train.epochs
    assert sampling is not None
    require_samples(samples, case.plan, epochs, sampling, semantic.sampling_seed)
    times = batch_uses(case.plan, epochs, samples)
    volumes = stored_volumes(samples, found["cache_plan"], found["packed_chunks"], times, case.sizes.row_bytes)
    return volumes, epochs, True


def _expected(case: Case) -> StoredVolumes:
    """Returns the same of an epoch that is not packed yet: rows of both caches by hotness, all others from packed chunks."""
    assert case.drawn is not None
    sizes, drawn, inputs = case.sizes, case.drawn, epoch_inputs(case)
    counts = _counted(_tiers(case), (blocks[0].src_ids for blocks in drawn.blocks))
    packed, device, host = np.rint(inputs * counts / max(1, counts.sum())).astype(int).tolist()
    disk = {
        "feature": packed * sizes.row_bytes + drawn.count * PAGE_BYTES // 2,
        "ids": padded_bytes(np.array([4 * drawn.inputs])).item() * drawn.count,
        "topology": round(4 * epoch_edges(case) + sizes.id_bytes * inputs),
    }
    rows = {"hits_device": device, "hits_host": host, "hits_disk_cache": 0, "hits_packed": packed}
    to_device = sum(rows.values()) * sizes.row_bytes
    return StoredVolumes(rows=rows, disk=disk, read_bytes=packed * sizes.row_bytes, to_device=to_device)


def _tiers(case: Case) -> Array:
    """Returns u8[N], `BEHIND`, `DEVICE` or `HOST` for each node: by the cache plan, or by hotness where there is none yet."""
    found = np.zeros(case.sizes.num_nodes, np.uint8)
    if "cache_plan" in case.artifacts:
        placement = open_placement(case.artifacts["cache_plan"])
        found[placement.device_ids], found[placement.host_ids] = DEVICE, HOST
        return found
    return found if case.order is None else by_hotness(case)


def _counted(tiers: Array, batches: Iterable[Array]) -> Array:
    """Returns i64[3], the rows of batches, ids[n] each, in each tier."""
    return sum((np.bincount(tiers[ids], minlength=3) for ids in batches), np.zeros(3, np.int64))


def from_disk_terms(case: Case) -> list[Term]:
    """Returns the terms of batches whose graphs and rows are read from disk, by each rank."""
    staged, blocks = staged_bytes(case), case.block_bytes
    if packs_edges(case.sizes):
        staged += staged_bytes(case, edges=True)
    else:
        blocks += case.edge_bytes
    most, sure = MOST_WAITING + 1, case.batch.exact
    each = (
        Term("staged rows of batches in work", staged, BATCH, bound=not sure),
        Term(
            "staged rows that wait", (_waiting(case, staged, most + NUM_LOADERS) - 1) * staged, "queue", bound=not sure
        ),
        Term("inputs of batches", _inputs_bytes(case), "queue", bound=not sure),
        Term("blocks of batches", (1 + _waiting(case, blocks, most)) * blocks, "queue", bound=True),
        Term("readers of cached rows", reader_bytes(case, NUM_LOADERS), "io_depth", bound=True),
    )
    return [term.times(case.ranks) for term in each]


def _inputs_bytes(case: Case) -> int:
    """Returns the bytes of the inputs of batches that are ready, with the one in work, by each rank."""
    ready = space_for(case.batch.inputs * case.row_bytes) + space_for(case.edge_bytes) * packs_edges(case.sizes)
    return _waiting(case, ready, MOST_WAITING + 1) * ready


def _waiting(case: Case, each: int, most: int) -> int:
    """Returns the batches in a queue of items of `each` bytes, with the one in work."""
    return case.held(case.shared_bytes(NUM_QUEUES, each), each, most)


def reader_bytes(case: Case, loaders: int) -> int:
    """Returns the bytes of the ranges of cached rows that a number of loaders read at once; 0 if the plan has no such rows."""
    roles = ["cache_plan", *([of_edges("cache_plan")] if packs_edges(case.sizes) else [])]
    plans = [case.artifacts.get(role) for role in roles]
    cached = sum(plan is None or bool(plan.array("tier_rows")[:, 2].any()) for plan in plans)
    return loaders * case.execution.io_depth * ReadExecution.range_pages * PAGE_BYTES * cached


def staged_bytes(case: Case, *, edges: bool = False) -> int:
    """Returns the bytes of the staging buffer of the largest batch: its packed chunk, and its cached rows behind; or of rows of edges."""
    sizes = case.sizes
    rows, row_bytes = case.batch.inputs, sizes.row_bytes
    roles: tuple[str, ...] = ("packed_chunks", "cache_plan")
    if edges:
        rows, row_bytes, roles = rows_of_batch(case.batch, sizes), sizes.edge_row_bytes, tuple(map(of_edges, roles))
    chunks, plan = map(case.artifacts.get, roles)
    if chunks is None or plan is None:
        return space_for(rows * (row_bytes + 8))
    cached = plan.array("tier_rows")[:, 2].astype("int64") * row_bytes
    return space_for(int((chunks.array("num_bytes") + cached).max()))


def _memory(case: Case) -> list[Term]:
    return [
        *process_terms(case),
        *from_disk_terms(case),
        *evaluation_terms(case, _inputs_bytes(case)),
        *model_terms(case),
        *sampler_terms(case),
        *source_terms(case, packed=True),
    ]


def _links(case: Case) -> Links:
    return stored_links(case, topology=True)


def _seconds(case: Case) -> Seconds:
    each = Pieces(case)
    # Chunks are compared with their digest and gathered: two passes over the rows. What is read directly takes the cores, too.
    links = _links(case)[0]
    ahead = each.prepare(1) + CHUNK_PASSES * each.gather(1) + each.disk(links)
    beside = ahead / NUM_LOADERS, each.crossing(links), each.step(each.threads)
    if case.semantic.train.edge_features and not packs_edges(case.sizes):
        # The one thread that loads graphs gathers them.
        beside += (each.prepare(1) + each.gather_edges(1) + each.edges_read(),)
    return each.named(), each.side_by_side(*beside, work=ahead + each.step_work)


DISK = Costs(memory=_memory, links=_links, seconds=_seconds, evaluated=evaluated)
