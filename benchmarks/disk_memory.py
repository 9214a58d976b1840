"""Peak memory of training from disk, seen from outside, against what was promised: queue, budgets and the predicted step.

A process of its own takes steps of a 3-layer GraphSAGE on the trainer's source. Another reads its anonymous pages (RssAnon of
/proc/PID/status) every few milliseconds. Promised are the pages it had before anything was opened, the queue, the rows of the static
tiers, and the peak that a simulated step has on a logical device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.disk_epoch import make_source
from benchmarks.disk_inputs import SEED, THREADS, Case
from benchmarks.worker import Worker
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.loop.device_room import simulated_peak
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.record.ledger import Timeline

QUEUE_BYTES, STEPS, POLL_SECONDS = 512 << 20, 8, 0.005


def measure_memory(case: Case, plan: Artifact, chunks: PackedChunks) -> dict[str, Any]:
    """Returns the promised and the measured bytes."""
    graph, sampling = case.opened, case.samples.config
    config = TrainConfig(model="sage", layers=len(sampling["fanouts"]), hidden=64, threads=THREADS)
    fanouts = SamplingConfig(fanouts=tuple(sampling["fanouts"]), batch_size=sampling["batch_size"], reuse=1)
    semantic = ModelConfig(seed=SEED, train=config, sampling=fanouts)
    batches = EpochPlan(np.asarray(graph.train_ids), fanouts.batch_size, seed=SEED, reuse=1)
    step = simulated_peak(graph, semantic, batches, graph.features.width, None)
    tiers = sum(image.num_rows * image.row_bytes for image in (chunks.device_image, chunks.host_image))
    with Worker(trained, case, plan, chunks.artifact, config) as worker:
        base, pid = worker.ask("base"), worker.process.pid
        assert pid is not None
        peak, stop = [base], threading.Event()
        watcher = threading.Thread(target=_watch, args=(pid, peak, stop))
        watcher.start()
        worker.ask("train")
        stop.set()
        watcher.join()
    promised = base + QUEUE_BYTES + tiers + step
    found = {
        "table_bytes": graph.features.num_rows * graph.features.row_bytes,
        "base_bytes": base,
        "queue_bytes": QUEUE_BYTES,
        "tier_bytes": tiers,
        "step_bytes": step,
        "peak_bytes": peak[0],
        "of_promised": round(peak[0] / promised, 3),
    }
    print(f"memory: {found}")
    return found


def trained(case: Case, plan: Artifact, packed: Artifact, config: TrainConfig) -> Mapping[str, Callable[[], object]]:
    """Runs in the process that is watched."""
    keep_freed_memory()
    torch.set_num_threads(THREADS)

    def train() -> None:
        graph, chunks = case.opened, PackedChunks(packed, plan, case.samples)
        model = build_model(config, graph.features.width, graph.num_classes, seed=SEED)
        optimiser = torch.optim.Adam(model.parameters(), lr=config.lr)
        for number, batch in enumerate(make_source(case, chunks, Timeline(), QUEUE_BYTES).batches(0)):
            logits = model(batch.blocks, batch.x, StepRandom(SEED, 0, batch.position))
            torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels).long()).backward()
            optimiser.step()
            optimiser.zero_grad()
            del batch, logits
            if number + 1 == STEPS:
                return

    return {"base": lambda: _anonymous_bytes("self"), "train": train}


def _watch(pid: int, peak: list[int], stop: threading.Event) -> None:
    while not stop.is_set():
        peak[0] = max(peak[0], _anonymous_bytes(pid))
        time.sleep(POLL_SECONDS)


def _anonymous_bytes(pid: int | str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))
