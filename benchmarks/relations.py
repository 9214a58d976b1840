"""A step of R-GCN on one sampled batch against DGL's RelGraphConv and PyG's RGCNConv, forwards and backwards, with freed memory kept.

All three have the same weights and rows, and their logits must agree first. PyG's FastRGCNConv gathers a matrix for every edge, 20 GB at
the full size, and is not measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.record import interleave, ratio, record
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layers.relations import MEMO
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from tests.trainers.graphs import random_topology

RELATIONS, WIDTH, HIDDEN, CLASSES, SEEDS, FANOUTS = 6, 128, 256, 16, 1_000, (15, 10)
SIZES = {True: (20_000, 300_000, 3), False: (200_000, 4_000_000, 7)}
"""Nodes, edges and repeats of the quick and the full form."""


def main(quick: bool) -> None:
    keep_freed_memory()
    nodes, edges, repeats = SIZES[quick]
    sampler = Sampler(random_topology(nodes, edges, seed=1, relations=RELATIONS), FANOUTS, seed=0)
    seeds = np.arange(SEEDS, dtype=np.int32)
    blocks = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), seeds, transpose="all")
    x, labels = torch.randn(blocks[0].num_src, WIDTH), torch.randint(0, CLASSES, (SEEDS,))
    row: dict[str, Any] = {"scale": "quick" if quick else "full", "edges": [len(each.indices) for each in blocks]}
    for bases in (0, 4):
        logits = contestants(blocks, x, bases)
        expected = logits["graphmill"]()
        for name, compute in logits.items():
            torch.testing.assert_close(compute(), expected, rtol=1e-3, atol=1e-3, msg=f"{name} has other logits")
        steps = {name: step(compute, labels) for name, compute in logits.items()}
        seconds = interleave(steps, repeats)
        row[f"bases {bases}"] = {name: statistics.median(each) for name, each in seconds.items()}
        ratios = {name: round(ratio(seconds, name, "graphmill"), 2) for name in seconds if name != "graphmill"}
        row[f"ratios, bases {bases}"] = ratios
        row[f"products, bases {bases}"] = share = product_share(steps["graphmill"])
        took = f"ours {1e3 * statistics.median(seconds['graphmill']):.0f} ms, {share:.0%} of it matrix products"
        print(f"{bases} bases: {took}; times ours: {ratios}")
    record("relations", row, ("torch", "numpy", "dgl", "torch-geometric"))


def step(logits: Callable[[], Tensor], labels: Tensor) -> Callable[[], None]:
    """Returns a function that computes the loss of logits and its gradients."""
    return lambda: cross_entropy(logits(), labels).backward()


def product_share(compute: Callable[[], None]) -> float:
    """Returns the share of matrix products in the time of a step, which bounds what anything else could win."""
    from torch.profiler import profile

    with profile() as found:
        compute()
    events = found.key_averages()
    products = sum(each.self_cpu_time_total for each in events if each.key in ("aten::mm", "aten::addmm", "aten::bmm"))
    return products / sum(each.self_cpu_time_total for each in events)


def contestants(blocks: tuple[Block, ...], x: Tensor, bases: int) -> dict[str, Callable[[], Tensor]]:
    """Returns functions that compute the logits of the batch, with equal weights."""
    import dgl
    from dgl.nn.pytorch import RelGraphConv
    from torch_geometric.nn import RGCNConv

    config = TrainConfig(model="rgcn", layers=2, hidden=HIDDEN, dropout=0.0, bases=bases)
    ours: Any = build_model(config, WIDTH, CLASSES, 0, RELATIONS)
    widths = [(WIDTH, HIDDEN), (HIDDEN, CLASSES)]
    more = ("basis", bases) if bases else (None, None)
    of_dgl = nn.ModuleList([RelGraphConv(*each, RELATIONS, *more) for each in widths])
    of_pyg = nn.ModuleList([RGCNConv(*each, RELATIONS, num_bases=bases or None) for each in widths])
    given = []
    with torch.no_grad():
        for layer, theirs, other, block in zip(ours.layers, of_dgl, of_pyg, blocks, strict=True):
            matrices = torch.stack([each.T for each in layer.matrices])
            pairs: Any = [
                (theirs.linear_r.W, matrices),
                (theirs.loop_weight, layer.own.weight.T),
                (theirs.h_bias, layer.own.bias),
            ]
            pairs += [(other.weight, matrices), (other.root, layer.own.weight.T), (other.bias, layer.own.bias)]
            pairs += [(theirs.linear_r.coeff, layer.coefficients), (other.comp, layer.coefficients)] if bases else []
            for to, value in pairs:
                to.copy_(value)
            given.append(_edges(block))

    def graphmill() -> Tensor:
        for block in blocks:
            vars(block).pop(MEMO, None)  # a batch comes once, so its runs are part of its step
        return ours(blocks, x, StepRandom(0))

    graphs = [
        dgl.create_block((src, dst), num_src_nodes=each.num_src, num_dst_nodes=each.num_dst)
        for (src, dst, _, _), each in zip(given, blocks, strict=True)
    ]

    def by_dgl() -> Tensor:
        h = of_dgl[0](graphs[0], x, *given[0][2:]).relu()
        return of_dgl[1](graphs[1], h, *given[1][2:])

    def by_pyg() -> Tensor:
        h = x
        for number, (layer, block, (src, dst, kind, _)) in enumerate(zip(of_pyg, blocks, given, strict=True)):
            h = layer((h, h[: block.num_dst]), torch.stack([src, dst]), kind)
            h = h if number else h.relu()
        return h

    return {"graphmill": graphmill, "dgl": by_dgl, "pyg": by_pyg}


def _edges(block: Block) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns i64[edges] sources, destinations and relations, and f32[edges, 1], one over the edges of each run."""
    assert block.edge_type is not None
    dst = torch.from_numpy(np.repeat(np.arange(block.num_dst), block.end - block.start))
    kind = torch.from_numpy(block.edge_type.astype(np.int64))
    run = dst * RELATIONS + kind
    counts = torch.bincount(run, minlength=block.num_dst * RELATIONS)
    return torch.from_numpy(block.indices.astype(np.int64)), dst, kind, 1 / counts[run].float()[:, None]
