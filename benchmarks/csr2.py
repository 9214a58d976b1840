"""Pruning of mini-batches: removal in three formats (FreshGNN, Fig. 15b), and what the whole prune takes of an iteration.

R-MAT graphs, fanouts [20, 15, 10]. Which nodes are cached is drawn: a share of every layer's sources. First the three formats must leave
the same edges, and the pruned batch must have the bytes of the NumPy rule.

- `removal` removes the in-edges of the same cached nodes from the same block, one node after the other, in C++ on one thread: CSR2 sets
  the row's end, CSR moves the later edges and row ends, COO searches the node's edges and moves the later ones in both arrays. CSR and
  COO are timed on a drawn part of the nodes, the first of a copy that is made outside the clock; all times are per node.
- `step` trains a 3-layer SAGE with a history, one phase after the other: lookup, prune, transpose, gather, forward and backward and
  optimiser, norms and update. The share of `prune` is that of all of them without the sampler, which runs ahead on threads.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.record import record
from benchmarks.sampling import make_graph
from graphmill.kernels import _native
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.history.arena import History, LayerRows
from graphmill.kernels.history.csr2 import Pruned, prune, prune_reference
from graphmill.kernels.history.row_norms import row_norms
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, BatchKey, Block, Stream, Topology
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.ops import splice
from graphmill.trainers.recipe.config import TrainConfig

QUICK = {"nodes": 200_000, "edges": 1_650_000}
FULL = {"nodes": 2_000_000, "edges": 16_500_000}
FANOUTS, WIDTH, HIDDEN, CLASSES, THREADS = (20, 15, 10), 128, 256, 16, 2
CACHED = (0.1, 0.3)
TIMED_NODES = 64
"""Nodes that are removed from CSR and COO in one round."""

PHASES = ("lookup", "prune", "transpose", "gather", "train", "update")
TARGET_REMOVAL, TARGET_SHARE = 10.0, 0.05


def main(quick: bool) -> None:
    keep_freed_memory()
    torch.set_num_threads(THREADS)
    size = QUICK if quick else FULL
    indptr, indices = make_graph(**size)
    degree = np.diff(indptr).astype(np.int32)
    graph = Topology(indptr=indptr, indices=indices, in_degree=degree, out_degree=degree)
    print(f"R-MAT {size['nodes']:,} nodes, {len(indices):,} directed edges; fanouts {list(FANOUTS)}")
    removals, steps = [], []
    for batch_size in (100,) if quick else (100, 1000):
        for share in CACHED:
            removals.append(removal(graph, batch_size, share, rounds=3 if quick else 5))
            show_removal(removals[-1])
        steps.append(step(graph, batch_size, warm=5 if quick else 15, counted=10 if quick else 20))
        show_step(steps[-1])
    record("csr2", {"scale": "quick" if quick else "full", "graph": size, "removal": removals, "step": steps})
    slow = [row for row in removals if min(row["csr_over_csr2"], row["coo_over_csr2"]) < TARGET_REMOVAL]
    assert not slow, f"removal in CSR2 is less than {TARGET_REMOVAL} times as fast: {slow}"
    long = [row for row in steps if row["prune_share"] > TARGET_SHARE]
    assert not long, f"pruning takes more than {TARGET_SHARE:.0%} of an iteration: {long}"


def sampled(graph: Topology, sampler: Sampler, batch_size: int, number: int) -> tuple[Block, ...]:
    draws = np.random.default_rng(number)
    connected = np.flatnonzero(graph.in_degree)
    seeds = draws.choice(connected, batch_size, replace=False).astype(graph.indices.dtype)
    return sampler.sample(BatchKey(Stream.TRAIN, 0, number), seeds, transpose="none")


def drawn_slots(blocks: tuple[Block, ...], share: float, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [
        np.where(rng.random(block.num_src) < share, np.arange(block.num_src), -1).astype(np.int32)
        for block in blocks[1:]
    ]


def removal(graph: Topology, batch_size: int, share: float, rounds: int) -> dict[str, Any]:
    """Times the removal of cached nodes from the lowest block, which has the most edges, in microseconds per node."""
    blocks = sampled(graph, Sampler(graph, FANOUTS, seed=1, threads=THREADS), batch_size, 0)
    slots, block = drawn_slots(blocks, share, 1), blocks[0]
    check(blocks, slots)
    cached = np.flatnonzero(slots[0] >= 0).astype(np.int32)
    few = np.random.default_rng(2).permutation(cached)[:TIMED_NODES]
    check_formats(block, few)
    taken: dict[str, list[float]] = defaultdict(list)
    order = np.random.default_rng(3)
    formats = {"csr2": (remove_csr2, cached), "csr": (remove_csr, few), "coo": (remove_coo, few)}
    for number in range(rounds + 1):
        for name in order.permutation(list(formats)):
            make, rows = formats[name]
            seconds = make(block, rows)[0]
            if number:
                taken[name].append(seconds / len(rows) * 1e6)
    times = {name: statistics.median(values) for name, values in taken.items()}
    found = {
        "batch_size": batch_size,
        "share": share,
        "edges": block.num_edges,
        "nodes": block.num_dst,
        "removed": len(cached),
    }
    ratios = {f"{name}_over_csr2": times[name] / times["csr2"] for name in ("csr", "coo")}
    return found | {f"{name}_us_per_node": value for name, value in times.items()} | ratios


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def remove_csr2(block: Block, rows: Array) -> tuple[float, Array]:
    end = block.end.copy()
    seconds, _ = timed(lambda: _native.remove_in_edges(block.start, end, rows))
    left = [block.indices[low:high] for low, high in zip(block.start, end, strict=True) if high > low]
    return seconds, np.concatenate(left)


def remove_csr(block: Block, rows: Array) -> tuple[float, Array]:
    indptr, indices = np.append(block.start, block.end[-1]).astype(np.int32), block.indices.copy()
    seconds, left = timed(lambda: _native.remove_from_csr(indptr, indices, rows))
    return seconds, indices[:left]


def remove_coo(block: Block, rows: Array) -> tuple[float, Array]:
    dst = np.repeat(np.arange(block.num_dst, dtype=np.int32), block.end - block.start)
    src = block.indices.copy()
    seconds, left = timed(lambda: _native.remove_from_coo(dst, src, rows))
    return seconds, src[:left]


def check_formats(block: Block, rows: Array) -> None:
    """The three formats leave the same edges."""
    expected = remove_csr2(block, rows)[1]
    for other in (remove_csr, remove_coo):
        np.testing.assert_array_equal(other(block, rows)[1], expected)


def check(blocks: tuple[Block, ...], slots: list[Array]) -> None:
    """The pruned batch has the bytes of the rule in NumPy."""
    found, expected = prune(blocks, slots, threads=THREADS), prune_reference(blocks, slots)
    np.testing.assert_array_equal(found.origin, expected.origin)
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        for name in ("start", "end", "indices", "src_ids"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def step(graph: Topology, batch_size: int, warm: int, counted: int) -> dict[str, Any]:
    """Trains some steps with a history and times their phases, in milliseconds."""
    trained = HistoryTraining(graph)
    sampler = Sampler(graph, FANOUTS, seed=1, threads=THREADS)
    taken: dict[str, list[float]] = defaultdict(list)
    left = before = 0
    for number in range(1, warm + counted + 1):
        blocks = sampled(graph, sampler, batch_size, number)
        pruned, seconds = trained.step(number, blocks)
        if number <= warm:
            continue
        for name, value in seconds.items():
            taken[name].append(1e3 * value)
        left, before = left + len(pruned.origin), before + blocks[0].num_src
    times = {name: statistics.median(taken[name]) for name in PHASES}
    total = sum(times.values())
    shares = {"prune_share": times["prune"] / total, "lookup_share": times["lookup"] / total}
    return {"batch_size": batch_size, "milliseconds": times, "total": total, "inputs_left": left / before} | shares


class HistoryTraining:
    """A model, a table and a history, and one step of training with them."""

    def __init__(self, graph: Topology):
        rng, num_nodes = np.random.default_rng(1), graph.num_nodes
        self.table = rng.random((num_nodes, WIDTH), np.float32)
        self.labels = torch.from_numpy(rng.integers(0, CLASSES, num_nodes))
        model = build_model(TrainConfig(layers=len(FANOUTS), hidden=HIDDEN), WIDTH, CLASSES, seed=1)
        assert isinstance(model, LayeredModel)
        self.model, self.optimiser = model, torch.optim.Adam(model.parameters(), lr=0.003)
        memory = np.full(num_nodes * HIDDEN, 1, np.uint8)  # a quarter of all rows; touched, as in a run that goes on
        self.history = History(
            memory=memory, num_layers=len(FANOUTS) - 1, num_nodes=num_nodes, width=HIDDEN, dtype=np.float32,
            t_stale=200, p_grad=0.9, threads=THREADS,
        )  # fmt: skip

    def step(self, now: int, blocks: tuple[Block, ...]) -> tuple[Pruned, dict[str, float]]:
        """Returns what was left of a batch, and the seconds of each phase."""
        history, seconds = self.history, {}
        seconds["lookup"], slots = timed(
            lambda: [history.lookup(layer, blocks[layer].src_ids, now) for layer in range(1, len(blocks))]
        )
        seconds["prune"], pruned = timed(lambda: prune(blocks, slots, threads=THREADS))
        seconds["transpose"], left = timed(lambda: [pruned.blocks[0], *map(transpose, pruned.blocks[1:])])
        x = torch.empty((left[0].num_src, WIDTH))
        seconds["gather"], _ = timed(lambda: gather(self.table, left[0].src_ids, x.numpy(), threads=THREADS))
        seconds["train"], kept = timed(lambda: self.train(now, left, x))
        seconds["update"], _ = timed(lambda: history.update(now, [self.rows_of(*each) for each in kept]))
        return pruned, seconds

    def train(self, now: int, blocks: list[Block], x: torch.Tensor) -> list[tuple[int, Block, torch.Tensor]]:
        random, kept = StepRandom(1, 0, now), []
        h = self.model.input(x, blocks[0].src_ids, random)
        for layer, block in enumerate(blocks):
            if block.splice is not None:
                h = splice(h, torch.from_numpy(self.history.embeddings[block.splice.hist_slot]), block.splice)
            if layer:
                h.retain_grad()
                kept.append((layer, block, h))
            h = self.model.forward_layer(layer, block, h, random)
        self.optimiser.zero_grad()
        cross_entropy(h, self.labels[blocks[-1].dst_ids]).backward()
        self.optimiser.step()
        return kept

    def rows_of(self, layer: int, block: Block, h: torch.Tensor) -> LayerRows:
        assert h.grad is not None
        norms = row_norms(h.grad.numpy(), threads=THREADS)
        cached = None if block.splice is None else block.splice.hist_pos
        return LayerRows(layer=layer, ids=block.src_ids, rows=h.detach().numpy(), norms=norms, cached=cached)


def show_removal(row: dict[str, Any]) -> None:
    print(f"batch {row['batch_size']:5}, {row['share']:.0%} cached, {row['edges']:9,} edges, us per node:", end=" ")
    others = (f"{name} {row[f'{name}_us_per_node']:.1f} ({row[f'{name}_over_csr2']:,.0f} x)" for name in ("csr", "coo"))
    print(f"csr2 {row['csr2_us_per_node']:.4f}, {', '.join(others)}")


def show_step(row: dict[str, Any]) -> None:
    phases = ", ".join(f"{name} {value:.2f}" for name, value in row["milliseconds"].items())
    print(
        f"batch {row['batch_size']:5}: {phases} ms; prune {row['prune_share']:.1%}; {row['inputs_left']:.0%} of the inputs left"
    )
