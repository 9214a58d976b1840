"""Factored training (FGNN, section 5): the simulator against sleeping stages, the formula against brute force, bytes by policy.

    simulator    real queues and threads whose stages sleep, against the simulated epoch; must be within 15 %
    formula      1,000 drawn workloads: the formula's allocation against brute force, switching against none
    bytes        rows to devices by policy, cache ratio and feature width, counted exactly and compared with a ledger

Epochs, overlap, stages and memory are measured by benchmarks/factored_epochs.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import factored_bytes, factored_sleeping
from benchmarks.factored_simulated import compare, summary, told
from benchmarks.record import record
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.trainers.devices.malloc import keep_freed_memory

WITHIN = 0.15
GRAPHS = ("rmat", "citation")


def main(quick: bool) -> None:
    """Measures all of it and records one row."""
    keep_freed_memory()
    slept = factored_sleeping.compared(1.0 if quick else 5.0)
    ratios = compare(100 if quick else 1000)
    print(f"\n{len(ratios):,} drawn workloads: the formula's epochs relative to the best: {told(ratios)}")
    row = {"scale": "quick" if quick else "full", "simulator": slept, "workloads": len(ratios)}
    row |= {"formula": summary(ratios), "bytes": [factored_bytes.counted(quick, graph) for graph in GRAPHS]}
    record("factored", row)
    worst = max(slept, key=lambda each: abs(each["ratio"] - 1))
    assert abs(worst["ratio"] - 1) <= WITHIN, worst


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws hit ratio and bytes to devices over the number of columns (FGNN, Figures 4b and 11c)."""
    last = [row for row in rows if row["scale"] == "full" and "bytes" in row][-1]
    (counted,) = (each for each in last["bytes"] if each["graph"] == "citation")
    return factored_bytes.width_figures(counted)
