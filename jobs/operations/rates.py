"""Speeds of this machine in bytes per second, measured once into the home, since that takes seconds.

$GRAPHMILL_HOME/measured/speeds.json     name -> bytes per second, or starts per second
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from graphmill.assets.storage.files.documents import DIGEST, keep_numbers, read_if_sound
from graphmill.assets.storage.files.schema import mapped, rate
from graphmill.assets.storage.system.filesystem import make_folder
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES

SPEEDS = Path("measured") / "speeds.json"
SAMPLE_BYTES, COPY_BYTES = 256 << 20, 64 << 20
"""Bytes of the file that is read to measure a speed, and of the memory that is copied: little, for a group may have a limit."""
REPEATS = 3
PAGES_READ = 8192
"""Pages that are read one by one, in scattered order."""
PAGES_TOUCHED = 1024
"""Pages of a mapped file that are touched one by one, none of which is in memory."""
COPY, DISK, PAGES = "memory copy, one thread", "disk, sequential", "disk, scattered pages"
WRITE, FAULTS = "disk, written in order", "disk, page faults of one thread"
STARTS, STEPS = "starts of a training", "starts of a step"
STEP_IMPORTS, TRAINING_IMPORTS = "graphmill.jobs.command, graphmill.jobs.definitions", "graphmill.trainers.run"
START_TIMES = 1.5
"""Times that a start takes as long as a process with all of its imports: it is two processes, a history, and checks of the store."""
speeds_schema = mapped(rate)
"""The file of the speeds: name -> bytes per second."""


def kept_rates(home: Path) -> dict[str, float]:
    """Returns name -> bytes per second of the home; empty if it holds none.

    What is damaged counts as missing, since no result follows from it.
    """
    return {name: rate for name, rate in read_if_sound(home / SPEEDS, speeds_schema).items() if name != DIGEST}


def measured_rates(home: Path, found: dict[str, float] | None = None) -> dict[str, float]:
    """Measures the speeds, and keeps them in the home.

    Args:
        found: receives each speed as soon as it is measured; None for a dictionary of its own.

    Raises:
        RuntimeError: other processes hold the memory of the GPU.
        InputError: the disk is full.
    """
    make_folder(home)
    found = {} if found is None else found
    found.update(_measured(home))
    keep_numbers(home / SPEEDS, found)
    return found


def _measured(home: Path) -> Iterator[tuple[str, float]]:
    """Measures how fast memory is copied, the home's disk is read past the page cache, and a GPU is reached."""
    import numpy as np

    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    yield COPY, _rate(lambda: np.copyto(target, source), COPY_BYTES)
    with tempfile.NamedTemporaryFile(dir=home) as file:
        yield WRITE, _rate(lambda: _write(file, source.data))
        yield DISK, _rate(lambda: _read_through(file.name))
        yield PAGES, _rate(lambda: _read_pages(Path(file.name)), PAGES_READ * PAGE_BYTES)
        yield FAULTS, _rate(lambda: _touch_pages(file), PAGES_TOUCHED * PAGE_BYTES)
    yield STARTS, _rate(lambda: _import(f"{STEP_IMPORTS}, {TRAINING_IMPORTS}"), 1, 1) / START_TIMES
    yield STEPS, _rate(lambda: _import(STEP_IMPORTS), 1, 1) / START_TIMES
    from graphmill.kernels.cuda.driver import num_gpus

    if num_gpus():
        yield from _link_speeds()


def _import(modules: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)


def _read_through(name: str) -> None:
    """Reads a file in pieces of 4 MiB, past the page cache if the file system allows it."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        descriptor = os.open(name, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        with mmap.mmap(-1, 4 << 20) as buffer:  # starts on a page, as a direct read wants it
            while os.readv(descriptor, [buffer]):
                pass
    finally:
        os.close(descriptor)


def _write(file: Any, content: Any) -> None:
    """Writes a file anew, up to the disk, from content that it has several times."""
    file.seek(0)
    for done in range(0, SAMPLE_BYTES, len(content)):
        file.write(content[: SAMPLE_BYTES - done])
    file.flush()
    os.fsync(file.fileno())


def _touch_pages(file: Any) -> None:
    """Touches some pages of a mapping, each read from the disk alone, as rows of a table that exceeds the memory are."""
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        pages.madvise(mmap.MADV_RANDOM)
        for page in range(PAGES_TOUCHED):
            pages[page * (SAMPLE_BYTES // PAGES_TOUCHED)]


def _read_pages(path: Path) -> None:
    """Reads some pages of a file as rows are read past the page cache, no two of them adjacent."""
    import numpy as np

    pages = np.arange(PAGES_READ) * (SAMPLE_BYTES // PAGE_BYTES // PAGES_READ)
    reader = PageReader()
    try:
        file = reader.open(path)
    except InputError:
        # No O_DIRECT here: rows come through the page cache, which has all of a file that was just written.
        reader = PageReader(ReadExecution(method="buffered"))
        file = reader.open(path)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with file:
        reader.read_rows(file, pages, row_bytes=PAGE_BYTES)


def _link_speeds() -> Iterator[tuple[str, float]]:
    import torch

    if not torch.cuda.is_available():
        return
    host = torch.empty(SAMPLE_BYTES, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(SAMPLE_BYTES, dtype=torch.uint8, device="cuda")
    for name, to, source in (("host to GPU, pinned", device, host), ("GPU to host, pinned", host, device)):

        def copy(to: Any = to, source: Any = source) -> None:
            to.copy_(source, non_blocking=True)
            torch.cuda.synchronize()

        yield name, _rate(copy)


def _rate(work: Callable[[], object], num_bytes: int = SAMPLE_BYTES, repeats: int = REPEATS) -> float:
    """Returns bytes per second of the best of a few repeats."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return num_bytes / min(seconds)
