"""Simulated allocations of drawn workloads: the formula against brute force, and switching against none (FGNN 5.3)."""

from __future__ import annotations

import random
import statistics
from typing import Any

from graphmill.trainers.techniques.factored.simulator.simulate import search
from graphmill.trainers.techniques.factored.simulator.workload import Workload


def drawn(draw: random.Random) -> tuple[Workload, int]:
    """Returns a workload like those of the paper, whose stages differ up to tenfold, and up to 64 devices."""
    train = 10 ** draw.uniform(-1, 1)
    extract = train * draw.uniform(0, 1.2)
    devices = round(2 ** draw.uniform(0, 6))
    return Workload(
        batches=draw.randint(1, 120), sample=1.0, extract=extract, train=train, standby=extract * draw.uniform(1, 3),
        queue=draw.choice((0, 0, 4, 40)), jitter=draw.choice((0.0, 0.1, 0.3)), seed=draw.randrange(1000),
    ), devices  # fmt: skip


def compare(count: int) -> list[float]:
    """Returns the formula's epochs relative to the best ones of drawn workloads, all with switching.

    Raises:
        AssertionError: an epoch with switching is longer than one without by more than one task.
    """
    draw, ratios = random.Random(32), []
    for _ in range(count):
        work, devices = drawn(draw)
        found = search(work, devices)
        assert found.seconds[found.best] == min(found.seconds.values())
        ratios.append(found.seconds[found.formula] / found.seconds[found.best])
        task = (1 + work.jitter) * max(work.standby_seconds, work.sample)
        for samplers, fixed in found.static_seconds.items():
            assert found.seconds[samplers] <= fixed + task + 1e-9, (work, devices, samplers)
    return ratios


def summary(ratios: list[float]) -> dict[str, Any]:
    """Returns median, p90 and worst."""
    ranked = sorted(ratios)
    numbers = statistics.median(ranked), ranked[len(ranked) * 9 // 10], ranked[-1]
    return dict(zip(("median", "p90", "worst"), (round(each, 3) for each in numbers), strict=True))


def told(ratios: list[float]) -> str:
    """Returns the same as a line."""
    return ", ".join(f"{name} {value:.3f}" for name, value in summary(ratios).items())
