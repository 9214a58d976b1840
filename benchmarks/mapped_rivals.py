"""Mini-batches of DGL or GraphBolt on memory-mapped files, as a user of theirs would train where features do not fit.

    python benchmarks/mapped_rivals.py SPEC.json

SPEC names the system, files, fan-outs, widths, and how long to go on. The file imports nothing of graphmill, because the interpreter that
has GraphBolt may be another one. Topology and features are mapped; random reads are advised for the features, so that a page fault reads a
page and not what lies around it. Rows are gathered by torch with as many threads as the step has. The model is that of `trainer =
"minibatch"`: SAGE layers of mean, ReLU and dropout, and Adam. The last line that is printed is JSON with the seconds of each batch.
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
from pathlib import Path
from typing import Any

import numpy as np
import torch


def main() -> None:
    """Trains, and prints the seconds of each batch."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ.setdefault("DGLBACKEND", "pytorch")
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(spec["threads"])
    rows, labels = _mapped(spec["rows"], random=True), _mapped(spec["labels"])
    model = RivalModel(rows.shape[1], spec)
    optimiser = torch.optim.Adam(model.parameters(), lr=spec["lr"])
    batches = {"dgl": _dgl_batches, "graphbolt": _graphbolt_batches}[spec["system"]](spec, rows)
    seconds, started = [], time.perf_counter()
    for blocks, x, seeds in batches:
        loss = torch.nn.functional.cross_entropy(model(blocks, x.float()), labels[seeds.long()].long())
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


def _dgl_batches(spec: dict[str, Any], rows: torch.Tensor) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
    import dgl

    arrays = (_mapped(spec["indptr"]), _mapped(spec["wide_indices"]))  # it dies of sampled blocks of 32-bit ids
    graph = dgl.graph(("csc", (*arrays, torch.empty(0, dtype=torch.int64))), num_nodes=len(rows)).formats(["csc"])
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
