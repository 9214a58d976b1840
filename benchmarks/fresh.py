"""What embeddings of earlier steps save of the rows that are loaded, beside a cache of feature rows of the same bytes (FreshGNN, 7.4, 7.5).

A model trains on an R-MAT graph of 2M nodes and 33M edges, 5 % of them training nodes, fan-outs [20, 15, 10], batches of 100: 1,000
iterations per epoch, so that t_stale = "epoch/6" is 166 steps. After 200 steps, 300 are measured. The I/O saving is 1 - (rows that
came from below the arena) / (input rows of plain sampling of the same batches).

    features, by an order               the same bytes hold its first rows, and nothing else: degree, weighted reverse PageRank, hotness
    accuracy                            stable embeddings alone (the paper's Emb_acc)
    accuracy+features                   they displace feature rows (Emb_acc + Feat)
    performance+features                both ranked together (trainers/techniques/fresh/ranking.py); the paper's is Emb_acc+perf + Feat

Rows are narrow, since counts do not depend on the width; only the ratio of the bytes of an embedding and of a feature row does. Checked
before: the ledger's rows are the survivors of pruning, counted here, and the rows of plain sampling are those of the batches drawn here.

    python -m benchmarks.fresh --cells performance+features:0.67 --steps 150

measures some cells; benchmarks/fresh_io.py measures those of Figures 14, 16a and 17. Artifacts in the folder that GRAPHMILL_BENCH_DIR names
are reused.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.disk_inputs import home
from benchmarks.fresh_graphs import FEATURES, SEED, made
from benchmarks.record import record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Silent
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.hotness.push import reverse_pagerank
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.techniques.fresh.arena_rows import HITS
from graphmill.trainers.techniques.fresh.settings import FreshSettings, Policy
from graphmill.trainers.training.training import RunExecution, Training
from tests.graphs import GraphArtifacts

ARENA_SHARE = 0.011
"""Of all feature rows: a cache of so many, by degree, saves 36 to 40 % on the large graph, as in the paper's Figure 14."""
QUICK_SHARE = 0.02
FANOUTS = (20, 15, 10, 5, 5)
"""From the seeds outwards; the paper names the first three."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measurement.

    Attributes:
        policy: of `[train.fresh]`.
        ratio: bytes of an embedding per byte of a feature row.
        p_grad, t_stale: of `[train.fresh]`.
        layers: depth of the model.
        graph: one of GRAPHS.
        arena: bytes of the arena, as a share of those of all feature rows.
    """

    policy: Policy = "performance+features"
    ratio: float = 1.0
    p_grad: float = 0.9
    t_stale: int | str = "epoch/6"
    layers: int = 3
    graph: str = "skewed"
    arena: float = ARENA_SHARE

    @property
    def hidden(self) -> int:
        """Columns of an embedding."""
        return round(FEATURES * self.ratio)

    @property
    def sampling(self) -> SamplingConfig:
        """Fan-outs of the outer layers, batches of 100."""
        return SamplingConfig(fanouts=FANOUTS[: self.layers], batch_size=100)


CELLS = (
    *(Cell(ratio=ratio) for ratio in (0.67, 1.0, 2.0)),
    Cell(policy="accuracy"),
    Cell(policy="accuracy+features"),
    *(
        Cell(p_grad=p_grad, t_stale=t_stale)
        for p_grad, t_stale in ((0.5, "epoch/6"), (1.0, "epoch/6"), (0.9, 50), (0.9, 20))
    ),
    Cell(layers=2),
    Cell(graph="even"),
)


def main(quick: bool, cells: Sequence[Cell] = CELLS, warm: int = 200, steps: int = 300) -> None:
    keep_freed_memory()
    if quick:
        cells = [replace(cell, graph="quick", arena=QUICK_SHARE) for cell in CELLS[:3]]
        warm, steps = 20, 20
    with home() as store:
        for cell in cells:
            _report(measured(store, cell, warm, steps), quick)


def measured(store: Store, cell: Cell, warm: int, steps: int) -> dict[str, Any]:
    """Returns the row of a cell."""
    graph = made(store, cell.graph)
    counted = hotness_config(HotnessTable(layers="inputs"), cell.sampling, 3)
    hotness = materialize(store, HOTNESS, counted, Threads(threads=2), {"graph": graph.graph})
    held = int(graph.open().topology.num_nodes * cell.arena)
    alone = _features_alone(graph, hotness, cell, held, warm, steps)
    found = _train(graph, hotness, cell, held, warm, steps, store.home)
    assert found["plain"] == alone["plain"], "the ledger and the batches that are drawn here differ"
    return {"cell": vars(cell), "arena_rows": held, "warm": warm, "steps": steps} | alone | found


def _features_alone(
    graph: GraphArtifacts, hotness: Artifact, cell: Cell, held: int, warm: int, steps: int
) -> dict[str, Any]:
    """Returns what caches of feature rows save in the same batches, by degree, PageRank and hotness, and the rows of plain sampling."""
    opened = graph.open()
    topology, plan = opened.topology, _plan(np.array(opened.train_ids), cell)
    orders = {
        "degree": np.argsort(-topology.out_degree.astype(np.int64), kind="stable"),
        "pagerank": np.argsort(-reverse_pagerank(topology, opened.train_ids, threads=2), kind="stable"),
        "hotness": np.asarray(open_hotness(hotness).order),
    }
    cached = {name: np.zeros(topology.num_nodes, bool) for name in orders}
    for name, order in orders.items():
        cached[name][order[:held]] = True
    sampler, hits, plain = Sampler(topology, FANOUTS[: cell.layers], seed=SEED), Counter[str](), 0
    for item in plan.batches(0, warm):
        if item.position >= warm + steps:
            break
        ids = sampler.sample(item.key, item.seeds, transpose="none")[0].src_ids
        plain += len(ids)
        for name, mask in cached.items():
            hits[name] += int(mask[ids].sum())
    row = {f"features_by_{name}": round(hits[name] / plain, 4) for name in orders}
    coverage = plain / steps / topology.num_nodes
    return row | {"plain": plain, "iterations_per_epoch": plan.num_batches, "batch_coverage": round(coverage, 4)}


def _plan(train_ids: np.ndarray, cell: Cell) -> EpochPlan:
    return EpochPlan(train_ids, cell.sampling.batch_size, seed=SEED)


class _Enough(Exception):
    """So many batches were trained on."""


class _Window(Silent):
    """Takes the ledger's counts at both ends of the window, and ends the training."""

    def __init__(self, warm: int, steps: int):
        self.ends, self.count = (warm, warm + steps), 0
        self.training: Training | None = None
        self.taken: list[Counter[tuple[str, int]]] = []

    def advance(self, n: int) -> None:
        self.count += n
        if self.count in self.ends and n:
            assert self.training is not None
            rows = self.training.run.ledger.rows()["counts"]
            self.taken.append(Counter({(row["name"], row["layer"]): row["n"] for row in rows}))
            if len(self.taken) == 2:
                raise _Enough


def _train(
    graph: GraphArtifacts, hotness: Artifact, cell: Cell, held: int, warm: int, steps: int, folder: Path
) -> dict[str, Any]:
    """Returns what was saved in the window, and where it came from."""
    settings = FreshSettings(
        policy=cell.policy, p_grad=cell.p_grad, t_stale=cell.t_stale, arena=str(held * FEATURES * 4)
    )
    table = TrainTable(
        name="fresh",
        trainer="fresh",
        layers=cell.layers,
        hidden=cell.hidden,
        epochs=1,
        settings=settings,
        features="memory",
    )
    semantic = ModelConfig(seed=SEED, train=table.config, sampling=cell.sampling)
    execution = RunExecution(**vars(table.execution), checkpoints=folder / "checkpoints")
    window = _Window(warm, steps)
    training = Training(graph.inputs | {"hotness": hotness}, {}, semantic, execution, "0" * 64, window)
    window.training, survivors = training, _counting(training)
    with suppress(_Enough):
        training.train()
    found = window.taken[1] - window.taken[0]
    assert sum(survivors[warm : warm + steps]) == found["inputs", 0], "the ledger's inputs are not the survivors"
    plain = found["inputs", 0] + found["pruned_nodes", 0]
    history = training.loop.executor.history  # pyright: ignore[reportAttributeAccessIssue]
    embeddings, features = history.arena.held(warm + steps)
    sources = [sum(found[name, layer] for name in ("inputs", "pruned_nodes")) for layer in range(1, cell.layers)]
    return {
        "plain": plain,
        "saving": round(1 - (found["inputs", 0] - found[HITS, 0]) / plain, 4),
        "pruned": round(found["pruned_nodes", 0] / plain, 4),
        "arena_hits": round(found[HITS, 0] / plain, 4),
        "history_hits": [
            round(found["history_hits", layer] / max(1, sources[layer - 1]), 4) for layer in range(1, cell.layers)
        ],
        "embeddings_held": embeddings,
        "features_held": features,
        "slots": history.arena.num_slots,
        "t_stale_steps": history.t_stale,
    }


def _counting(training: Training) -> list[int]:
    """Returns a list that gets the inputs of every batch that the step trains on."""
    executor: Any = training.loop.executor
    gradient, seen = executor.gradient, []

    def counted(batch: Any, between: Any) -> Any:
        seen.append(len({*np.asarray(batch.input_ids).tolist()}))
        return gradient(batch, between)

    executor.gradient = counted
    return seen


def _report(row: dict[str, Any], quick: bool) -> None:
    best = max(row["features_by_degree"], row["features_by_hotness"])
    row["times_features"] = round(row["saving"] / best, 3)
    cell = row["cell"]
    named = f"{cell['graph']} {cell['policy']} ratio {cell['ratio']} p_grad {cell['p_grad']} layers {cell['layers']}"
    print(
        f"{named} t_stale {row['t_stale_steps']}: saves {100 * row['saving']:.1f} % (features by degree "
        f"{100 * row['features_by_degree']:.1f}, by hotness {100 * row['features_by_hotness']:.1f}; {row['times_features']}x), "
        f"pruned {100 * row['pruned']:.1f}, arena {100 * row['arena_hits']:.1f}, hits by layer {row['history_hits']}, "
        f"{row['iterations_per_epoch']} iterations per epoch, {100 * row['batch_coverage']:.2f} % of the nodes per batch",
        flush=True,
    )
    record("fresh", row | {"scale": "quick" if quick else "full", "cpus": os.cpu_count()})


def _named(name: str) -> Cell:
    """Returns the cell of a name POLICY:RATIO:P_GRAD:T_STALE:LAYERS:GRAPH:ARENA, whose end may be left out."""
    types = (str, float, float, lambda text: int(text) if text.isdigit() else text, int, str, float)
    fields = ("policy", "ratio", "p_grad", "t_stale", "layers", "graph", "arena")
    given = name.split(":")
    values = {field: read(text) for field, read, text in zip(fields, types, given, strict=False)}
    return Cell(**values)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="*", type=_named, default=CELLS)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    main(False, options.cells, steps=options.steps)
