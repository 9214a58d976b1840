"""Timing in drawn order, and the rows that benchmarks leave in benchmarks/results/.

A row says at which commit it was measured, so a tree with uncommitted changes has none: `require_clean_tree` refuses it before anything
is measured. With `--dirty` the rows go to benchmarks/results/dirty/, which git ignores and no page cites.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from graphmill.assets.storage.system.machine import processor_name

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"
UNRECORDED = ("benchmarks/results", "docs", "README.md", "CHANGELOG.md")
"""Files that rows and pages are written to: no benchmark runs them, so changes there do not make a tree dirty."""


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


def require_clean_tree(dirty: bool) -> None:
    """Refuses a tree with uncommitted changes.

    Args:
        dirty: whether the command line has `--dirty`; the tree is taken as it is then.

    Raises:
        SystemExit: the tree has uncommitted changes.
    """
    if dirty:
        sys.stderr.write("rows go to benchmarks/results/dirty/, which nothing cites\n")
        Recorder.dirty = True
    elif changed := changed_files():
        raise SystemExit(
            f"uncommitted changes ({changed[0]} ...): commit them, or measure with --dirty, which no page cites"
        )


class Recorder:
    """What `record` does with rows of this process."""

    # Whether rows go to results/dirty/.
    dirty = False


def record(name: str, row: Mapping[str, Any], packages: tuple[str, ...] = ("torch", "numpy")) -> None:
    """Appends a row to results/NAME.jsonl with the versions, the commit and the machine, and prints where.

    Raises:
        SystemExit: the tree has uncommitted changes, without `--dirty`. The row is in results/dirty/ then.
    """
    changed = changed_files()
    stamp = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit() + ("-dirty" if changed else ""),
        "machine": machine(),
        "versions": {package: _version(package) for package in packages},
    }
    folder = RESULTS / "dirty" if Recorder.dirty or changed else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(dict(row) | stamp) + "\n")
    print(f"row appended to {path.relative_to(RESULTS.parent.parent)}")
    if changed and not Recorder.dirty:
        raise SystemExit(f"the tree has uncommitted changes ({changed[0]} ...), so no page may cite this row")


def machine() -> dict[str, Any]:
    """Returns what a row says of the machine."""
    return {"cpu": processor_name(), "cpus": os.cpu_count(), "python": platform.python_version()}


def commit() -> str:
    """Returns the commit of the tree, abbreviated."""
    return _git("describe", "--always").strip()


def changed_files() -> list[str]:
    """Returns the tracked files with uncommitted changes, without those of `UNRECORDED`."""
    left_out = [f":(exclude,top){path}" for path in UNRECORDED]
    lines = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *left_out).splitlines()
    return [line[3:] for line in lines]


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(RESULTS.parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
