"""Rows of every width under every budget, really read: delivered rows, the ledger and the kernel's own count against the plan.

R-MAT with 1M nodes and 8M edges, 5% training nodes, an epoch of 49 batches of [15, 10, 5]. First the budgets, device 0 or 5% and host 1,
3, 5 or 10%, within a disk of 1.5x, with rows of 512 bytes. Then rows of 100, 172 and 300 float32 and of 768 float16, which do not divide
a page, packed only and with disk caches. For each of them the stages plan and pack, and the trainer's loader reads an epoch:

    rows      every row of every batch, from whichever tier, is the table's
    ledger    requests, pages and bytes are the plan's
    kernel    /proc/self/io counts the bytes that the ledger counts (and file system metadata: at most 0.1% more)
    ratio     packed only: bytes of one read a missed row, a few batches of it really read, over ours; beside it the arithmetic, pages
              that a row touches x 4,096 / row bytes, which must be within 5%

Nothing is timed, so it may run beside other work.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.disk_baselines import one_read_a_row
from benchmarks.disk_bytes import check_ledger
from benchmarks.disk_inputs import SKEW, THREADS, Case, build_case, draw_batches, drop_pages, home
from benchmarks.record import record
from graphmill.assets.building.stage import Summary
from graphmill.assets.cache_plan.read import open_placement
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import open_samples
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_table
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.slots import ELSEWHERE, Tiers
from graphmill.trainers.rows.packed_loader import PackedLoader, loader_reading
from tests.graphs import GraphArtifacts

QUICK = {"nodes": 50_000, "edges": 400_000, "features": 128, "classes": 16, "valid_ratio": 0.01} | SKEW
FULL = {"nodes": 1_000_000, "edges": 8_000_000, "features": 128, "classes": 16, "valid_ratio": 0.01} | SKEW
BUDGETS = [{"device": d, "host": h, "disk": "1.5x"} for d in ("0", "5%") for h in ("1%", "3%", "5%", "10%")]
WIDTHS = [(100, "float32"), (172, "float32"), (300, "float32"), (768, "float16")]
PACKED_ONLY = {"device": "0", "host": "5%", "disk": "100x"}
WITH_CACHES: dict[str, Any] = {"device": "5%", "host": "1%", "disk": "100x", "segment_size": 8}
FANOUTS, READ_A_ROW = (15, 10, 5), 3  # batches that are really read row by row


def main(quick: bool) -> None:
    size, batch = (QUICK, 256) if quick else (FULL, 1024)
    cases: list[dict[str, Any]] = []
    with home() as store:
        case = build_case(store, size, 0.05, FANOUTS, batch)
        cases += [measure(case, budgets) for budgets in BUDGETS]
        for width, dtype in WIDTHS:
            with tempfile.TemporaryDirectory(dir=store.home) as folder:
                other = Store(Path(folder))
                rewritten = draw_batches(other, with_rows(case, other, width, dtype), FANOUTS, batch)
                cases += [measure(rewritten, budgets) for budgets in (PACKED_ONLY, WITH_CACHES)]
    scale = "quick" if quick else "full"
    record("disk_widths", {"scale": scale, "graph": size, "batches": case.num_batches, "cases": cases})


def with_rows(case: Case, store: Store, width: int, dtype: str) -> GraphArtifacts:
    """Returns the same graph with other features, whole numbers, in a store of its own."""
    config = {**case.features.config, "features": width, "dtype": dtype}
    with store.writer("features", version_of("features", 0, config, {}, {})) as writer:
        table = writer.create("rows", (case.opened.topology.num_nodes, width), np.dtype(dtype))
        generator = np.random.default_rng(width)
        for low in range(0, len(table), 10_000):
            part = table[low : low + 10_000]
            part[:] = generator.integers(-1000, 1000, part.shape, np.int16)
        return GraphArtifacts(case.graph, writer.publish(config, {}, Summary(), {}))


def measure(case: Case, budgets: dict[str, Any]) -> dict[str, Any]:
    """Plans, packs and reads an epoch under some budgets.

    Raises:
        AssertionError: a row, a count or a ratio is not what it has to be.
    """
    table = case.opened.features
    plan = case.plan(**budgets)
    with tempfile.TemporaryDirectory(dir=case.store.home) as folder:
        chunks = case.pack(Store(Path(folder)), plan)
        drop_pages(chunks.artifact)
        rows = check_rows(case, chunks)
        before = _bytes_from_disk()
        read = check_ledger(case, plan, chunks)
        kernel = _bytes_from_disk() - before
    places = (chunks.place(number).sections(table.row_bytes) for number in range(chunks.num_batches))
    counted = read["moved_bytes"] + sum(packed.start for *_, packed in places)
    assert counted <= kernel <= 1.001 * counted + (1 << 20), (counted, kernel)
    found = {"width": table.width, "dtype": table.dtype, "budgets": budgets, "rows": rows, "read": read}
    found |= {"counted_bytes": counted, "kernel_bytes": kernel, "a_read_a_row": against_rows(case, plan, read, budgets)}
    print(f"{table.width} x {table.dtype}, {budgets}: {rows:,} rows equal; {found['a_read_a_row']}")
    return found


def check_rows(case: Case, chunks: PackedChunks) -> int:
    """Compares every row of every batch with the table; returns how many there are."""
    table, samples, total = case.opened.features, open_samples(case.samples, verify=False), 0
    loader = PackedLoader(chunks, table.width, table.dtype, table.row_bytes, BufferPool(), loader_reading())
    rows = table.open()
    device, host = read_table(chunks.device_image), read_table(chunks.host_image)
    for number in range(chunks.num_batches):
        ids = samples.record(*divmod(number, samples.num_batches)).blocks[0].src_ids
        staged = loader.load(number)
        tiers = Tiers(device=device, host=host, staged=staged.rows)
        out = np.empty((len(ids), table.width), table.dtype)
        gather_tiered(staged.slots, tiers, out, threads=THREADS)
        assert np.array_equal(out, rows[ids]), f"batch {number}"
        staged.release()
        total += len(ids)
    loader.close()
    return total


def against_rows(case: Case, plan: Artifact, read: dict[str, Any], budgets: dict[str, Any]) -> dict[str, Any]:
    """Compares bytes with those of one read a missed row; of the first batches they are read, and the kernel must count the same."""
    table, slot = case.opened.features, np.asarray(open_placement(plan).slot)
    batches = case.batches()
    each = one_read_a_row(batches.node_ids, slot, table.row_bytes)
    ids = batches.node_ids[: batches.ptr[READ_A_ROW]]
    expected, ids = one_read_a_row(ids, slot, table.row_bytes), ids[slot[ids] == ELSEWHERE].copy()
    reader = PageReader(ReadExecution(fallback="error"))
    with reader.open(table.path) as file:
        before = _bytes_from_disk()
        reader.read_rows(file, ids, row_bytes=table.row_bytes, offset=table.offset, merge=False)
        kernel = _bytes_from_disk() - before
    assert expected.moved_bytes <= kernel <= 1.001 * expected.moved_bytes + (1 << 20), (expected, kernel)
    everywhere = np.full(PAGE_BYTES, ELSEWHERE, np.int32)
    arithmetic = one_read_a_row(np.arange(PAGE_BYTES), everywhere, table.row_bytes).amplification
    ratio = each.moved_bytes / read["moved_bytes"]
    assert budgets != PACKED_ONLY or abs(ratio / arithmetic - 1) <= 0.05, (ratio, arithmetic)
    return {"bytes_ratio": round(ratio, 4), "arithmetic": round(arithmetic, 4), "read_bytes": kernel}


def _bytes_from_disk() -> int:
    """Bytes that this process has caused to be read from devices; what the page cache had is not among them."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))
