"""Interleaved timing, and the rows that benchmarks leave in benchmarks/results/."""

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
from typing import Any

from assets.storage.machine import processor_name

RESULTS = Path(__file__).parent / "results"


def interleave(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Times the runs in turn, in an order drawn anew for each round, after one round that is not counted. Returns seconds by name.

    Whoever comes next finds the caches as its predecessor left them. In rotation (A B C, B C A) that was nearly always the same one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    order = random.Random(0)
    for repeat in range(repeats + 1):
        for name in order.sample(list(runs), len(runs)):
            started = time.perf_counter()
            runs[name]()
            if repeat:
                seconds[name].append(time.perf_counter() - started)
    return seconds


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
