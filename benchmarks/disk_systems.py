"""Epochs from disk beside Ginex, MariusGNN and DGL on disk, by memory of the host (DiskGNN, Table 1, Figures 8, 9 and 10).

    bytes     what an epoch reads with 10, 30 and 50 % of the rows in memory, counted: of Ginex the rows that miss a cache by Belady's
              algorithm, a read each; of MariusGNN the partitions in memory, rows and edges, once an epoch; of DGL on disk all rows; ours
              packed. The graphs are those of `disk_space`, with 5 % training nodes.
    seconds   epochs of a 2-layer GraphSAGE, and of a GAT with 10 % in memory, on the citation graph of `disk_accuracy`. One loop trains
              all: a thread gets the rows of the next two batches as the system does (`disk_readers`), the main thread steps.

Equality first: Ginex, DGL on disk and ours deliver the rows of the table, for the same batches; the bytes that they read are those counted.
MariusGNN's batches are its own. The rival systems themselves are not run: this is their way of reading, by our kernels.

`python -m benchmarks.disk_systems --parts seconds` measures a part; with the folder GRAPHMILL_BENCH_DIR the graphs are kept.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.charts import bar_chart
from benchmarks.disk_accuracy import CITATION, recipe
from benchmarks.disk_baselines import belady, one_read_a_row
from benchmarks.disk_graphs import FEATURES
from benchmarks.disk_inputs import SEED, THREADS, Case, build_case, draw_batches, home
from benchmarks.disk_readers import Ginex, Loaded, OnDisk, Packed, Reader, Resident, resident_bytes
from benchmarks.disk_space import GRAPHS
from benchmarks.record import record
from graphmill.assets.cache_plan.read import open_placement
from graphmill.assets.sources.registry import config_class
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.kernels.rows.slots import ELSEWHERE
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from tests.graphs import build_graph

PARTS = ("bytes", "seconds")
HOSTS = {"10%": 0.1, "30%": 0.3, "50%": 0.5}
ROUNDS, AHEAD = 4, 2
OURS, GINEX, MARIUS, DGL = "ours", "Ginex", "MariusGNN", "DGL on disk"
FANOUTS, BATCH = (10, 10), 1024
TRAIN_RATIO = 0.05
"""Share of training nodes of the graphs whose bytes are counted: their partitions are to fit into 10 % of the rows."""


def main(quick: bool, parts: Sequence[str] = PARTS) -> None:
    """Records a row for each graph and part."""
    keep_freed_memory()
    torch.set_num_threads(THREADS)
    if "bytes" in parts:
        for name in ("quick",) if quick else tuple(GRAPHS)[1:]:
            count_bytes(name)
    if "seconds" in parts:
        measure_seconds(quick)


def count_bytes(name: str) -> None:
    """Records the bytes of an epoch of one graph."""
    setting = GRAPHS[name]
    with home() as store:
        case = build_case(store, FEATURES | setting["size"], TRAIN_RATIO, setting["fanouts"], setting["batch"])
        found = {host: _bytes(case, host, share) for host, share in HOSTS.items()}
    print(f"{name}: bytes of an epoch {found}")
    row = {"part": "bytes", "graph": name, "batches": case.num_batches, "bytes": found}
    record("disk_systems", row | setting | {"train_ratio": TRAIN_RATIO}, ("numpy",))


def _bytes(case: Case, host: str, share: float) -> dict[str, int]:
    """Counts the bytes that an epoch of each system reads."""
    batches, row_bytes = case.batches(), case.opened.features.row_bytes
    plan, num_nodes = case.plan(device="0", host=host, disk="100x"), batches.num_nodes
    ids, nothing = batches.node_ids, np.full(num_nodes, ELSEWHERE, np.int32)
    missed = int((np.asarray(open_placement(plan).slot)[ids] == ELSEWHERE).sum())
    assert plan.summary["numbers"]["asked_bytes"] == missed * row_bytes, "the plan counts other rows"
    return {
        OURS: plan.summary["numbers"]["moved_bytes"],
        GINEX: belady(batches.ptr, ids, num_nodes, int(share * num_nodes), row_bytes).moved_bytes,
        MARIUS: resident_bytes(case, share),
        DGL: one_read_a_row(ids, nothing, row_bytes).moved_bytes,
    }


def measure_seconds(quick: bool) -> None:
    """Records seconds of epochs by system, memory and model."""
    size: dict[str, Any] = CITATION | ({"nodes": 50_000, "edges": 500_000} if quick else {})
    config = config_class("citation")(seed=1, **size)
    with home() as store:
        case = draw_batches(store, build_graph(store, config, THREADS), FANOUTS, BATCH)
        found: dict[str, Any] = {}
        for host, share in HOSTS.items():
            systems = _systems(case, host, share)
            require_equal(case, systems)
            found[host] = {"sage": _epochs(case, systems, "sage")}
            if host == "10%":
                found[host]["gat"] = _epochs(case, systems, "gat")
                found[host]["sage"][DGL] = _on_disk(case)
            print(f"{host}: {found[host]}", flush=True)
    row = {"part": "seconds", "scale": "quick" if quick else "full", "graph": "citation", "batches": case.num_batches}
    record("disk_systems", row | {"config": repr(config), "epochs": found})


def _systems(case: Case, host: str, share: float) -> dict[str, Reader]:
    plan = case.plan(device="0", host=host, disk="100x")
    return {
        OURS: Packed(case, case.pack(case.store, plan)),
        GINEX: Ginex(case, share),
        MARIUS: Resident(case, share),
    }


def require_equal(case: Case, systems: Mapping[str, Reader]) -> None:
    """Loads an epoch of every system.

    Raises:
        AssertionError: a row is not that of the table, or the bytes are not those of the plan or of the cache.
    """
    for name, reader in systems.items():
        reader.begin()
        for place in range(case.num_batches):
            loaded = reader.load(place)
            ids = loaded.blocks[0].src_ids
            assert np.array_equal(loaded.x.numpy(), reader.table[ids]), (name, place)
        if isinstance(reader, Resident):
            spare = reader.moved_bytes - reader.volume_bytes
            assert 0 <= spare <= 1 << 20, (name, spare)


def _epochs(case: Case, systems: Mapping[str, Reader], model: str) -> dict[str, dict[str, Any]]:
    """Times epochs of all systems in drawn order, after one that is not counted. Returns system -> medians."""
    order, runs = np.random.default_rng(0), {name: [] for name in systems}
    for reader in systems.values():
        reader.transpose = "all" if model == "gat" else "hidden"
    for turn in range(ROUNDS + 1):
        for name in order.permutation(list(systems)).tolist():
            seconds = epoch(systems[name], Steps(case, model), range(case.num_batches))
            if turn:
                runs[name].append((seconds, systems[name].seconds))
    return {
        name: {
            "seconds": round(statistics.median(each[0] for each in taken), 3),
            "reading": round(statistics.median(each[1] for each in taken), 3),
            "bytes": systems[name].moved_bytes,
            "runs": [round(each[0], 3) for each in taken],
        }
        for name, taken in runs.items()
    }


def _on_disk(case: Case) -> dict[str, Any]:
    """Times the first batch of DGL on disk, and scales it to the epoch by the rows of all batches."""
    reader = OnDisk(case)
    seconds = epoch(reader, Steps(case, "sage"), range(1))
    batches = case.batches()
    first = len(reader.samples.sample(reader.plan[0].key, reader.plan[0].seeds)[0].src_ids)
    times = len(batches.node_ids) / first
    found = {"seconds": round(seconds * times, 2), "reading": round(reader.seconds * times, 2)}
    return found | {"bytes": round(reader.moved_bytes * times), "scaled_from_rows": first}


class Steps:
    """A model and its optimiser.

    Args:
        case: graph, features and stored batches.
        model: name of the model.
    """

    def __init__(self, case: Case, model: str):
        graph, (_, table, _) = case.opened, recipe("citation", model, quick=False)
        self.labels = torch.from_numpy(np.array(graph.labels)).long()
        self.model = build_model(table.config, graph.features.width, graph.num_classes, seed=SEED)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=table.config.lr)

    def step(self, place: int, loaded: Loaded) -> None:
        """Trains on a batch."""
        logits = self.model(loaded.blocks, loaded.x, StepRandom(SEED, 0, place))
        cross_entropy(logits, self.labels[loaded.seeds]).backward()
        self.optimiser.step()
        self.optimiser.zero_grad()


def epoch(reader: Reader, steps: Steps, places: range) -> float:
    """Trains on batches, whose rows a thread gets while earlier ones are trained on. Returns seconds."""
    began = time.perf_counter()
    with ThreadPoolExecutor(1) as thread:
        reader.begin()
        for place, loaded in enumerate(_ahead(thread, reader, places)):
            steps.step(place, loaded)
    return time.perf_counter() - began


def _ahead(thread: ThreadPoolExecutor, reader: Reader, places: range) -> Iterator[Loaded]:
    """Yields batches; as many as `AHEAD` are asked for before their turn."""
    waiting = [thread.submit(reader.load, place) for place in places[:AHEAD]]
    for place in places:
        loaded = waiting.pop(0).result()
        if place + AHEAD < len(places):
            waiting.append(thread.submit(reader.load, place + AHEAD))
        yield loaded


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws epochs by system and model, by memory, and bytes by memory (DiskGNN, Figures 8, 9 and 10)."""
    timed = [row for row in rows if row["part"] == "seconds" and row["scale"] == "full"][-1]["epochs"]
    counted = {row["graph"]: row["bytes"] for row in rows if row["part"] == "bytes" and row["graph"] != "quick"}
    says = "The bars are seconds of an epoch relative to ours. Citation graph of 200,000 nodes, batches of 1,024 of [10, 10]."
    by_model = {{"sage": "GraphSAGE", "gat": "GAT"}[model]: _relative(timed["10%"][model]) for model in ("sage", "gat")}
    by_host = {f"{host} of the rows": _relative(timed[host]["sage"], without=DGL) for host in HOSTS}
    by_bytes = {
        f"{graph}, {host}": {name: each / 1e9 for name, each in found.items() if name != DGL}
        for graph, hosts in counted.items()
        for host, found in hosts.items()
    }
    ratio = "epoch, relative to ours"
    return [
        bar_chart(
            "diskgnn-epochs",
            "Epochs from disk with 10 % of the rows in memory",
            says,
            by_model,
            label=ratio,
            log=True,
        ),
        bar_chart("diskgnn-epochs-by-memory", "Epochs from disk by memory", f"{says} GraphSAGE.", by_host, label=ratio),
        bar_chart(
            "diskgnn-bytes-by-memory",
            "Bytes of an epoch from disk by memory",
            "The bars are counted GB of an epoch, on a graph of 1M nodes without hubs and on R-MAT of 2M nodes, by rows in memory.",
            by_bytes,
            label="read per epoch, GB",
        ),
    ]


def _relative(found: Mapping[str, dict[str, Any]], without: str = "") -> dict[str, float]:
    """Returns the seconds of systems relative to ours."""
    return {name: each["seconds"] / found[OURS]["seconds"] for name, each in found.items() if name != without}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disk_systems", description="Parts of the full run.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    main(quick=chosen.quick, parts=chosen.parts)
