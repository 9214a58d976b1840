"""PyG's GraphSAGE in NeighborLoader's loop, in a process that answers questions; see benchmarks/rival_child.py.

    python -m benchmarks.pyg_child SPEC.json

The interpreter needs torch_geometric, and torch-sparse for all that samples. `Sage` is also trained by our trainer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NeighborSampler

from benchmarks.rival_child import Rival, main


@dataclass
class Graph:
    """A batch of NeighborLoader, or a bipartite block.

    Attributes:
        edge_index: int64[2, E], places of sources and destinations.
        size: (number of nodes, number of seeds).
        n_id: int64[size[0]], global ids of the nodes, if they are known.
    """

    edge_index: torch.Tensor
    size: tuple[int, int]
    n_id: torch.Tensor | None = None

    def num_edges(self) -> int:
        """Returns the number of edges."""
        return self.edge_index.shape[1]


class Sage(GraphSAGE):
    """PyG's GraphSAGE over one graph, as NeighborLoader's examples call it, or over a bipartite block for each layer."""

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        """Returns float[num_seeds, classes] from the rows of all nodes."""
        if len(blocks) == 1:
            return super().forward(x, blocks[0].edge_index)[: blocks[0].size[1]]
        for conv, block in zip(self.convs, blocks, strict=True):
            x = conv((x, x[: block.size[1]]), block.edge_index)
            if conv is not self.convs[-1]:
                x = self.dropout(self.act(x))
        return x


class PygRival(Rival):
    """Answers by name; SPEC may lack the rows, for sampling alone."""

    def _new_model(self, in_width: int) -> Sage:
        spec = self.spec
        return Sage(in_width, spec["hidden"], len(spec["fanouts"]), spec["classes"], dropout=spec["dropout"])

    @cached_property
    def data(self) -> Data:
        """The graph, whose edges are sorted by destination, with its rows."""
        rows = {"x": self.rows, "y": self.labels} if "rows" in self.spec else {}
        return Data(edge_index=self.whole.edge_index, num_nodes=len(self.indptr) - 1, **rows)

    @cached_property
    def whole(self) -> Graph:
        """The graph that layers run over as a whole."""
        nodes = len(self.indptr) - 1
        dst = torch.repeat_interleave(torch.arange(nodes), self.indptr.diff())
        return Graph(torch.stack([self.indices.long(), dst]), (nodes, nodes))

    @cached_property
    def sampler(self) -> NeighborSampler:
        """The sampler, which holds the compressed columns."""
        return NeighborSampler(self.data, self.spec["fanouts"], is_sorted=True)

    def _loader(self, seeds: torch.Tensor, batch_size: int, shuffle: bool) -> Any:
        options: dict[str, Any] = {"input_nodes": seeds, "batch_size": batch_size, "shuffle": shuffle}
        return NeighborLoader(self.data, self.spec["fanouts"], neighbor_sampler=self.sampler, **options)

    def _sampled(self, batches: torch.Tensor, way: str) -> Iterator[list[Graph]]:
        for batch in self._loader(batches.flatten().long(), batches.shape[1], shuffle=False):
            yield [Graph(batch.edge_index, (batch.num_nodes, batch.batch_size), batch.n_id)]

    def sampled(self, seeds: str, way: str, out: str) -> None:
        """Writes the first batch: `n_id`, `edge_index` and `batch_size`."""
        (graph,) = next(self._sampled(torch.from_numpy(np.load(seeds)[:1]), way))
        np.savez(out, n_id=graph.n_id, edge_index=graph.edge_index, batch_size=graph.size[1])

    def _batches(self) -> Iterator[tuple[list[Graph], torch.Tensor, torch.Tensor]]:
        ids = torch.from_numpy(np.load(self.spec["train_ids"])).long()
        for batch in self._loader(ids, self.spec["batch_size"], shuffle=True):
            yield [Graph(batch.edge_index, (batch.num_nodes, batch.batch_size))], batch.x, batch.y[: batch.batch_size]

    def _block(self, src: torch.Tensor, dst: torch.Tensor, num_src: int, num_dst: int) -> Graph:
        return Graph(torch.stack([src, dst]), (num_src, num_dst))

    def versions(self) -> dict[str, str]:
        """Returns the versions of what samples and trains."""
        from importlib.metadata import version

        return {name: version(name) for name in ("torch", "torch_geometric", "torch_sparse")}


if __name__ == "__main__":
    main(PygRival)
