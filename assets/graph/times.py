"""Times of edges and of seeds, which a graph keeps for `before` of [sampling] (kernels/temporal/sampler.py).

Numbers are kept as the source has them, dates as microseconds since 1970; both are float64. Units cannot be seen in numbers, but seconds
beside milliseconds can: some times are then at least 512 times all others, and nothing lies between. One wrong date among many is not
taken for a unit.

Cost: one pass over the edges before they are compressed, in slices.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Check
from graphmill.assets.graph.checks import SLICE_EDGES
from graphmill.assets.sources.interface import GraphConfig, RawGraph
from graphmill.assets.sources.spool import SORT_BYTES, EdgeColumns, EdgeSpool
from graphmill.assets.tasks.links import Links
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

TIMES = {"time_column", "time", "node_time", "node_time_column"}
"""Keys of [graph] that name times."""
EARLY = "seeds come after edges"
"""Name of the check that only graphs with times of seeds have."""
LATER = "seeds see the past alone"
"""Name of the check of graphs whose source tells times that [sampling] does not ask for."""
SAYS = {
    EARLY: "Every seed is later than the earliest edge. One that is not has no neighbours as of its time.",
    LATER: "No edge into a seed is later than the seed: a score may be read from such edges, which a prediction does not have.",
}
TWO_UNITS = 9
"""Empty powers of two between the times of two units: 1,000 milliseconds are a second."""
LEAST_POWER = 13
"""Times below this power of two are numbers of steps, which may be few."""
SHARE = 0.01
"""Least share of the edges or of the seeds whose times make a unit."""


def asks_times(raw: Mapping[str, Any]) -> bool:
    """Returns whether [sampling] of a pipeline file, as it is written, asks for times."""
    sampling = raw.get("sampling")
    return isinstance(sampling, Mapping) and "before" in sampling


def spooled(raw: RawGraph, config: GraphConfig, folder: Path) -> EdgeSpool:
    """Returns the edges that a source holds in memory as a spool with their times; releases them."""
    assert raw.edge_marks is not None, "the source gives times"
    spool = EdgeSpool(folder, raw.num_nodes, EdgeColumns(times=True), undirected=config.undirected)
    spool.append(raw.src, raw.dst, mark=raw.edge_marks.values)
    raw.memory_bytes = SORT_BYTES * len(raw.src) * (2 if config.undirected else 1)
    raw.src = raw.dst = np.zeros(0, raw.src.dtype)
    return spool


def require_times(raw: RawGraph, seeds: Array) -> None:
    """Raises InputError if a seed of seeds ids[n] has no time; nothing is asked of a graph without times of nodes."""
    if raw.node_times is None:
        return
    lacking = seeds[~np.isfinite(raw.node_times[seeds])]
    if len(lacking):
        node = int(lacking.min())
        named = node if raw.original_ids is None else raw.original_ids[node]
        problem = f"node {named} is a seed and has no time; {len(lacking):,} of {len(seeds):,} seeds have none"
        raise InputError(problem, "give each node of the split its time, or leave it out of the split")


def _require_one_unit(of_edges: Array, of_seeds: Array) -> None:
    """Raises InputError if times of edges and seeds, i64[POWERS] each by their power of two, are of two units."""
    counts = np.stack([of_edges, of_seeds])
    occupied = np.flatnonzero(counts.any(axis=0))
    for low, high in pairwise(occupied.tolist()):
        sides = np.stack([counts[:, : low + 1].sum(axis=1), counts[:, high:].sum(axis=1)])
        large = sides >= SHARE * np.maximum(sides.sum(axis=0), 1)
        if low >= LEAST_POWER and high - low > TWO_UNITS and large.any(axis=1).all():
            found = [f"{edges:,} edges and {seeds:,} seeds" for edges, seeds in sides.tolist()]
            below, above = f"{2.0 ** (low + 1):.3g}", f"{2.0**high:.3g}"
            problem = (
                f"times are of two units: those of {found[0]} are below {below}, those of {found[1]} from {above} on"
            )
            raise InputError(problem, "write all times in one unit, or all as dates")


POWERS = 1 << 11
"""Powers of two of float64."""


def _powers(times: Array) -> Array:
    """Returns i64[POWERS], the number of times above 1 by their power of two."""
    return np.bincount(np.frexp(times[times >= 1])[1] - 1, minlength=POWERS)


def _edge_times(raw: RawGraph, config: GraphConfig) -> Iterator[Array]:
    """Yields f64[n], the times of the edges as the source has them, without self-loops that are dropped."""
    drop = config.self_loops == "drop"
    if raw.spool is not None:
        for records in raw.spool.batches():
            yield records["time"][records["src"] != records["dst"]] if drop else records["time"]
        return
    assert raw.edge_marks is not None, "the source gives times"
    for low in range(0, len(raw.src), SLICE_EDGES):
        own = slice(low, low + SLICE_EDGES)
        times = raw.edge_marks.values[own]
        yield times[raw.src[own] != raw.dst[own]] if drop else times


def times_found(
    raw: RawGraph, config: GraphConfig, seeds: Array, links: Links | None
) -> tuple[dict[str, Any], list[Check]]:
    """Returns the numbers and the checks of a graph about its times, before its edges are compressed; none without times.

    Raises:
        InputError: times of edges and of seeds, nodes ids[n] or links, are of two units.
    """
    if not config.times:
        return {}, []
    powers, ends = np.zeros(POWERS, np.int64), list[tuple[float, float]]()
    for times in _edge_times(raw, config):
        powers += _powers(times)
        ends += [(float(times.min()), float(times.max()))] if len(times) else []
    of_seeds = raw.node_times[seeds] if raw.node_times is not None else None if links is None else links.times
    if of_seeds is not None:
        _require_one_unit(powers, _powers(of_seeds))
    first, last = (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0.0, 0.0)
    numbers = {"edge_times": [first, last]}
    return numbers, [] if raw.node_times is None else [_early_check(first, raw.node_times[seeds])]


def later_check(raw: RawGraph, seeds: Array) -> Check:
    """Warns of edges into seeds ids[n] that are not earlier than the seed, of a source that tells times."""
    assert raw.edge_marks is not None and raw.node_times is not None
    asked = np.full(raw.num_nodes, np.nan)
    asked[seeds] = raw.node_times[seeds]
    into = asked[raw.dst]
    later, of = int(np.count_nonzero(raw.edge_marks.values >= into)), int(np.count_nonzero(~np.isnan(into)))
    leak = ': a score may be a leak; set before = "seed" in [sampling]' if later else ""
    return Check(
        name=LATER,
        passed=not later,
        detail=f"{later:,} of {of:,} edges into seeds are not earlier than the seed{leak}",
        numbers={"edges not earlier than their seed": later, "expected": 0},
        blocking=False,
    )


def _early_check(first: float, seed_times: Array) -> Check:
    """Warns of seeds that are not later than the earliest edge, of the time `first`; `seed_times` f64[n]."""
    early = int(np.count_nonzero(seed_times <= first))
    return Check(
        name=EARLY,
        passed=not early,
        detail=f"{early:,} of {len(seed_times):,} seeds are not later than the earliest edge, and have no neighbours",
        numbers={"seeds without an earlier edge": early, "expected": 0},
        blocking=False,
    )
