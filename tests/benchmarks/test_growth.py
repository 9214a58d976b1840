"""The table of the big run's growth, from the rows that it recorded."""

import json
from typing import Any

import numpy as np

from benchmarks.growth import last_rows, seconds_of, table
from benchmarks.subset import walked
from graphmill.kernels.types import Topology


def row(scale: float, seconds: float) -> dict[str, Any]:
    return {
        "scale": scale,
        "size": {"nodes": int(64 * scale), "edges": int(64e6 * scale)},
        "stages": {"graph": {"seconds": seconds}},
        "epoch_seconds": {"disk": 2 * seconds, "dgl": 1.0},
        "commands": {"graph": {"anonymous_bytes": int(640 * scale) << 20}},
    }


def test_of_each_scale_the_last_row_counts_in_microseconds_per_edge():
    rows = last_rows("\n".join(json.dumps(each) for each in (row(1 / 8, 4.0), row(1 / 64, 9.0), row(1 / 64, 1.0))))
    assert list(rows) == [1 / 64, 1 / 8]
    assert seconds_of(rows[1 / 8]) == {"graph": 4.0, "disk, an epoch": 8.0}
    lines = table(rows).splitlines()
    assert lines[0] == "| microseconds per edge | 1/64 | 1/8 |"
    assert lines[2:4] == ["| graph | 1.000 | 0.500 |", "| disk, an epoch | 2.000 | 1.000 |"]
    assert lines[-1] == "| graph | 10 | 80 |"


def test_a_walk_counts_the_nodes_below():
    indptr, indices = np.array([0, 1, 2, 2, 2]), np.array([1, 2], np.int32)  # 2 -> 1 -> 0, and 3 alone
    degrees = np.diff(indptr).astype(np.int32)
    topology = Topology(indptr=indptr, indices=indices, in_degree=degrees, out_degree=degrees)
    assert walked(topology, np.array([0]), 1) == (2, 1)
    assert walked(topology, np.array([0, 3]), 2) == (4, 3, 2)
