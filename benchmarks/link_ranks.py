"""Exact filtered ranks: their processor seconds beside those of the products alone, and their memory beside the formula's.

10,000 edges are ranked among all candidates of 128 columns, with known edges left out. The products alone are those of all edges with as
many candidates at a time, into memory that is reused; nothing looks at the scores. Both are of one process in drawn order; seconds are
those of the processor, of all threads. Some ranks are compared with those of scores in float64 first.

Memory is the highest resident set of a process of its own, less what it had before the rows of the candidates came.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import in_turn, record
from graphmill.assets.building.child import child_environment
from graphmill.kernels.links.triples import KnownEdges, Triples

PAIRS, CANDIDATES, COLUMNS, CHECKED = 10_000, 1_000_000, 128, 20
MOST_RATIO, MOST_BYTES = 1.5, 512 << 20


def main(quick: bool) -> None:
    num_nodes = 100_000 if quick else CANDIDATES
    command = [sys.executable, "-m", "benchmarks.link_ranks", str(num_nodes)]
    done = subprocess.run(command, env=child_environment(), stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{PAIRS:,} edges among {num_nodes:,} candidates: products {row['products']:.1f} s, ranks {row['ranks']:.1f} s, "
        f"ratio {row['ratio']:.2f} (at most {MOST_RATIO}); {row['bytes'] / 2**20:.0f} MiB, formula {row['formula'] / 2**20:.0f} MiB"
    )
    record(
        "link_ranks", {"scale": "quick" if quick else "full", "most_ratio": MOST_RATIO, "most_bytes": MOST_BYTES} | row
    )


def _measured(num_nodes: int) -> dict[str, Any]:
    import torch

    from graphmill.trainers.models.links import ranks
    from graphmill.trainers.models.links.heads import DotHead
    from graphmill.trainers.recipe.costs.exact import rank_bytes

    head, generator = DotHead(), np.random.default_rng(0)
    source, target = generator.integers(0, num_nodes, (2, PAIRS))
    known = KnownEdges(Triples(num_nodes=num_nodes, reverse_of=(-1,)), source, target)
    ends = {"source": [(0, num_nodes)], "target": [(0, num_nodes)]}
    pairs = ranks.Pairs(source=source, target=target, relation=None, ranges=ends)  # pyright: ignore[reportArgumentType]
    small = torch.randn(1024, COLUMNS)
    small @ small.T  # the library's own memory
    before = _status("VmRSS")
    rows = torch.empty(num_nodes, COLUMNS).normal_()
    found = ranks.link_ranks(head, rows, pairs, known, "target")
    used = _status("VmHWM") - before
    _check(found, rows, pairs, known)
    out = torch.empty(PAIRS, ranks.CANDIDATES)
    queries = rows[torch.from_numpy(source)]

    def products() -> None:
        for part in rows.split(ranks.CANDIDATES):
            torch.mm(queries, part.T, out=out[:, : len(part)] if len(part) < ranks.CANDIDATES else out)

    timed = {"products": products, "ranks": lambda: ranks.link_ranks(head, rows, pairs, known, "target")}
    seconds = in_turn({name: lambda run=run: _seconds_of(run) for name, run in timed.items()}, 3)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    formula = rows.nbytes + rank_bytes(PAIRS, COLUMNS, len(known.ascending))
    return medians | {
        "ratio": medians["ranks"] / medians["products"],
        "bytes": used,
        "formula": formula,
        "candidates": num_nodes,
        "threads": torch.get_num_threads(),
        "all": seconds,
    }


def _check(found: Any, rows: Any, pairs: Any, known: KnownEdges) -> None:
    import torch

    for i in range(CHECKED):
        scores = rows.double() @ rows[pairs.source[i]].double()
        indptr, others = known.others(pairs.source[i : i + 1], side="target")
        assert indptr[1] == len(others)
        own = scores[pairs.target[i]].clone()
        scores[torch.from_numpy(others)] = -torch.inf
        above = int((scores > own).sum())
        # Scores in float32 may stand in another order if they differ by rounding alone.
        near = int(((scores - own).abs() < 1e-4).sum())
        assert abs(found[i] - 1 - above) <= near, f"edge {i}: rank {found[i]}, in float64 {1 + above}"


def _seconds_of(run: Any) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def _status(name: str) -> int:
    """Bytes of a line of /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(_measured(int(sys.argv[1]))))
