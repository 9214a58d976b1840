"""Graphs of the I/O savings of `fresh`, and what is made of its time-line."""

import numpy as np
import pytest

from benchmarks.fresh_graphs import banded_edges, hops_from
from benchmarks.fresh_overhead import median_of, phases
from graphmill.kernels.types import Topology


@pytest.mark.parametrize("band", [0, 3, 40])
def test_the_ends_of_an_edge_are_within_the_band_and_drawn_by_weight(band: int) -> None:
    nodes, edges, most = 1_000, 20_000, 400
    src, dst = banded_edges(nodes, edges, band, most, np.random.default_rng(1))
    apart = np.abs(src.astype(np.int64) - dst)
    assert min(src.min(), dst.min()) >= 0 and max(src.max(), dst.max()) < nodes
    assert (apart.max() == band) if band else (apart.max() > 900)
    out = np.bincount(src, minlength=nodes)
    assert out.max() < most / 2 + 5 * np.sqrt(most / 2)  # one direction of the largest expected degree, and chance
    assert np.sort(out)[-50:].sum() > 0.15 * edges  # 5 % of the nodes have three times their share at least
    if not band:
        assert np.corrcoef(out, np.bincount(dst, minlength=nodes))[0, 1] > 0.8


def topology(rows: list[list[int]]) -> Topology:
    degree = np.array([len(row) for row in rows], np.int32)
    indices = np.array([v for row in rows for v in row], np.int32)
    return Topology(indptr=np.append(0, np.cumsum(degree)), indices=indices, in_degree=degree, out_degree=degree)


def test_hops_are_counted_to_the_farthest_node_that_is_reached() -> None:
    path = topology([[1], [0, 2], [1, 3], [2], []])
    assert [hops_from(path, start) for start in range(5)] == [3, 2, 2, 3, 0]
    ring = topology([[(v - 1) % 7, (v + 1) % 7] for v in range(7)])
    assert {hops_from(ring, start) for start in range(7)} == {3}


def test_phases_are_summed_over_lanes_without_waiting_and_lookups_are_taken_out_of_pruning() -> None:
    busy = {"step": {"wait": 9.0, "train": 2.0}, "sampler 0": {"sample": 0.5}, "sampler 1": {"sample": 0.25}}
    assert phases(busy, 0.0) == {"train": 2.0, "sample": 0.75}
    assert phases(busy | {"pruner": {"prune": 1.0}}, 0.25) == {
        "train": 2.0,
        "sample": 0.75,
        "prune": 0.75,
        "lookup": 0.25,
    }


def test_repeated_measurements_have_the_median_of_each_phase() -> None:
    rows = [{"seconds": total, "phases": {"train": total - 1, "sample": 5 - total}} for total in (3.0, 1.0, 4.0)]
    assert median_of(rows) == {"seconds": 3.0, "phases": {"train": 2.0, "sample": 2.0}}
    assert median_of([{"seconds": 2.0}, {"seconds": 1.0}]) == {"seconds": 1.5}
