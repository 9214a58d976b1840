"""Mini-batches of DGL or GraphBolt on memory-mapped files, as a user of theirs would train where features do not fit.

    python benchmarks/mapped_rivals.py SPEC.json

SPEC names the system, files, fan-outs, widths, and how long to go on. The file imports nothing of graphmill, because the interpreter that
has GraphBolt may be another one. Topology and features are mapped; random reads are advised for the features, so that a page fault reads a
page and not what lies around it. Rows are gathered by torch with as many threads as the step has. The model is that of `trainer =
"minibatch"`: SAGE layers of mean, ReLU and dropout, and Adam. The last line that is printed is JSON with the seconds of each batch.

With `links` in SPEC, a file of places of edges, it learns these edges as the systems' own examples of link prediction do: each has one
uniform pair beside it, the edges of a batch and their reverses are taken out of its blocks, and the score is the dot product of two rows
under binary cross entropy.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

LinkBatch = tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]
"""Blocks, input rows, i64[2, n] places of the ends of edges and then of the other pairs, and float32[n], 1 for an edge and 0 for others."""


def main() -> None:
    """Trains, and prints the seconds of each batch."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ.setdefault("DGLBACKEND", "pytorch")
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(spec["threads"])
    rows = _mapped(spec["rows"], random=True)
    model = RivalModel(rows.shape[1], spec)
    optimiser = torch.optim.Adam(model.parameters(), lr=spec["lr"])
    losses = (_link_losses if "links" in spec else _node_losses)(spec, rows, model)
    seconds, started = [], time.perf_counter()
    for loss in losses:
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        seconds.append(time.perf_counter() - started - sum(seconds))
        if len(seconds) == spec["batches"] or sum(seconds) > spec["seconds"]:
            break
    print(json.dumps({"batch_seconds": [round(each, 4) for each in seconds]}), flush=True)
    os._exit(0)  # their threads may wait for ever


def _mapped(path: str, random: bool = False) -> torch.Tensor:
    found = np.load(path, mmap_mode="r")
    if random:
        found._mmap.madvise(mmap.MADV_RANDOM)  # pyright: ignore
    return torch.from_numpy(found)


def _node_losses(spec: dict[str, Any], rows: torch.Tensor, model: Any) -> Iterator[torch.Tensor]:
    labels = _mapped(spec["labels"])
    for blocks, x, seeds in {"dgl": _dgl_batches, "graphbolt": _graphbolt_batches}[spec["system"]](spec, rows):
        yield torch.nn.functional.cross_entropy(model(blocks, x.float()), labels[seeds.long()].long())


def _link_losses(spec: dict[str, Any], rows: torch.Tensor, model: Any) -> Iterator[torch.Tensor]:
    seeds = torch.from_numpy(np.load(spec["links"]))
    if spec["system"] == "dgl":
        graph = _dgl_graph(spec, len(rows), ("csc", "coo"))  # it finds the ends of edges by the second
        batches = dgl_link_batches(graph, seeds, _mapped(spec["reverse"]), rows, spec)
    else:
        arrays = (_mapped(spec["indptr"]), _mapped(spec["indices"]))
        batches = graphbolt_link_batches(*arrays, seeds, rows, spec)
    for blocks, x, pairs, labels in batches:
        yield link_loss(model(blocks, x.float()), pairs, labels)


def link_loss(rows: torch.Tensor, pairs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns float[], the mean binary cross entropy of the dot products of pairs i64[2, n]."""
    scores = (rows[pairs[0]] * rows[pairs[1]]).sum(dim=1)
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)


def _dgl_graph(spec: dict[str, Any], nodes: int, formats: tuple[str, ...] = ("csc",)) -> Any:
    import dgl

    arrays = (_mapped(spec["indptr"]), _mapped(spec["wide_indices"]))  # it dies of sampled blocks of 32-bit ids
    return dgl.graph(("csc", (*arrays, torch.empty(0, dtype=torch.int64))), num_nodes=nodes).formats(list(formats))


def _dgl_batches(spec: dict[str, Any], rows: torch.Tensor) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
    import dgl

    graph = _dgl_graph(spec, len(rows))
    sampler = dgl.dataloading.NeighborSampler(list(reversed(spec["fanouts"])))
    seeds = torch.from_numpy(np.load(spec["train_ids"])).long()
    options = {"batch_size": spec["batch_size"], "shuffle": True, "num_workers": 0}
    loader: Any = dgl.dataloading.DataLoader(graph, seeds, sampler, **options)
    for inputs, outputs, blocks in loader:
        yield blocks, torch.index_select(rows, 0, inputs), outputs


def _graphbolt_batches(spec: dict[str, Any], rows: torch.Tensor) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
    return graphbolt_batches(_mapped(spec["indptr"]), _mapped(spec["indices"]), rows, spec)


def graphbolt_batches(
    indptr: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor, spec: dict[str, Any]
) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
    """Yields the blocks, input rows and seeds of an epoch, as GraphBolt's own examples load them.

    Args:
        indptr, indices: int64[N + 1], ids[E], the compressed columns.
        rows: [N, F], features.
        spec: fan-outs, batch size, and the file of the training nodes.
    """
    import dgl.graphbolt as gb  # pyright: ignore

    graph = gb.fused_csc_sampling_graph(indptr, indices)
    seeds = torch.from_numpy(np.load(spec["train_ids"])).to(indices.dtype)
    items = gb.ItemSampler(gb.ItemSet(seeds, names="seed_nodes"), batch_size=spec["batch_size"], shuffle=True)
    pipe = items.sample_neighbor(graph, list(reversed(spec["fanouts"])))
    store = gb.BasicFeatureStore({("node", None, "x"): gb.TorchBasedFeature(rows)})
    pipe = pipe.fetch_feature(store, node_feature_keys=["x"])
    for batch in gb.DataLoader(pipe, num_workers=0):
        yield batch.blocks, batch.node_features["x"], batch.seed_nodes


def reverse_places(indptr: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Returns i64[E], the place of every edge's reverse. Columns are ascending by target and source, so that bisection finds it."""
    nodes, source = len(indptr) - 1, indices.long()
    target = torch.repeat_interleave(torch.arange(nodes), indptr.diff())
    return torch.searchsorted(target * nodes + source, source * nodes + target)


def dgl_link_batches(
    graph: Any, seeds: torch.Tensor, reverse: torch.Tensor, rows: torch.Tensor, spec: dict[str, Any]
) -> Iterator[LinkBatch]:
    """Yields an epoch of edges as DGL's own examples load them.

    Args:
        graph: a graph of DGL.
        seeds: i64[n], places of edges among the columns.
        reverse: i64[E], the place of every edge's reverse.
        rows: [N, F], features.
        spec: fan-outs and batch size.
    """
    import dgl

    graph.ndata["x"] = rows
    inner = dgl.dataloading.NeighborSampler(list(reversed(spec["fanouts"])), prefetch_node_feats=["x"])
    negatives = dgl.dataloading.negative_sampler.Uniform(1)
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        inner, exclude="reverse_id", reverse_eids=reverse, negative_sampler=negatives
    )
    options: dict[str, Any] = {"batch_size": spec["batch_size"], "shuffle": True, "num_workers": 0}
    loader: Any = dgl.dataloading.DataLoader(graph, seeds, sampler, **options)
    for _, positive, negative, blocks in loader:
        ends = [torch.stack(each.edges(order="eid")) for each in (positive, negative)]
        labels = torch.cat([torch.ones(ends[0].shape[1]), torch.zeros(ends[1].shape[1])])
        yield blocks, blocks[0].srcdata["x"], torch.cat(ends, dim=1), labels


def graphbolt_link_batches(
    indptr: torch.Tensor, indices: torch.Tensor, seeds: torch.Tensor, rows: torch.Tensor, spec: dict[str, Any]
) -> Iterator[LinkBatch]:
    """Yields an epoch of edges as GraphBolt's own examples load them; arguments as above."""
    import dgl.graphbolt as gb  # pyright: ignore

    graph = gb.fused_csc_sampling_graph(indptr, indices)
    target = torch.searchsorted(indptr, seeds, right=True) - 1
    pairs = torch.stack([indices[seeds].long(), target], dim=1).to(indices.dtype)
    items = gb.ItemSampler(gb.ItemSet(pairs, names="node_pairs"), batch_size=spec["batch_size"], shuffle=True)
    pipe = items.sample_uniform_negative(graph, 1).sample_neighbor(graph, list(reversed(spec["fanouts"])))
    pipe = pipe.transform(partial(gb.exclude_seed_edges, include_reverse_edges=True))
    store = gb.BasicFeatureStore({("node", None, "x"): gb.TorchBasedFeature(rows)})
    pipe = pipe.fetch_feature(store, node_feature_keys=["x"])
    for batch in gb.DataLoader(pipe, num_workers=0):
        ends, labels = batch.node_pairs_with_labels
        yield batch.blocks, batch.node_features["x"], torch.stack(list(ends)).long(), labels.float()


class RivalModel(torch.nn.Module):
    """Layers of dgl.nn with a norm, ReLU and dropout between them; heads of attention side by side, in the last layer averaged.

    Args:
        in_width: columns of the features.
        spec: fan-outs, one a layer, width `hidden`, and `classes`; `model`, `heads`, `dropout` and `norm`, if they are not "sage", 1, 0.5
            and "none".
    """

    def __init__(self, in_width: int, spec: dict[str, Any]):
        import dgl.nn as layers  # pyright: ignore

        super().__init__()
        heads, kind = spec.get("heads", 1), spec.get("model", "sage")
        hidden = [spec["hidden"]] * (len(spec["fanouts"]) - 1)
        pairs = list(itertools.pairwise([in_width, *hidden, spec["classes"]]))
        kinds: dict[str, Any] = {
            "sage": lambda a, b, last: layers.SAGEConv(a, b, "mean"),
            "gat": lambda a, b, last: layers.GATConv(a, b if last else b // heads, heads),
        }
        made = [kinds[kind](*pair, place + 1 == len(pairs)) for place, pair in enumerate(pairs)]
        norms = [torch.nn.LayerNorm(width) if spec.get("norm") == "layer" else torch.nn.Identity() for width in hidden]
        self.norms = torch.nn.ModuleList(norms)
        self.layers, self.dropout = torch.nn.ModuleList(made), torch.nn.Dropout(spec.get("dropout", 0.5))

    def forward(self, blocks: Any, h: torch.Tensor) -> torch.Tensor:
        """Returns float[num_dst, classes] from the rows of the first block's sources."""
        for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h)
            last = index + 1 == len(self.layers)
            if h.dim() == 3:
                h = h.mean(1) if last else h.flatten(1)
            if not last:
                h = self.dropout(self.norms[index](h).relu())
        return h


if __name__ == "__main__":
    main()
