"""An epoch from disk with an emulated device: how well the stages overlap (DiskGNN, Figure 7)."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import numpy as np

from assets.stored_chunks import Chunks
from assets.stored_samples import open_samples
from benchmarks.disk_inputs import SEED, Case, drop_pages
from kernels.direct_io import ReadExecution
from kernels.plan import EpochPlan
from trainers.devices import LogicalDevice
from trainers.disk import ASSEMBLE, FEATURE, GRAPH, DiskSource
from trainers.ledger import Ledger
from trainers.offline import StoredSampler
from trainers.timeline import STEP, WAIT, Timeline

TIMES = (0.0, 1.0, 2.0)
"""Length of the emulated step, as a multiple of the longest other stage run alone."""


def measure_epochs(case: Case, chunks: Chunks) -> list[dict[str, Any]]:
    """Runs an epoch for each length of the step, and the same stages one after the other before it."""
    drop_pages(case.samples)
    alone = one_after_the_other(case, chunks)
    longest, found = max(alone.values()), []
    for times in TIMES:
        sleep = times * longest
        busy, seconds, batches = overlapped(case, chunks, sleep)
        most, sequential = max(busy.values()), (sum(alone.values()) + sleep) * batches
        entry = {
            "step_seconds": round(sleep, 5),
            "batches": batches,
            "epoch_seconds": round(seconds, 3),
            "times_the_longest_stage": round(seconds / most, 3),
            "speedup_over_sequential": round(sequential / seconds, 3),
            "of_sum_by_longest": round(sequential / seconds / ((sum(alone.values()) + sleep) / max(longest, sleep)), 3),
            "busy_seconds": {name: round(value, 3) for name, value in busy.items()},
            "alone_seconds": {name: round(value * batches, 3) for name, value in alone.items()},
        }
        print(f"overlap: {entry}")
        found.append(entry)
    return found


def make_source(case: Case, chunks: Chunks, timeline: Timeline, queue_bytes: int = 1 << 30) -> DiskSource:
    """The trainer's own source, as for a GraphSAGE model."""
    graph = case.opened
    return DiskSource(
        sampler=StoredSampler(open_samples(case.samples)),
        chunks=chunks,
        width=graph.features.width,
        dtype=graph.features.dtype,
        row_bytes=graph.features.row_bytes,
        topology=graph.topology,
        labels=graph.labels,
        plan=EpochPlan(np.asarray(graph.train_ids), case.samples.config["batch_size"], seed=SEED, reuse=1),
        edge_weight=None,
        transpose="hidden",
        ledger=Ledger(),
        queue_bytes=queue_bytes,
        reading=ReadExecution(),
        device=LogicalDevice(),
        timeline=timeline,
    )


def one_after_the_other(case: Case, chunks: Chunks) -> dict[str, float]:
    """Mean seconds a batch of each stage when nothing else runs; a quarter of the epoch."""
    source, spent = make_source(case, chunks, Timeline()), dict.fromkeys((GRAPH, FEATURE, ASSEMBLE), 0.0)
    loader, count = source.open_loader(), 0
    for item in islice(source.plan.batches(0), max(10, chunks.num_batches // 4)):
        marks = [time.perf_counter()]
        kept: list[Any] = [source.load_graph(item)]
        marks.append(time.perf_counter())
        staged = loader.load(source.number(item))
        marks.append(time.perf_counter())
        kept.append(source.gather(staged))
        staged.release()
        marks.append(time.perf_counter())
        if count or chunks.num_batches == 1:  # the first batch warms buffers up
            for name, seconds in zip(spent, np.diff(marks).tolist(), strict=True):
                spent[name] += seconds
        count += 1
    loader.close()
    return {name: seconds / max(1, count - 1) for name, seconds in spent.items()}


def overlapped(case: Case, chunks: Chunks, sleep: float) -> tuple[dict[str, float], float, int]:
    """Returns (busy seconds by stage, seconds, batches) of an epoch."""
    timeline = Timeline()
    source, batches = make_source(case, chunks, timeline), 0
    timeline.start(0)
    for batch in source.batches(0):
        with timeline.span(STEP, "emulated device", batch.position):
            time.sleep(sleep)
        batches += 1
    timeline.finish()
    record = timeline.record
    busy = {lane: float(sum(v for k, v in sums.items() if k != WAIT)) for lane, sums in record["busy_seconds"].items()}
    return busy, record["seconds"], batches
