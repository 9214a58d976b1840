"""DGL or GraphBolt on a graph in memory, as a user of theirs would write it, in a process that answers questions.

    python -m benchmarks.rival_child SPEC.json

SPEC names the system, the files of the graph, fan-outs, widths and threads. A question is a line of JSON on standard input, and so is its
answer on standard output. The file imports nothing of graphmill, because the interpreter that has GraphBolt may be another one.

A graph is loaded as its system wants it: DGL 1.1.3 dies on sampled blocks of 32-bit ids and gets 64-bit ones, GraphBolt 32-bit ones. For
attention every node gets an edge from itself, which DGL's layer needs.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.mapped_rivals import RivalModel, graphbolt_batches

REST_SECONDS = 0.02
"""Threads of OpenMP spin for some milliseconds after a loop, on a core that the next contestant needs."""


class Rival:
    """Answers by name.

    Args:
        spec: what the file SPEC says.
    """

    def __init__(self, spec: dict[str, Any]):
        self.spec, self.system = spec, spec["system"]
        torch.manual_seed(spec.get("seed", 0))
        torch.set_num_threads(spec["threads"])
        arrays = [torch.from_numpy(np.load(spec[name])) for name in ("indptr", "indices")]
        self.indptr, self.indices = arrays
        if spec.get("model") == "gat":
            self.indptr, self.indices = with_own_edges(*arrays)
        if self.system == "dgl":
            self.indices = self.indices.long()

    @cached_property
    def graph(self) -> Any:
        """The graph that DGL samples."""
        import dgl

        empty = torch.empty(0, dtype=torch.int64)
        arrays = ("csc", (self.indptr, self.indices.long(), empty))
        return dgl.graph(arrays, num_nodes=len(self.indptr) - 1)

    @cached_property
    def whole(self) -> Any:
        """The graph that layers run over as a whole: DGL's sparse product fails on one of columns without ids of the edges."""
        import dgl

        dst = torch.repeat_interleave(torch.arange(len(self.indptr) - 1), self.indptr.diff())
        graph: Any = dgl.graph((self.indices.long(), dst), num_nodes=len(self.indptr) - 1)
        graph.create_formats_()
        return graph

    @cached_property
    def rows(self) -> torch.Tensor:
        """Features, float32[N, F]; those of a smaller type are stored so, which DGL's layers do not read."""
        return torch.from_numpy(np.load(self.spec["rows"])).float()

    @cached_property
    def labels(self) -> torch.Tensor:
        """Classes, int64[N]."""
        return torch.from_numpy(np.load(self.spec["labels"])).long()

    @cached_property
    def model(self) -> Any:
        """The model that is trained."""
        return self._new_model(self.rows.shape[1])

    def _new_model(self, in_width: int) -> Any:
        return RivalModel(in_width, self.spec)

    @cached_property
    def optimiser(self) -> Any:
        """Adam over the model's parameters."""
        return torch.optim.Adam(self.model.parameters(), lr=self.spec["lr"])

    def sample(self, seeds: str, way: str) -> dict[str, Any]:
        """Samples batches. Returns the seconds of all, those of the processor, and their number of edges.

        Args:
            seeds: file of ids[batches, size].
            way: "unfused", "fused" (DGL's own choice on a CPU) or "graphbolt".
        """
        batches = torch.from_numpy(np.load(seeds)).to(self.indices.dtype)
        edges, drawn = 0, self._sampled(batches, way)
        started, busy = time.perf_counter(), time.process_time()
        for blocks in drawn:
            edges += sum(block.num_edges() for block in blocks)
        seconds = {"seconds": time.perf_counter() - started, "processor": time.process_time() - busy}
        return seconds | {"edges": edges}

    def sampled(self, seeds: str, way: str, out: str) -> None:
        """Writes the edges of the first batch as original ids: `dst_ids`, `dst`, `src` of each layer, from the inputs on."""
        import dgl

        batches = torch.from_numpy(np.load(seeds)[:1]).to(self.indices.dtype)
        found, blocks = {}, next(self._sampled(batches, way))
        ids = blocks[0].srcdata[dgl.NID]
        for layer, block in enumerate(blocks):
            src, dst = block.edges()
            found[f"src{layer}"] = ids[src.long()]
            # GraphBolt names the inputs alone. Sources begin with the destinations, which are the sources of the next layer.
            ids = ids[: block.num_dst_nodes()]
            found |= {f"dst_ids{layer}": ids, f"dst{layer}": dst}
        np.savez(out, **{name: value.numpy() for name, value in found.items()})

    def _sampled(self, batches: torch.Tensor, way: str) -> Iterator[Any]:
        """Yields the blocks of each batch."""
        fanouts = list(reversed(self.spec["fanouts"]))
        if way == "graphbolt":
            import dgl.graphbolt as gb  # pyright: ignore

            graph = gb.fused_csc_sampling_graph(self.indptr, self.indices)
            items = gb.ItemSampler(
                gb.ItemSet(batches.flatten(), names="seed_nodes"), batch_size=batches.shape[1], shuffle=False
            )
            for batch in items.sample_neighbor(graph, fanouts):
                yield batch.blocks
            return
        import dgl

        sampler = dgl.dataloading.NeighborSampler(fanouts, fused=way == "fused")
        for seeds in batches:
            yield sampler.sample_blocks(self.graph, seeds)[2]

    def epoch(self) -> dict[str, Any]:
        """Trains an epoch of mini-batches. Returns its seconds, those of the processor, edges of the blocks and mean loss."""
        self.model.train()
        made, edges, losses = self._losses(), 0, []
        self.optimiser.zero_grad()
        started, busy = time.perf_counter(), time.process_time()
        for blocks, loss in made:
            loss.backward()
            self.optimiser.step()
            self.optimiser.zero_grad()
            edges += sum(block.num_edges() for block in blocks)
            losses.append(loss.item())
        seconds = {"seconds": time.perf_counter() - started, "processor": time.process_time() - busy}
        return seconds | {"edges": edges, "loss": float(np.mean(losses))}

    def _losses(self) -> Iterator[tuple[Any, torch.Tensor]]:
        """Yields the blocks and the loss of each batch."""
        for blocks, x, labels in self._batches():
            yield blocks, cross_entropy(self.model(blocks, x), labels)

    def _batches(self) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
        if self.system == "graphbolt":
            for blocks, x, seeds in graphbolt_batches(self.indptr, self.indices, self.rows, self.spec):
                yield blocks, x, self.labels[seeds.long()]
            return
        for _, _, blocks in self.loader:
            yield blocks, blocks[0].srcdata["x"], blocks[-1].dstdata["y"]

    @cached_property
    def loader(self) -> Any:
        """DGL's loader, which fetches rows and labels with the blocks."""
        import dgl

        self.graph.ndata["x"], self.graph.ndata["y"] = self.rows, self.labels
        fanouts = list(reversed(self.spec["fanouts"]))
        sampler = dgl.dataloading.NeighborSampler(fanouts, prefetch_node_feats=["x"], prefetch_labels=["y"])
        ids = torch.from_numpy(np.load(self.spec["train_ids"])).long()
        options: dict[str, Any] = {"batch_size": self.spec["batch_size"], "shuffle": True, "num_workers": 0}
        return dgl.dataloading.DataLoader(self.graph, ids, sampler, **options)

    def whole_epoch(self) -> dict[str, Any]:
        """Trains one step over the whole graph. Returns its seconds and loss."""
        self.model.train()
        ids = torch.from_numpy(np.load(self.spec["train_ids"])).long()
        blocks = [self.whole] * len(self.spec["fanouts"])
        started = time.perf_counter()
        self.optimiser.zero_grad()
        logits = self.model(blocks, self.rows)
        loss = cross_entropy(logits[ids], self.labels[ids])
        loss.backward()
        self.optimiser.step()
        return {"seconds": time.perf_counter() - started, "loss": loss.item()}

    def accuracy(self) -> float:
        """Returns the share of validation nodes that the model classifies rightly from all their neighbours."""
        self.model.eval()
        ids = torch.from_numpy(np.load(self.spec["valid_ids"])).long()
        with torch.no_grad():
            logits = self.model([self.whole] * len(self.spec["fanouts"]), self.rows)
        return float((logits[ids].argmax(1) == self.labels[ids]).float().mean())

    def compare(self, given: str, out: str) -> None:
        """Runs a model of given parameters on given blocks, and writes its logits and gradients; a training begins with them.

        Args:
            given: file with the blocks (`src0`, `dst0`, `sizes0`, ...), the input rows `x`, `labels`, and parameters by name.
            out: file that gets `logits` and the gradients by name.
        """
        found, logits, known = self._computed(given)
        cross_entropy(logits, torch.from_numpy(found["labels"]).long()).backward()
        np.savez(out, logits=logits.detach().numpy(), **gradients(known))

    def _computed(self, given: str) -> tuple[dict[str, Any], torch.Tensor, dict[str, Any]]:
        """Returns what a file of `compare` has, the outputs of the model for its blocks, and the model's parameters by name."""
        found = dict(np.load(given))
        model = self._new_model(found["x"].shape[1]).eval()
        known = dict(model.named_parameters())
        with torch.no_grad():
            for name, parameter in known.items():
                parameter.copy_(torch.from_numpy(found[name]).view(parameter.shape))
        self.model.load_state_dict(model.state_dict())
        return found, model(self._given_blocks(found), torch.from_numpy(found["x"])), known

    def _given_blocks(self, found: dict[str, Any]) -> list[Any]:
        """Returns the blocks that a file of `compare` has."""
        blocks = itertools.takewhile(lambda layer: f"src{layer}" in found, itertools.count())
        return [
            self._block(
                *(torch.from_numpy(found[f"{end}{layer}"]) for end in ("src", "dst")), *found[f"sizes{layer}"].tolist()
            )
            for layer in blocks
        ]

    def _block(self, src: torch.Tensor, dst: torch.Tensor, num_src: int, num_dst: int) -> Any:
        """Returns a block as its system holds it, of edges i64[E] and i64[E]."""
        import dgl

        return dgl.create_block((src, dst), num_src_nodes=num_src, num_dst_nodes=num_dst)


def gradients(known: dict[str, Any]) -> dict[str, Any]:
    """Returns the gradients of parameters by name."""
    return {name: parameter.grad.numpy() for name, parameter in known.items() if parameter.grad is not None}


def with_own_edges(indptr: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns compressed columns in which every node's row begins with the node itself."""
    nodes = len(indptr) - 1
    wider = indptr + torch.arange(nodes + 1)
    values = torch.empty(len(indices) + nodes, dtype=indices.dtype)
    own = torch.zeros(len(values), dtype=torch.bool)
    own[wider[:-1]] = True
    values[own] = torch.arange(nodes, dtype=indices.dtype)
    values[~own] = indices
    return wider, values


def main(kind: type[Rival] = Rival) -> None:
    """Answers until standard input ends.

    Args:
        kind: class of what answers.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    rival = kind(json.loads(Path(sys.argv[1]).read_text()))
    for line in sys.stdin:
        question = json.loads(line)
        answer = getattr(rival, question.pop("ask"))(**question)
        time.sleep(REST_SECONDS)
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # their threads may wait for ever


if __name__ == "__main__":
    main()
