"""DGL or GraphBolt that learns links, in a process that answers questions; see benchmarks/rival_child.py.

    python -m benchmarks.link_child SPEC.json

Both do as their own examples of link prediction: edges are seeds, each has one uniform pair beside it, the edges of a batch and their
reverses are taken out of its blocks, and the score is the dot product of two rows under binary cross entropy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.rival_child import Rival, gradients, main

Batch = tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]
"""Blocks, input rows, i64[2, n] places of the ends of edges and then of the other pairs, and float32[n], 1 for an edge and 0 for others."""


class LinkRival(Rival):
    """Answers by name; besides what `Rival` reads, SPEC names `edges`, i64[n] places of the seeds among the columns."""

    @cached_property
    def seeds(self) -> torch.Tensor:
        """i64[n], the edges that are trained on."""
        return torch.from_numpy(np.load(self.spec["edges"]))

    @cached_property
    def ends(self) -> torch.Tensor:
        """i64[E, 2], source and target of every edge, in the order of the columns."""
        target = torch.repeat_interleave(torch.arange(len(self.indptr) - 1), self.indptr.diff())
        return torch.stack([self.indices.long(), target], dim=1)

    def epoch(self) -> dict[str, Any]:
        """Trains an epoch. Returns its seconds, those of the processor, edges of the blocks and mean loss."""
        self.model.train()
        made, edges, losses = self._link_batches(), 0, []
        started, busy = time.perf_counter(), time.process_time()
        for blocks, x, pairs, labels in made:
            loss = link_loss(self.model(blocks, x), pairs, labels)
            loss.backward()
            self.optimiser.step()
            self.optimiser.zero_grad()
            edges += sum(block.num_edges() for block in blocks)
            losses.append(loss.item())
        seconds = {"seconds": time.perf_counter() - started, "processor": time.process_time() - busy}
        return seconds | {"edges": edges, "loss": float(np.mean(losses))}

    def _link_batches(self) -> Iterator[Batch]:
        return self._graphbolt_links() if self.system == "graphbolt" else self._dgl_links()

    def _dgl_links(self) -> Iterator[Batch]:
        for _, positive, negative, blocks in self.link_loader:
            ends = [torch.stack(graph.edges(order="eid")) for graph in (positive, negative)]
            labels = torch.cat([torch.ones(ends[0].shape[1]), torch.zeros(ends[1].shape[1])])
            yield blocks, blocks[0].srcdata["x"], torch.cat(ends, dim=1), labels

    @cached_property
    def link_loader(self) -> Any:
        """DGL's loader."""
        import dgl

        source, target = self.ends.T
        nodes = len(self.indptr) - 1
        # Columns are ascending by target and source, so the place of a reverse is found by bisection.
        reverse = torch.searchsorted(target * nodes + source, source * nodes + target)
        self.graph.ndata["x"] = self.rows
        inner = dgl.dataloading.NeighborSampler(list(reversed(self.spec["fanouts"])), prefetch_node_feats=["x"])
        sampler = dgl.dataloading.as_edge_prediction_sampler(
            inner,
            exclude="reverse_id",
            reverse_eids=reverse,
            negative_sampler=dgl.dataloading.negative_sampler.Uniform(1),
        )
        options: dict[str, Any] = {"batch_size": self.spec["batch_size"], "shuffle": True, "num_workers": 0}
        return dgl.dataloading.DataLoader(self.graph, self.seeds, sampler, **options)

    def _graphbolt_links(self) -> Iterator[Batch]:
        import dgl.graphbolt as gb  # pyright: ignore

        graph = gb.fused_csc_sampling_graph(self.indptr, self.indices)
        pairs = self.ends[self.seeds].to(self.indices.dtype)
        items = gb.ItemSampler(gb.ItemSet(pairs, names="node_pairs"), batch_size=self.spec["batch_size"], shuffle=True)
        pipe = items.sample_uniform_negative(graph, 1).sample_neighbor(graph, list(reversed(self.spec["fanouts"])))
        pipe = pipe.transform(partial(gb.exclude_seed_edges, include_reverse_edges=True))
        store = gb.BasicFeatureStore({("node", None, "x"): gb.TorchBasedFeature(self.rows)})
        pipe = pipe.fetch_feature(store, node_feature_keys=["x"])
        for batch in gb.DataLoader(pipe, num_workers=0):
            ends, labels = batch.node_pairs_with_labels
            yield batch.blocks, batch.node_features["x"], torch.stack(list(ends)).long(), labels.float()

    def compare(self, given: str, out: str) -> None:
        """Computes the loss of a batch by given parameters, and writes it with the gradients; a training begins with them.

        Args:
            given: file with the blocks (`src0`, `dst0`, `sizes0`, ...), the input rows `x`, `pairs` and `labels`, and parameters by name.
            out: file that gets `loss` and the gradients by name.
        """
        found, rows, known = self._computed(given)
        loss = link_loss(rows, *(torch.from_numpy(found[name]) for name in ("pairs", "labels")))
        loss.backward()
        np.savez(out, loss=loss.detach().numpy(), **gradients(known))


def link_loss(rows: torch.Tensor, pairs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns float[], the mean binary cross entropy of the dot products of pairs i64[2, n]."""
    return binary_cross_entropy_with_logits((rows[pairs[0]] * rows[pairs[1]]).sum(dim=1), labels)


if __name__ == "__main__":
    main(LinkRival)
