"""Rows that the breakdown of full-graph epochs counts by sets, and how it sums a time-line."""

import numpy as np
import pytest

from benchmarks.fullgraph import Case, InMemory
from benchmarks.fullgraph_breakdown import by_kind, link_bytes, modes, needed_rows, spent
from benchmarks.fullgraph_memory import counted
from benchmarks.whole_graphs import made_topology
from graphmill.kernels.chunks.counts import StepCounts, count_step
from graphmill.kernels.chunks.steps import chunk_steps


def test_rows_by_sets_are_those_of_the_steps() -> None:
    src, dst = np.random.default_rng(0).integers(0, 200, (2, 900)).astype(np.int32)
    topology = made_topology(src, dst, 200)
    part_of = (np.arange(200) * 3 // 200).astype(np.int32)
    steps = chunk_steps(topology.indptr, topology.indices, part_of, 3, chunks_per_part=4)
    counts = StepCounts.of(np.array([[count_step(each) for each in devices] for devices in steps], np.int64))
    found = needed_rows(InMemory(steps))
    assert found == {"vanilla": counts.v_ori, "p2p": counts.v_p2p, "p2p+reuse": counts.v_ru}
    assert found["vanilla"] > found["p2p"] > found["p2p+reuse"] >= 200


def test_kinds_of_work_add_up_to_the_epoch() -> None:
    busy = {
        "device 0": {"h2d": 1.0, "d2h": 0.5, "compute": 2.0},
        "device 1": {"d2d": 0.25},
        "step": {"accumulate": 0.125},
    }
    found = by_kind({"seconds": 5.0, "busy_seconds": busy})
    assert found == pytest.approx({"H2D": 1.5, "D2D": 0.25, "GPU": 2.0, "CPU": 0.125, "rest": 1.125})


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_a_pass_in_chunks_is_that_of_the_uncut_graph_and_is_counted(model: str) -> None:
    src, dst = np.random.default_rng(1).integers(0, 300, (2, 2000)).astype(np.int32)
    case = Case(made_topology(src, dst, 300), model, width=12)
    run = case.compared(case.cut(case.steps(2, 3), kept=model != "gat"))
    assert link_bytes(run)["neighbour_bytes"] > 0
    assert spent(run)["GPU"] > 0
    found = counted(case)
    assert 0 < found["chunks"] < found["uncut"] * 2


def test_modes_of_a_breakdown_move_the_rows_that_are_counted_by_sets() -> None:
    src, dst = np.random.default_rng(2).integers(0, 200, (2, 900)).astype(np.int32)
    case = Case(made_topology(src, dst, 200), "gcn", width=12)
    found = {row["mode"]: row for row in modes(case, case.steps(3, 2))}
    assert found["p2p+reuse"]["neighbour_bytes"] < found["p2p"]["neighbour_bytes"] < found["vanilla"]["neighbour_bytes"]
