"""A machine that is the same everywhere: its memory, its cores, its disk, and the speeds that are measured on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.assets.figures import style
from graphmill.assets.pipeline import needs
from graphmill.assets.storage.system import control_group, machine
from graphmill.jobs.operations import rates
from graphmill.trainers.recipe.costs import known
from graphmill.trainers.recipe.costs.course import Speeds
from graphmill.trainers.training import speeds

MEMORY, USED, FREE_DISK = 4 << 30, 1 << 30, 200 << 30
SPEEDS = Speeds(
    step={1: 4e-3, 2: 3e-3, 8: 1e-3}, handed={1: 5e-3, 2: 4e-3, 8: 2e-3}, draw={1: 1e-3, 2: 8e-4, 8: 3e-4},
    gather={1: 1e-3, 2: 7e-4, 8: 2e-4}, transpose=2e-4, prune=1e-4, layers={1: 0.05, 2: 0.03}, whole={1: 0.04, 2: 0.02},
    visit={1: 1e-3, 2: 2e-3}, edges=500, inputs=200, exact_rows=1e-9, exact_edges=2e-10, start=4.0, disk_rate=1e9, write_rate=5e8,
    pages_rate=4e8, faults_rate=4e7, copy_rate=4e9, call=1e-4, rank_rate=1e9,
)  # fmt: skip
RATES = [
    (rates.COPY, SPEEDS.copy_rate), (rates.DISK, SPEEDS.disk_rate), (rates.WRITE, SPEEDS.write_rate),
    (rates.PAGES, SPEEDS.pages_rate), (rates.FAULTS, SPEEDS.faults_rate), (rates.STARTS, 1 / SPEEDS.start), (rates.STEPS, 0.4),
]  # fmt: skip


@contextmanager
def same_machine(folder: Path, cores: int) -> Iterator[None]:
    """The machine, with a number of cores; figures are composed and not drawn.

    Args:
        folder: an empty folder.
        cores: number of cores.
    """
    free = folder / "meminfo"
    free.write_text(f"MemAvailable: {MEMORY >> 10} kB\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_group, "MACHINE", free)
        patch.setattr(control_group, "_limits", lambda: iter([("", "memory.max", MEMORY)]))
        patch.setattr(control_group, "_used", lambda folder, name: USED)
        patch.setattr(control_group, "_granted", lambda: iter(()))
        patch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=2 * FREE_DISK, free=FREE_DISK))
        patch.setattr(needs, "LEAST_SECONDS", float("inf"))  # builds here tell no speed
        patch.setattr(machine, "processor_name", lambda: "a processor")
        patch.setattr(known, "processor_name", lambda: "a processor")
        patch.setattr(rates, "_measured", lambda home: iter(RATES))
        patch.setattr(speeds, "measure_speeds", lambda *given: SPEEDS)
        patch.setattr(style, "png", lambda figure: b"not drawn")
        yield
