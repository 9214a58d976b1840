"""Timing in drawn order, and the rows that benchmarks leave in benchmarks/results/."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from graphmill.assets.storage.machine import processor_name

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"


def in_turn(runs: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Makes each run once in a round, in an order drawn anew for each, after one round that is not counted. Returns what each gave by name.

    Whoever comes next finds the caches as its predecessor left them. In rotation (A B C, B C A) that was nearly always the same one.
    """
    found: dict[str, list[T]] = {name: [] for name in runs}
    order = random.Random(0)
    for turn in range(rounds + 1):
        for name in order.sample(list(runs), len(runs)):
            given = runs[name]()
            if turn:
                found[name].append(given)
    return found


def interleave(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Times runs as `in_turn` makes them. Returns seconds by name."""
    return in_turn({name: lambda run=run: _seconds_of(run) for name, run in runs.items()}, repeats)


def _seconds_of(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def ratio(seconds: Mapping[str, list[float]], baseline: str, ours: str) -> float:
    """How many times as fast ours is: the ratio of the medians."""
    return statistics.median(seconds[baseline]) / statistics.median(seconds[ours])


def record(name: str, row: Mapping[str, Any], packages: tuple[str, ...] = ("torch", "numpy")) -> None:
    """Appends a row to results/NAME.jsonl with the versions, the commit and the machine, and prints where."""
    RESULTS.mkdir(exist_ok=True)
    stamp = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {"cpu": processor_name(), "cpus": os.cpu_count(), "python": platform.python_version()},
        "versions": {package: _version(package) for package in packages},
    }
    path = RESULTS / f"{name}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(dict(row) | stamp) + "\n")
    print(f"row appended to {path.relative_to(RESULTS.parent.parent)}")


def _commit() -> str:
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
