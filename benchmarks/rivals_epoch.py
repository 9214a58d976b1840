"""One epoch of mini-batches beside DGL 1.1.3 and GraphBolt: 3-layer GraphSAGE, and 2-layer GAT with four heads; beside PyG its module.

Same graph, batch size, fan-outs, widths, optimiser and threads. First logits and gradients of the same parameters on the same blocks must
agree. For GAT the rivals' graph has an edge from every node to itself, which our layer has without one. PyG's GraphSAGE is trained by both
sides (benchmarks/rivals_pyg.py), by ours also as a module over blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.disk_inputs import home
from benchmarks.epoch import OurEpochs
from benchmarks.record import in_turn
from benchmarks.rival_process import RivalProcess, contestants, of_both_clocks, spec_of
from benchmarks.worker import Worker
from graphmill.assets.sources.registry import config_class
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.recipe.config import TrainConfig
from tests.graphs import GraphArtifacts, build_graph, open_paths

THREADS, BATCH_SIZE, ROUNDS = 2, 1024, 2
QUICK = {"nodes": 20_000, "edges": 150_000, "features": 64, "classes": 16, "train_ratio": 0.1}
FULL = {"nodes": 2_000_000, "edges": 16_500_000, "features": 100, "classes": 16, "train_ratio": 0.005}
MODELS = {
    "sage": (TrainConfig(model="sage", layers=3, hidden=256, threads=THREADS), (15, 10, 5)),
    "gat": (TrainConfig(model="gat", layers=2, hidden=256, heads=4, threads=THREADS), (15, 10)),
}
"""Model -> its recipe and its fan-outs."""
PYG_MODELS = {
    "pyg": (TrainConfig(model="torch_geometric.nn:GraphSAGE", layers=3, hidden=128, threads=THREADS), (15, 10, 5)),
    "pyg blocks": (
        TrainConfig(model="benchmarks.pyg_child:Sage", blocks="pyg", layers=3, hidden=128, threads=THREADS),
        (15, 10, 5),
    ),
}
"""The same for modules of PyG."""


def measure(quick: bool, model: str) -> dict[str, Any]:
    """Returns the seconds of an epoch of a model, and the ratios."""
    size = QUICK if quick else FULL
    with home() as store:
        config = config_class("rmat")(seed=1, valid_ratio=0.1, **size)
        graph = build_graph(store, config, threads=THREADS)
        return {"graph": size, "batch_size": BATCH_SIZE} | compare(graph, {"ours": model}, ("dgl", "graphbolt"), quick)


def compare(graph: GraphArtifacts, ours: Mapping[str, str], systems: Sequence[str], quick: bool) -> dict[str, Any]:
    """Returns the seconds of epochs, of the clock and of the processors, and their ratios.

    Args:
        ours: name of a contestant of ours -> its model. One is "ours", whose widths the others have.
        systems: the rivals.

    Raises:
        AssertionError: a rival computes other logits or gradients than one of ours.
    """
    recipes = MODELS | PYG_MODELS
    config, fanouts = recipes[ours["ours"]]
    spec, edges, errors = spec_of(graph, config, fanouts, BATCH_SIZE), {}, {}

    def epoch(name: str, ask: Callable[[str], Any]) -> tuple[float, float]:
        answer = ask("epoch")
        edges[name] = answer["edges"]
        return answer["seconds"], answer["processor"]

    with ExitStack() as opened:
        runs: dict[str, Any] = {}
        for name, model in ours.items():
            worker = opened.enter_context(Worker(contestant, graph.paths, model))
            runs[name] = lambda name=name, worker=worker: epoch(name, worker.ask)
        for system in systems:
            for name, python, kept in contestants(system, quick):
                rival = opened.enter_context(RivalProcess(python, spec | {"system": system}, kept))
                errors[name] = max(rival.compare(graph, recipes[model][0]) for model in ours.values())
                runs[name] = lambda name=name, rival=rival: epoch(name, rival.ask)
        row = of_both_clocks(in_turn(runs, 1 if quick else ROUNDS))
    print(f"  {ours['ours']}: seconds {row['seconds']}; {row['ratios']}", flush=True)
    print(f"  processor seconds {row['processor']}; {row['processor_ratios']}", flush=True)
    return {"model": ours["ours"], "fanouts": fanouts} | row | {"edges": edges, "errors": errors}


def contestant(paths: tuple[Path, Path], model: str) -> Mapping[str, Callable[[], object]]:
    """Returns "epoch", which runs an epoch of ours and tells its seconds, those of the processor and edges."""
    torch.set_num_threads(THREADS)
    keep_freed_memory()  # as the trainer does
    epochs = OurEpochs(open_paths(paths), *(MODELS | PYG_MODELS)[model])

    def epoch() -> dict[str, float]:
        began, busy = time.perf_counter(), time.process_time()
        epochs.epoch()
        seconds = {"seconds": time.perf_counter() - began, "processor": time.process_time() - busy}
        return seconds | {"edges": epochs.edges_per_epoch()}

    return {"epoch": epoch}
