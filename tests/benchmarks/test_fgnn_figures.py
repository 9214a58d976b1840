"""Numbers of FGNN's figures that are computed from recorded counts."""

import numpy as np
import pytest

from benchmarks.extract import hit_ratio
from benchmarks.factored_bytes import hits_by_width
from benchmarks.factored_dgl import check, summed
from benchmarks.hotness import SEED, cases, tenths, train_nodes
from graphmill.kernels.graph.generate import citation_labels


def test_hit_ratio_by_width_is_the_share_of_bytes_that_are_not_moved() -> None:
    # 10 input rows: of 2 columns 80 bytes, of 4 columns 160.
    counted = {"inputs": 10, "widths": [{"policy": "degree", "widths": (2, 4), "bytes": [20, 120]}]}
    assert hits_by_width(counted) == {"degree": [75.0, 25.0]}


def test_hits_of_a_tenth_are_those_of_the_last_full_row() -> None:
    def row(scale: str, best: float, share: float) -> dict:
        names = ("random", "pagerank", "degree", "presample#1", "bayes#1")
        shares = {name: [0, 0, share, 0] for name in names}
        return {
            "scale": scale,
            "cases": [{"case": "a", "optimal_hit_ratio": [0, 0, best, 0], "share_of_optimal": shares}],
        }

    rows = [row("full", 0.9, 0.1), row("full", 0.4, 0.5), row("quick", 0.2, 0.3)]
    found = tenths(rows, {"graph": "a"})["graph"]
    assert found["optimal"] == 40 and found["degree"] == 20


def test_replicas_add_their_stages_and_take_the_longest_epoch() -> None:
    answers = [{"seconds": 2.0, "sample": 1.0, "bytes": 5.0}, {"seconds": 3.0, "sample": 0.5, "bytes": 6.0}]
    assert summed(answers) == {"seconds": 3.0, "sample": 1.5, "bytes": 11.0}


def test_epochs_that_need_other_rows_are_no_comparison() -> None:
    ours = {"weights": "a", "rows": 100.0, "bytes": 400.0}
    check({"1: no cache": [ours], "1: DGL": [{"rows": 101.0, "bytes": 404.0}]}, ("rows", "bytes"))
    with pytest.raises(AssertionError, match="bytes"):
        check({"1: no cache": [ours], "1: DGL": [{"rows": 101.0, "bytes": 440.0}]}, ("rows", "bytes"))
    with pytest.raises(AssertionError, match="different weights"):
        check({"1: no cache": [ours], "1: cache": [ours | {"weights": "b"}], "1: DGL": [ours]}, ())


def test_hits_are_counted_over_all_rows_of_all_batches() -> None:
    batches = [np.array([0, 1, 2]), np.array([2])]
    assert hit_ratio(batches, np.array([2, 9])) == 0.5
    assert hit_ratio(batches, np.empty(0, np.int64)) == 0


def test_training_nodes_of_one_class_are_all_of_it() -> None:
    (case,) = cases("one-class", (0.011,), 200, ((10, 10),))
    ids = train_nodes(case, 10_000)
    assert len(np.unique(ids)) == 110 and not citation_labels(10_000, 50, SEED)[ids].any()
