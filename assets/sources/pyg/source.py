"""Graphs of PyG: one `HeteroData` or `Data` object that `torch.save` wrote, with its features, labels and masks.

Accepted are the object itself, the dictionary that its `to_dict` returns, and the tuple in processed/data.pt of an `InMemoryDataset` with
one graph. Of each node type:

    x                                    features [N, F] or [N]
    y                                    labels [N] or [N, 1], -1 or NaN unknown
    train_mask, val_mask, test_mask      masks [N], or [N, S] with `split = s`
    num_nodes                            number of nodes; else that of x, of y or of a mask, else the largest id among the edges + 1

Of each edge type: edge_index [2, E], from row 0 to row 1, and weights [E] or [E, 1], if `weight` names them. Of a `Data` object,
`edge_type` [E] holds the number of the relation of each edge. Data of other names are not read, which `graphmill inspect` says; a name
that probably means one that is missing is refused. Node types become ranges of ids and edge types relations, in the order of the file.

Reading runs no code from the file and does not need torch_geometric (assets/sources/pyg/stores.py). Tensors are mapped. Peak memory: as
assets/sources/edges/source.py states; pages of the file that were read count as the process's until the system needs them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from graphmill.assets.sources.interface import FEATURES_TOO
from graphmill.assets.sources.named.arrays import NamedArrays
from graphmill.assets.sources.named.source import NamedSource
from graphmill.assets.sources.pyg.stores import load_stores


@dataclass(frozen=True, kw_only=True)
class PygConfig(NamedSource):
    """`[graph]` with `source = "pyg"`."""

    # names this kind of source
    source: str = field(default="pyg", metadata=FEATURES_TOO)
    # the file; relative to the pipeline file
    path: Path

    example: ClassVar[Mapping[str, Any]] = {"path": "graph.pt"}

    def files(self) -> Mapping[str, Path]:
        """Returns the whole file, which both the graph and its features need."""
        return {"pyg": self.path}

    def load(self, folder: Path, features: Sequence[str | None]) -> NamedArrays:
        """Maps the file."""
        return load_stores(self.path, self.edge_names)
