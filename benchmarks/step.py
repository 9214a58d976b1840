"""One training step, phase by phase, against the same step in plain DGL 1.1.3: sampling, gathering, forward, backward, optimiser.

Nothing overlaps here: each phase is timed on its own, one after the other, so the sum is what a step costs without any pipeline (the
`epoch` benchmark has the pipeline). Same graph, seeds, fanouts (DGL gets them reversed), model, optimiser and threads. DGL runs twice: as a
user starts it, and with the C library told to keep freed memory as our trainer does, so that the reader sees what that alone is worth.
First the models are given the same parameters and blocks, and their outputs must agree (`benchmarks.epoch.check_equality`).
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.epoch import CONFIG, FANOUTS, THREADS, check_equality, dgl_graph, dgl_model
from benchmarks.record import record
from benchmarks.worker import Worker
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from tests.graphs import OpenedGraph, build_graph, open_paths

QUICK = {"nodes": 200_000, "edges": 1_650_000, "features": 128, "classes": 16, "train_ratio": 0.2}
FULL = {"nodes": 2_000_000, "edges": 16_500_000, "features": 128, "classes": 16, "train_ratio": 0.1}
BATCH_SIZES = (1024, 4096)
SEEDS_A_TURN = 6144
"""Seeds that a contestant trains on before it is the next one's turn."""

PHASES = ("sample", "gather", "forward", "backward", "optimise")
CONTESTANTS = ("dgl", "dgl, memory kept", "graphmill")
TARGET = 2.0

Seconds = dict[str, float]


def main(quick: bool) -> None:
    size = QUICK if quick else FULL
    rows = []
    with tempfile.TemporaryDirectory() as home:
        semantic = config_class("rmat")(seed=1, valid_ratio=0.05, **size)
        artifacts = build_graph(Store(home), semantic, threads=THREADS)
        numbers = artifacts.graph.summary["numbers"]
        print(f"R-MAT {numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges, {size['features']} features")
        print(f"3-layer SAGE, hidden {CONFIG.hidden}, fanouts {list(FANOUTS)}, {THREADS} threads; milliseconds a step")
        for batch_size in BATCH_SIZES[: 1 if quick else None]:
            rows.append(measure(artifacts.paths, batch_size, rounds=4 if quick else 6))
            show(rows[-1])
    record("step", {"scale": "quick" if quick else "full", "graph": size, "rows": rows}, ("torch", "numpy", "dgl"))
    missed = [row["batch_size"] for row in rows if row["ratio"] < TARGET]
    assert not missed, f"a step is less than {TARGET} times as fast at batch sizes {missed}"


def measure(graph: tuple[Path, Path], batch_size: int, rounds: int) -> dict[str, object]:
    """Returns the median milliseconds of each phase by contestant, turns in drawn order, and the ratio of whole steps."""
    workers = {name: Worker(contestant, graph, name, batch_size) for name in CONTESTANTS}
    steps = max(1, SEEDS_A_TURN // batch_size)
    turns: dict[str, list[Seconds]] = defaultdict(list)
    with workers["dgl"], workers["dgl, memory kept"], workers["graphmill"]:
        error = workers["dgl"].ask("check")
        # In a fixed order, whoever comes next would always find the caches as the same one left them (`record.interleave`).
        order = random.Random(0)
        for turn in range(rounds + 1):
            for name in order.sample(CONTESTANTS, len(CONTESTANTS)):
                seconds = workers[name].ask("steps")
                if turn:
                    turns[name].append(seconds)
        sizes = {name: worker.ask("sizes") for name, worker in workers.items()}
    totals = {name: statistics.median(sum(each.values()) for each in taken) for name, taken in turns.items()}
    phases = {
        name: {phase: round(1000 * statistics.median(each[phase] for each in taken) / steps, 3) for phase in PHASES}
        for name, taken in turns.items()
    }
    return {
        "batch_size": batch_size,
        "milliseconds": phases,
        "step_milliseconds": {name: round(1000 * total / steps, 3) for name, total in totals.items()},
        "ratio": round(totals["dgl"] / totals["graphmill"], 3),
        "ratio_memory_kept": round(totals["dgl, memory kept"] / totals["graphmill"], 3),
        "edges_and_inputs_a_step": sizes,
        "error": error,
    }


def show(row: Mapping[str, object]) -> None:
    phases, totals, sizes = (row[name] for name in ("milliseconds", "step_milliseconds", "edges_and_inputs_a_step"))
    print(f"batch {row['batch_size']}; outputs agree within {row['error']:.1e} (norm-wise)")
    print(f"  {'':18}" + "".join(f"{phase:>10}" for phase in (*PHASES, "step")) + "   edges, inputs a step")
    for name in CONTESTANTS:
        numbers = [*phases[name].values(), totals[name]]  # pyright: ignore
        counts = "{:,} {:,}".format(*sizes[name])  # pyright: ignore
        print(f"  {name:18}" + "".join(f"{number:10.2f}" for number in numbers) + f"   {counts}")
    print(
        f"  dgl / graphmill = {row['ratio']:.2f}; with memory kept in DGL's process too: {row['ratio_memory_kept']:.2f}"
    )


class Clock:
    """Adds up the seconds of phases."""

    def __init__(self) -> None:
        self.seconds: Seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began


def contestant(paths: tuple[Path, Path], name: str, batch_size: int) -> Mapping[str, Callable[[], object]]:
    """Returns "steps", which runs some and gives seconds by phase, "sizes", mean edges and inputs a step, and "check"."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    torch.set_num_threads(THREADS)
    if name != "dgl":
        keep_freed_memory()
    graph = open_paths(paths)
    steps = (OurSteps if name == "graphmill" else DglSteps)(graph, batch_size)
    return {"steps": steps.run, "sizes": steps.sizes, "check": lambda: check_equality(graph)}


class Steps:
    """The loop around a step: the same seeds for everybody."""

    def __init__(self, graph: OpenedGraph, batch_size: int):
        self.steps_a_turn = max(1, SEEDS_A_TURN // batch_size)
        self.plan, self.epoch = EpochPlan(np.array(graph.train_ids), batch_size, seed=0), 0
        self.planned = self.plan.batches(0)
        self.done, self.edges, self.inputs = 0, 0, 0

    def run(self) -> Seconds:
        clock = Clock()
        for _ in range(self.steps_a_turn):
            item = next(self.planned, None)
            if item is None:
                self.epoch += 1
                self.planned = self.plan.batches(self.epoch)
                item = next(self.planned)
            edges, inputs = self.step(item, clock)
            self.done, self.edges, self.inputs = self.done + 1, self.edges + edges, self.inputs + inputs
        return clock.seconds

    def sizes(self) -> tuple[int, int]:
        return self.edges // self.done, self.inputs // self.done

    def step(self, item, clock: Clock) -> tuple[int, int]:
        raise NotImplementedError


class OurSteps(Steps):
    """The kernels and the model that the `minibatch` trainer uses."""

    def __init__(self, graph: OpenedGraph, batch_size: int):
        super().__init__(graph, batch_size)
        self.labels = np.array(graph.labels)
        self.table = np.array(graph.features.open())
        self.sampler = Sampler(graph.topology, FANOUTS, seed=0, threads=THREADS)
        self.model = build_model(CONFIG, graph.features.width, graph.num_classes, seed=0)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=CONFIG.lr)

    def step(self, item, clock: Clock) -> tuple[int, int]:
        with clock.phase("sample"):
            blocks = self.sampler.sample(item.key, item.seeds)
        with clock.phase("gather"):
            x = torch.empty((blocks[0].num_src, self.table.shape[1]))
            gather(self.table, blocks[0].src_ids, x.numpy(), threads=THREADS)
        with clock.phase("forward"):
            logits = self.model(blocks, x, StepRandom(0, self.epoch, item.position))
            loss = cross_entropy(logits, torch.from_numpy(self.labels[item.seeds]).long())
        with clock.phase("backward"):
            loss.backward()
        with clock.phase("optimise"):
            self.optimiser.step()
            self.optimiser.zero_grad()
        return sum(block.num_edges for block in blocks), blocks[0].num_src


class DglSteps(Steps):
    """What a DGL user writes, with the fused sampler."""

    def __init__(self, graph: OpenedGraph, batch_size: int):
        super().__init__(graph, batch_size)
        import dgl

        self.graph = dgl_graph(graph.topology)
        self.labels = torch.from_numpy(np.array(graph.labels)).long()
        self.table = torch.from_numpy(np.array(graph.features.open()))
        self.sampler = dgl.dataloading.NeighborSampler(list(reversed(FANOUTS)), fused=True)
        self.model = dgl_model(graph.features.width, graph.num_classes)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=CONFIG.lr)

    def step(self, item, clock: Clock) -> tuple[int, int]:
        seeds = torch.from_numpy(item.seeds).long()
        with clock.phase("sample"):
            inputs, _, blocks = self.sampler.sample_blocks(self.graph, seeds)
        with clock.phase("gather"):
            x = self.table[inputs]
        with clock.phase("forward"):
            loss = cross_entropy(self.model(blocks, x), self.labels[seeds])
        with clock.phase("backward"):
            loss.backward()
        with clock.phase("optimise"):
            self.optimiser.step()
            self.optimiser.zero_grad()
        return sum(block.num_edges() for block in blocks), len(inputs)
