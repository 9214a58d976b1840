"""Direct reads: the roofline of this machine's disk, and rows by page runs against one request a row.

Page cache out of play: O_DIRECT on a file of 8 GiB (quick: 512 MiB) that is written for the run and removed after it; each repeat reads
another part of it. What a host below a virtual disk caches cannot be seen from here. Equality first: rows of awkward widths and a
chunk are compared with plain reads.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import interleave, ratio, record
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import DirectFile, PageReader, ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES
from tests.kernels.rows.direct_io_reference import read_rows_reference

MIB = 1 << 20
FULL = {
    "file_bytes": 8192 * MIB,
    "sequential_bytes": 1024 * MIB,
    "reads": 20_000,
    "region_bytes": 256 * MIB,
    "repeats": 5,
}
QUICK = {"file_bytes": 512 * MIB, "sequential_bytes": 128 * MIB, "reads": 2_000, "region_bytes": 32 * MIB, "repeats": 3}
DEPTHS = (1, 4, 16, 64, 128, 256)
RUNS = (1, 2, 4, 8, 16, 32, 64)
ROW_BYTES = 512
DENSITIES = (0.02, 0.1, 0.3)  # share of a region's rows that is wanted


def main(quick: bool) -> None:
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(dir=os.environ.get("GRAPHMILL_BENCH_DIR")) as folder:
        path = Path(folder) / "table"
        write_table(path, size["file_bytes"])
        check_equality(path)
        roofline = {
            "sequential": sequential(path, size),
            "random_4k": random_reads(path, size),
            "page_runs": page_runs(path, size),
        }
        rows = [against_rows(path, size, density) for density in DENSITIES]
    record(
        "direct_io",
        {"scale": "quick" if quick else "full", "size": size, "roofline": roofline, "rows": rows},
        ("numpy",),
    )


def write_table(path: Path, num_bytes: int) -> None:
    """Random bytes, 8 MiB of them, each copy under another mask: no two pages are equal."""
    block = np.random.default_rng(0).integers(0, 2**63, MIB, np.uint64)
    with path.open("wb") as file:
        for number in range(num_bytes // block.nbytes):
            file.write((block ^ np.uint64(number * 0x9E3779B97F4A7C15 % 2**64)).tobytes())
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def check_equality(path: Path) -> None:
    """Rows that straddle pages, by every method and both kinds of request, and a chunk, equal plain reads."""
    generator = np.random.default_rng(1)
    for method, row_bytes, merge in itertools.product(
        ("io_uring", "pread"), (400, 512, 688, 1200, 1536), (True, False)
    ):
        ids = generator.integers(0, 64 * MIB // row_bytes, 300)
        reader = make_reader(method=method)
        with reader.open(path) as file:
            found, _ = reader.read_rows(file, ids, row_bytes=row_bytes, offset=4096, merge=merge)
        assert np.array_equal(found, read_rows_reference(path, ids, row_bytes, 4096)), (method, row_bytes)
    with make_reader().open(path) as file:
        chunk, _ = make_reader().read_chunk(file, 12_345, 9 * MIB)
    assert np.array_equal(chunk, np.fromfile(path, np.uint8, 9 * MIB, offset=12_345))


def make_reader(**execution: Any) -> PageReader:
    return PageReader(ReadExecution(fallback="error", **execution))


def median_rate(amount: float, read: Callable[[int], object], repeats: int) -> float:
    """Amount over the median seconds of read(repeat)."""
    seconds = []
    for repeat in range(repeats):
        started = time.perf_counter()
        read(repeat)
        seconds.append(time.perf_counter() - started)
    return amount / statistics.median(seconds)


def sequential(path: Path, size: dict[str, int]) -> dict[str, float]:
    """GB/s of reading a long range in pieces: one pread at a time, and several in flight."""
    length, found = size["sequential_bytes"] // 4, {}
    starts = itertools.cycle(range(0, size["file_bytes"] - length, length))
    out = aligned_empty(length)
    out[:] = 0  # page faults are not the disk's
    for method, mib, depth in itertools.product(("pread", "io_uring"), (1, 4, 8), (1, 4)):
        if method == "pread" and depth > 1:
            continue
        reader = make_reader(method=method, piece_bytes=mib * MIB, depth=depth)
        with reader.open(path) as file:
            read = lambda _, reader=reader, file=file: reader.read_chunk(file, next(starts), length, out)  # noqa: E731
            name = f"{method} {mib} MiB, {depth} in flight"
            found[name] = round(median_rate(length / 1e9, read, size["repeats"]), 3)
        print(f"sequential, {name}: {found[name]:.2f} GB/s")
    return found


def random_reads(path: Path, size: dict[str, int]) -> dict[str, int]:
    """Reads a second of single random pages, by depth."""
    found = {}
    for depth in DEPTHS:
        reads = min(size["reads"], 2000 * depth)
        reader = make_reader(depth=depth)
        with reader.open(path) as file:
            read = random_pages(reader, file, size["file_bytes"], reads, 1)
            found[str(depth)] = round(median_rate(reads, read, size["repeats"]))
        print(f"random 4 KiB at depth {depth}: {found[str(depth)]:,} reads/s")
    return found


def page_runs(path: Path, size: dict[str, int]) -> dict[str, float]:
    """GB/s of runs of pages at random places, at depth 64."""
    found = {}
    for pages in RUNS:
        reads = max(64, size["reads"] // pages)
        reader = make_reader(range_pages=64)
        with reader.open(path) as file:
            read = random_pages(reader, file, size["file_bytes"], reads, pages)
            found[str(pages)] = round(median_rate(reads * pages * PAGE_BYTES / 1e9, read, size["repeats"]), 3)
        print(f"runs of {pages} pages at depth 64: {found[str(pages)]:.2f} GB/s")
    return found


def random_pages(
    reader: PageReader, file: DirectFile, file_bytes: int, reads: int, pages: int
) -> Callable[[int], object]:
    """A function that reads other places at each repeat."""
    row_bytes = pages * PAGE_BYTES
    out = np.zeros((reads, row_bytes), np.uint8)

    def read(repeat: int) -> object:
        ids = np.random.default_rng([repeat, pages, reads]).integers(0, file_bytes // row_bytes, reads)
        return reader.read_rows(file, ids, row_bytes=row_bytes, out=out, merge=False)

    return read


def against_rows(path: Path, size: dict[str, int], density: float) -> dict[str, Any]:
    """Sorted rows of a region: ours, and one request a row through io_uring (depths 64, 256) and pread."""
    per_region = size["region_bytes"] // ROW_BYTES
    count = int(per_region * density)
    contestants = {
        "runs": (make_reader(), True),
        "rows io_uring 64": (make_reader(depth=64), False),
        "rows io_uring 256": (make_reader(depth=256), False),
        "rows pread": (make_reader(method="pread"), False),
    }
    out, moved = np.zeros((count, ROW_BYTES), np.uint8), {}
    with contestants["runs"][0].open(path) as file:

        def run(name: str) -> Callable[[], None]:
            reader, merge = contestants[name]
            regions = itertools.cycle(range(size["file_bytes"] // size["region_bytes"]))

            def read() -> None:
                region = next(regions)
                chosen = np.random.default_rng(region).choice(per_region, count, replace=False)
                ids = np.sort(chosen) + region * per_region
                moved[name] = reader.read_rows(file, ids, row_bytes=ROW_BYTES, out=out, merge=merge)[1]

            return read

        seconds = interleave({name: run(name) for name in contestants}, size["repeats"])
    print(f"{count:,} rows of {ROW_BYTES} bytes, {density:.0%} of a region of {size['region_bytes'] // MIB} MiB:")
    for name, values in seconds.items():
        times = ratio(seconds, name, "runs")
        print(
            f"  {name}: {statistics.median(values):.3f} s, {moved[name].requests:,} requests,"
            f" {moved[name].moved_bytes / 1e6:.0f} MB moved; runs are {times:.2f}x as fast"
        )
    ratios = {name: round(ratio(seconds, name, "runs"), 2) for name in contestants if name != "runs"}
    counts = {name: each._asdict() for name, each in moved.items()}
    return {"density": density, "ratio": ratios, "counts": counts, "seconds": seconds}
