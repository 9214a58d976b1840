"""Training of links beside DGL and GraphBolt: seconds of an epoch of mini-batches, and the ranks of R-GCN on Nations.

    python -m benchmarks links [--parts steps,nations,limited]

    steps      an epoch of 3-layer GraphSAGE with the dot product on edges of R-MAT: DGL 1.1.3's edge sampler and GraphBolt
    nations    R-GCN with DistMult on a knowledge graph of PyKEEN's package beside DGL's RelGraphConv          benchmarks/link_nations.py
    limited    links of nodes with features of 3.5 times the memory, from disk                                  benchmarks/link_limited.py

Each part compares losses first: the same parameters and the same batch. In "steps" all take one uniform pair per edge, and leave the
edges of a batch and their reverses out of its blocks. Contestants have processes of their own and come in drawn order; ratios are rival
over ours, in seconds of the clock and of the processor. GraphBolt needs the interpreter that GRAPHBOLT_PYTHON names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import link_limited, link_nations
from benchmarks.disk_inputs import home
from benchmarks.record import in_turn, record
from benchmarks.rival_process import NAMES, RivalProcess, block_edges, contestants, of_both_clocks, spec_of
from benchmarks.worker import Worker
from graphmill.assets.sources.registry import config_class
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.links.negatives import DrawnNegatives, uniform_candidates
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.batches.links import LinkBatching
from graphmill.trainers.batches.source import OnlineSource
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.loop.executor import BatchGradient
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.links.heads import DotHead
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import MemorySource
from tests.graphs import GraphArtifacts, OpenedGraph, build_graph, open_paths

THREADS, BATCH_SIZE, FANOUTS, ROUNDS = 2, 1024, (15, 10, 5), 3
CONFIG = TrainConfig(model="sage", layers=3, hidden=256, dropout=0.5, threads=THREADS)
QUICK = {"nodes": 20_000, "edges": 150_000, "features": 64, "classes": 2}
FULL = {"nodes": 2_000_000, "edges": 16_500_000, "features": 100, "classes": 2}
EDGES = {True: 4 * BATCH_SIZE, False: 16 * BATCH_SIZE}
"""Edges of an epoch, quick and full."""
PARTS = ("steps", "nations", "limited")


def main(quick: bool, parts: Sequence[str] | None = None) -> None:
    """Measures the parts, and records a row for each."""
    for part in parts or PARTS:
        row = {"steps": steps, "nations": link_nations.measure, "limited": link_limited.measure}[part](quick)
        record("links", {"part": part, "scale": "quick" if quick else "full"} | row, ("torch", "numpy", "dgl"))


def steps(quick: bool) -> dict[str, Any]:
    """Returns the seconds of an epoch of edges, and the ratios."""
    size = QUICK if quick else FULL
    keep_freed_memory()
    torch.set_num_threads(THREADS)
    with home() as store:
        graph = build_graph(store, config_class("rmat")(seed=1, **size), threads=THREADS)
        chosen = Path(store.home) / "edges.npy"
        np.save(
            chosen,
            np.sort(np.random.default_rng(0).choice(graph.open().topology.num_edges, EDGES[quick], replace=False)),
        )
        return {"graph": size, "batch_size": BATCH_SIZE, "fanouts": FANOUTS} | _compare(graph, chosen, quick)


def _compare(graph: GraphArtifacts, chosen: Path, quick: bool) -> dict[str, Any]:
    spec = spec_of(graph, CONFIG, FANOUTS, BATCH_SIZE) | {"edges": str(chosen), "classes": CONFIG.hidden}
    answers, errors = {}, {}

    def epoch(name: str, ask: Callable[[str], Any]) -> tuple[float, float]:
        answers[name] = answer = ask("epoch")
        return answer["seconds"], answer["processor"]

    with ExitStack() as opened:
        ours = opened.enter_context(Worker(contestant, graph.paths, str(chosen)))
        runs: dict[str, Any] = {"ours": lambda: epoch("ours", ours.ask)}
        for system in ("dgl", "graphbolt"):
            # Rivals as their users start them are slower, and five processes with batches of links do not fit in 24 GiB.
            for name, python, kept in contestants(system, quick=True):
                rival = opened.enter_context(
                    RivalProcess(python, spec | {"system": system}, kept, "benchmarks.link_child")
                )
                errors[name] = compare(rival, graph.open(), np.load(chosen))
                runs[name] = lambda name=name, rival=rival: epoch(name, rival.ask)
        row = of_both_clocks(in_turn(runs, 1 if quick else ROUNDS))
    shown = {name: {key: answer[key] for key in ("edges", "loss")} for name, answer in answers.items()}
    print(f"  losses and gradients agree within {errors}; last epochs {shown}")
    print(f"  processor seconds {row['processor']}; {row['processor_ratios']}", flush=True)
    print(f"  seconds {row['seconds']}; {row['ratios']}", flush=True)
    return row | {"epochs": shown, "errors": errors}


class OurEpochs:
    """Epochs of the `minibatch` trainer's source and step on edges.

    Args:
        edges: i64[n], places of the edges among the columns of the topology.
    """

    def __init__(self, graph: OpenedGraph, edges: np.ndarray):
        self.model, self.seeds = our_model(graph), seeds_of(graph, edges)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=CONFIG.lr)
        self.gradient, self.ledger, self.epochs = BatchGradient(self.model, 0, our_loss()), Ledger(), 0
        batching = LinkBatching(
            topology=graph.topology,
            labels=graph.labels,
            edges=self.seeds,
            plan=EpochPlan(np.arange(len(edges)), BATCH_SIZE, seed=0),
            edge_weight=None,
            ledger=self.ledger,
            queue_bytes=2**30,
            transpose=self.model.transpose,
        )
        sampler = LinkSampler(Sampler(graph.topology, FANOUTS, seed=0, threads=THREADS), self.seeds)
        self.source = OnlineSource(batching, MemorySource(graph.features, THREADS), [sampler], in_turn=True)

    def epoch(self) -> dict[str, float]:
        """Trains an epoch. Returns its seconds, those of the processor, edges of the blocks and mean loss."""
        before, losses, started, busy = self._edges(), [], time.perf_counter(), time.process_time()
        for batch in self.source.batches(self.epochs):
            done = self.gradient(batch)
            for parameter in self.model.parameters():
                parameter.grad /= done.seeds
            self.optimiser.step()
            self.optimiser.zero_grad()
            losses.append(float(done.loss_sum) / done.seeds)
            del batch
        self.epochs += 1
        seconds = {"seconds": time.perf_counter() - started, "processor": time.process_time() - busy}
        return seconds | {"edges": self._edges() - before, "loss": float(np.mean(losses))}

    def _edges(self) -> int:
        return sum(row["n"] for row in self.ledger.rows()["counts"] if row["name"] == "edges")


def contestant(paths: tuple[Path, Path], chosen: str) -> Mapping[str, Callable[[], object]]:
    """Returns "epoch", which runs an epoch of ours."""
    torch.set_num_threads(THREADS)
    keep_freed_memory()  # as the trainer does
    return {"epoch": OurEpochs(open_paths(paths), np.load(chosen)).epoch}


def our_model(graph: OpenedGraph) -> Any:
    """Returns a model whose last layer gives rows."""
    model = build_model(CONFIG, graph.features.width, CONFIG.hidden, seed=0)
    model.link_head = DotHead()
    return model


def our_loss() -> PairLoss:
    """Returns the loss of a batch of edges."""
    return PairLoss(DotHead(), LinkLoss("binary"))


def seeds_of(graph: OpenedGraph, edges: np.ndarray) -> EdgeSeeds:
    """Returns edges as seeds, with a uniform pair for each."""
    topology = graph.topology
    target = (np.searchsorted(topology.indptr, edges, "right") - 1).astype(np.int32)
    negatives = DrawnNegatives(
        seed=0, per_positive=1, candidates={"target": [uniform_candidates(0, topology.num_nodes)]}
    )
    return EdgeSeeds(source=np.array(topology.indices[edges]), target=target, negatives=negatives)


def compare(rival: RivalProcess, graph: OpenedGraph, edges: np.ndarray) -> float:
    """Runs both models with the same parameters on the same batch of edges.

    Returns:
        The largest difference of losses and gradients, norm-wise, relative to theirs.

    Raises:
        AssertionError: it is above 1e-4.
    """
    model, seeds, key = our_model(graph).eval(), seeds_of(graph, edges), BatchKey(Stream.PROBE, 0, 0)
    sampler, chosen = LinkSampler(Sampler(graph.topology, FANOUTS, seed=3), seeds), np.arange(256)
    blocks, batch = sampler.sample(key, chosen, transpose=model.transpose), seeds.batch(key, chosen)
    x = np.array(graph.features.open()[blocks[0].src_ids], np.float32)
    rows = model(blocks, torch.from_numpy(x), StepRandom(0, training=False))
    loss = our_loss()(rows, torch.from_numpy(batch.scored)) / len(chosen)
    loss.backward()
    parameters, found = {}, {"loss": loss.detach().numpy()}
    for index, layer in enumerate(model.layers):
        for name, parameter in layer.named_parameters():
            theirs = f"layers.{index}.{NAMES['sage'][name]}"
            parameters[theirs], found[theirs] = parameter.detach().numpy(), parameter.grad.numpy()
    pairs = np.concatenate([batch.pairs, batch.negatives.reshape(-1, 2)]).T.astype(np.int64)
    written = {
        "x": x,
        "pairs": pairs,
        "labels": (np.arange(pairs.shape[1]) < len(chosen)).astype(np.float32),
    } | parameters
    for index, block in enumerate(blocks):
        src, dst = block_edges(block, own=False)
        written |= {f"src{index}": src, f"dst{index}": dst, f"sizes{index}": np.array([block.num_src, block.num_dst])}
    np.savez(rival.folder / "given.npz", **written)
    return rival.agree(found)
