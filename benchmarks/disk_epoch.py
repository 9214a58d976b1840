"""An epoch from disk with an emulated device: how well the stages overlap (DiskGNN, Figure 7)."""

from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.disk_inputs import SEED, Case, drop_pages
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import open_samples
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.trainers.batches.batch import Batching
from graphmill.trainers.batches.source import ASSEMBLE, FEATURE, GRAPH, DiskSource
from graphmill.trainers.batches.stored import StoredSampler
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.record.ledger import STEP, WAIT, Timeline
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import loader_reading

TIMES = (0.0, 0.5, 1.0, 2.0)
"""Length of the emulated step, as a multiple of the longest other stage; 0 is no device at all."""

BATCHES = 100
STAGES = (GRAPH, FEATURE, ASSEMBLE, STEP)
RATIOS = ("times_the_longest_stage", "speedup_over_sequential", "sum_by_longest", "of_sum_by_longest")


class Run(NamedTuple):
    """Busy seconds by stage, seconds, and seconds of the processors."""

    busy: dict[str, float]
    seconds: float
    cpu: float


def measure_epochs(case: Case, chunks: PackedChunks, rounds: int = 3) -> list[dict[str, Any]]:
    """Runs the end of an epoch for each length of the step, with one stage after the other and overlapped in turn: the same work in both.

    One source runs all of them, as in training, and some batches before them, which fault its memory in. Stored batches are read through
    the page cache, so it forgets them before each run. A stage of several threads is busy for the mean of theirs. Medians of the rounds.
    """
    source = make_source(case, chunks, Timeline())
    start = max(0, chunks.num_batches - BATCHES)
    overlapped(source, 0.0, start)
    longest, found = 0.0, []
    for times in TIMES:
        sleep, runs = times * longest, []
        for _ in range(rounds):
            drop_pages(case.samples)
            one = one_after_the_other(source, sleep, start)
            drop_pages(case.samples)
            runs.append(_compared(one, overlapped(source, sleep, start)))
        longest = longest or max(statistics.median(each["alone_seconds"][name] for each in runs) for name in STAGES) / (
            chunks.num_batches - start
        )
        entry = {"step_seconds": round(sleep, 5), "times_longest": times, "batches": chunks.num_batches - start}
        entry |= {name: statistics.median(each[name] for each in runs) for name in RATIOS}
        print(f"overlap: {entry}")
        found.append(entry | {"rounds": runs})
    return found


def _compared(one: Run, other: Run) -> dict[str, Any]:
    """Returns the figures of a run of one stage after the other and of an overlapped one."""
    speedup, most = one.seconds / other.seconds, sum(one.busy.values()) / max(one.busy.values())
    return {
        "epoch_seconds": round(other.seconds, 3),
        "sequential_seconds": round(one.seconds, 3),
        "times_the_longest_stage": round(other.seconds / max(other.busy.values()), 3),
        "speedup_over_sequential": round(speedup, 3),
        "sum_by_longest": round(most, 3),
        "of_sum_by_longest": round(speedup / most, 3),
        "cpu_seconds": round(other.cpu, 3),
        "busy_seconds": {name: round(value, 3) for name, value in other.busy.items()},
        "alone_seconds": {name: round(value, 3) for name, value in one.busy.items()},
    }


def make_source(case: Case, chunks: PackedChunks, timeline: Timeline, queue_bytes: int = 1 << 30) -> DiskSource:
    """The trainer's own source, as for a GraphSAGE model."""
    graph = case.opened
    batching = Batching(
        topology=graph.topology,
        labels=graph.labels,
        plan=EpochPlan(np.asarray(graph.train_ids), case.samples.config["batch_size"], seed=SEED, reuse=1),
        edge_weight=None,
        queue_bytes=queue_bytes,
        timeline=timeline,
    )
    rows = PackedRows(
        chunks,
        graph.features,
        device=LogicalDevice(),
        reading=loader_reading(),
    )
    return DiskSource(batching, rows, StoredSampler(open_samples(case.samples)))


def one_after_the_other(source: DiskSource, sleep: float, start: int) -> Run:
    """Runs the batches from one on, and nothing overlaps."""
    spent: dict[str, float] = dict.fromkeys(STAGES, 0.0)
    began, cpu = time.perf_counter(), time.process_time()
    for item in source.batching.plan.batches(0, start):
        marks = [time.perf_counter()]
        graph = source.load_graph(item)
        marks.append(time.perf_counter())
        staged = source.rows.stage(item.key)
        marks.append(time.perf_counter())
        x = source.assemble(staged)
        marks.append(time.perf_counter())
        time.sleep(sleep)
        marks.append(time.perf_counter())
        del graph, x
        for name, seconds in zip(spent, np.diff(marks).tolist(), strict=True):
            spent[name] += seconds
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    source.rows.close()
    return Run(spent, seconds, cpu)


def overlapped(source: DiskSource, sleep: float, start: int) -> Run:
    """Runs the batches from one on as the trainer does."""
    timeline, cpu = source.batching.timeline, time.process_time()
    timeline.start(0)
    for batch in source.batches(0, start):
        with timeline.span(STEP, "emulated device", batch.position):
            time.sleep(sleep)
    timeline.finish()
    record, cpu = timeline.record, time.process_time() - cpu
    lanes = {lane: sum(v for k, v in sums.items() if k != WAIT) for lane, sums in record["busy_seconds"].items()}
    threads = {name: [seconds for lane, seconds in lanes.items() if lane.startswith(name)] for name in STAGES}
    return Run({name: sum(seconds) / len(seconds) for name, seconds in threads.items()}, record["seconds"], cpu)
