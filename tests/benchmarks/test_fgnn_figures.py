"""Numbers of FGNN's figures that are computed from recorded counts."""

from benchmarks.factored_bytes import hits_by_width
from benchmarks.hotness import tenths


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
