"""The rows and bytes that stored batches take from packed chunks, by the cache plan and the samples; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from assets.samples.read import Samples, open_samples
from assets.storage.artifact import Artifact
from kernels.rows.pages import PAGE_BYTES, padded_bytes
from kernels.types import Array
from trainers.batches.stored import batch_uses, require_samples
from trainers.recipe.forecast import Outlook
from trainers.recipe.need import tier_rows
from trainers.techniques.row_links import epoch_edges, epoch_inputs


class StoredVolumes(NamedTuple):
    """Volumes of stored batches.

    Attributes:
        rows: tier, by its name in the ledger -> rows.
        disk: kind -> bytes that are read from disk.
        read_bytes: bytes of the rows that are asked of the disk.
        to_device: bytes of the rows of all tiers.
    """

    rows: Mapping[str, int]
    disk: Mapping[str, int]
    read_bytes: int
    to_device: int


def stored_volumes(samples: Samples, plan: Artifact, chunks: Artifact, times: Array, row_bytes: int) -> StoredVolumes:
    """Returns the volumes of a number of uses of each stored batch.

    Args:
        samples, plan, chunks: stored batches, and the artifacts of their cache plan and packed chunks.
        times: i64[B], how often each batch is used.
        row_bytes: bytes of a row.
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


def stored_links(outlook: Outlook, *, topology: bool) -> tuple[Mapping[str, float], bool]:
    """Returns (link -> bytes of an epoch on packed rows, whether they are exact).

    Args:
        outlook: the training.
        topology: whether the records of batches are read past the page cache, too.

    Raises:
        InputError: the stored batches are not those of the training, or too few.
    """
    found = outlook.artifacts
    if not {"samples", "cache_plan", "packed_chunks"} <= found.keys() or outlook.plan is None:
        return _expected(outlook, topology), False
    semantic, samples = outlook.case.semantic, open_samples(found["samples"], parts=())
    sampling, epochs = semantic.sampling, semantic.train.epochs
    assert sampling is not None
    require_samples(samples, outlook.plan, epochs, sampling, semantic.sampling_seed)
    times = batch_uses(outlook.plan, epochs, samples)
    row_bytes = outlook.sizes.row_bytes
    volumes = stored_volumes(samples, found["cache_plan"], found["packed_chunks"], times, row_bytes)
    read = sum(num_bytes for kind, num_bytes in volumes.disk.items() if topology or kind != "topology")
    on_device = volumes.rows["hits_device"] * row_bytes
    links = {"disk": read, "h2d": volumes.to_device - on_device, "d2d": on_device}
    return {link: num_bytes / epochs for link, num_bytes in links.items()}, True


def _expected(outlook: Outlook, topology: bool) -> Mapping[str, float]:
    """Returns the same of batches that are not packed yet: rows of both caches by hotness, all others from packed chunks."""
    assert outlook.drawn is not None
    sizes, drawn, inputs = outlook.sizes, outlook.drawn, epoch_inputs(outlook)
    ids = padded_bytes(np.array([4 * drawn.inputs])).item() * drawn.count
    shares = _tier_shares(outlook)
    packed = inputs * (1 - sum(shares)) * sizes.row_bytes
    records = topology * (4 * epoch_edges(outlook) + sizes.id_bytes * inputs)
    half_pages = drawn.count * PAGE_BYTES / 2
    return {
        "disk": packed + ids + records + half_pages,
        "h2d": inputs * (1 - shares[0]) * sizes.row_bytes,
        "d2d": inputs * shares[0] * sizes.row_bytes,
    }


def _tier_shares(outlook: Outlook) -> tuple[float, float]:
    """Returns the shares of input rows on the device and on the host, by the visits of drawn batches."""
    drawn, sizes = outlook.drawn, outlook.sizes
    device, host = (tier_rows(sizes, level)[0] for level in ("device", "host"))
    if drawn is None or not drawn.blocks or outlook.order is None:
        return 0.0, 0.0
    place = np.empty(sizes.num_nodes, np.int64)
    place[np.asarray(outlook.order)] = np.arange(sizes.num_nodes)
    places = np.concatenate([place[blocks[0].src_ids] for blocks in drawn.blocks])
    on_device, on_host = np.mean(places < device), np.mean((places >= device) & (places < device + host))
    return float(on_device), float(on_host)
