"""The rows of a full-graph pass before it runs: how many enter buffers, and how many of the features come from tiers (tiers.py).

The share of a tier is that of the nodes whose rows lie in it. It counts a row as often as the mean one, and tiers hold those that are
loaded most, so with even parts a pass moves no more than that over the link.
"""

from math import ceil
from typing import NamedTuple

from graphmill.assets.chunks.read import cut_of, open_chunks
from graphmill.assets.costs.needs import Term
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.memory import tier_rows


class PassVolumes(NamedTuple):
    """Rows of a pass over all chunks.

    Attributes:
        loaded: rows that come from the host.
        fetched: rows that come from the buffers of other parts.
        exact: whether the chunks are cut.
    """

    loaded: int
    fetched: int
    steps: int
    parts: int
    exact: bool


def volumes(case: Case) -> PassVolumes:
    """Returns the rows of a pass: counted ones, or those of even chunks each of whose edges brings another row, up to all nodes."""
    sizes, mode = case.sizes, case.settings.mode
    if "chunks" in sizes.artifacts:
        chunks = open_chunks(sizes.artifacts["chunks"])
        counts = chunks.counts
        volume = {"vanilla": counts.v_ori, "p2p": counts.v_p2p, "p2p+reuse": counts.v_ru}[mode]
        # Rows that a part has already from the step before are fetched anew unless they are reused.
        fetched = {"vanilla": 0, "p2p": int(counts.copies.sum()), "p2p+reuse": int(counts.fetched.sum())}[mode]
        return PassVolumes(volume, fetched, chunks.chunks_per_part, chunks.num_parts, True)
    parts, each = cut_of(sizes)
    steps = parts * each
    rows = steps * min(sizes.num_nodes, ceil((sizes.num_edges + sizes.num_nodes) / steps))
    loaded = rows if mode == "vanilla" else min(rows, rows // parts + sizes.num_nodes)
    return PassVolumes(loaded, 0 if mode == "vanilla" else rows - loaded, each, parts, False)


class TierRows(NamedTuple):
    """Rows of all tiers of a kind together, and whether they are a bound."""

    rows: int
    bound: bool


def held_rows(case: Case) -> dict[str, TierRows]:
    """Returns the rows of the tiers "device" and "host" of all devices and ranks: distinct ones, but in mode vanilla."""
    sizes, devices = case.sizes, num_devices(case)
    most = sizes.num_rows * (devices if case.settings.mode == "vanilla" else 1)
    found, left = {}, most
    tiers = case.execution.cache != "none" and case.settings.mode != "device"
    for level, budgets in (("device", devices), ("host", case.ranks)):
        rows, bound = tier_rows(sizes, level) if tiers else (0, False)
        if level == "host" and case.execution.features == "memory":
            rows = 0  # beside a table in memory the host caches nothing
        found[level] = TierRows(min(left, budgets * rows), bound)
        left -= found[level].rows
    return found


def shares(case: Case) -> tuple[float, float]:
    """Returns the shares in [0, 1] of the feature rows of a pass that come from a device's tier, and from the host's."""
    copies = num_devices(case) if case.settings.mode == "vanilla" else 1
    held = held_rows(case)
    device, host = (held[level].rows / max(1, copies * case.sizes.num_rows) for level in ("device", "host"))
    return device, host


def held_terms(case: Case) -> list[Term]:
    """Returns the terms of the tiers, and of the places of nodes for each device."""
    found = [
        Term(f"rows in the {level} cache", tier.rows * case.sizes.row_bytes, f"[memory] {level}", tier.bound)
        for level, tier in held_rows(case).items()
    ]
    slots = Term("slots of nodes", 4 * num_devices(case) * case.sizes.num_nodes)
    return [*found, slots] if any(term.most for term in found) else []


def num_devices(case: Case) -> int:
    """Returns the number of devices of all ranks: one for each part on the CPU, and of accelerators one for each rank, if not given."""
    if case.settings.devices:
        return case.settings.devices
    if case.semantic.train.device != "cpu":
        return case.ranks
    artifacts = case.sizes.artifacts
    return open_chunks(artifacts["chunks"]).num_parts if "chunks" in artifacts else cut_of(case.sizes)[0]
