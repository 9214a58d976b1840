"""A graph given as arrays: the data of each node type and each edge type by name, as DGL and PyG save graphs.

Of a node type the features, labels, masks and number of nodes; of an edge type `edge_index` and weights. Values are tensors, NumPy
arrays, or paths of `.npy` files, which are mapped when they are needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sources.arrays.mapped_arrays import open_plain
from graphmill.assets.sources.features.types import BFLOAT16
from graphmill.kernels.arrays import largest
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

MASKS = ("train_mask", "val_mask", "test_mask")
"""Names of the masks of the split."""

Kind = tuple[str, str, str]
"""Node type, relation, node type."""

MEANT = {
    "x": ("features", "feature", "feats", "feat", "node_features", "node_feat", "node_attr", "attributes", "attr"),
    "y": ("labels", "label", "node_labels", "node_label", "targets", "target", "classes"),
    "class_names": ("label_names", "classnames"),
}
"""Names of arrays that others give to our own, in small letters."""

TABLES_INSTEAD = (
    'read its CSV files with source = "edges", or of several types with source = "tables": edges = "edges.csv", source_column = '
    '"src_id", target_column = "dst_id", nodes = "nodes.csv", id_column = "node_id"'
)
"""The remedy for a folder of DGL's CSVDataset."""


def require_one_file(path: Path, patterns: Sequence[str]) -> None:
    """Refuses a path that is not a file; of a folder the remedy names what is read in it.

    Args:
        patterns: names of graph files in the folder of a dataset.

    Raises:
        InputError: the path is a folder or nothing.
    """
    if path.is_file():
        return
    if not path.is_dir():
        raise InputError(f"{path}: no such file", "correct `path` in [graph]; it is relative to the pipeline file")
    inside = [file for pattern in patterns for file in sorted(path.glob(pattern)) if not file.name.startswith("pre_")]
    if inside:
        raise InputError(f"{path} is a folder, and a graph is a file", f'set path = "{inside[0]}" in [graph]')
    if any(path.glob("meta.y*ml")):
        raise InputError(f"{path} is a folder of tables with meta.yaml", TABLES_INSTEAD)
    raise InputError(f"{path} is a folder without {' and '.join(patterns)}", "save the graph in a file, and name it")


@dataclass(frozen=True, kw_only=True)
class Words:
    """A library's names of data, and its words for them in messages; the defaults are those of PyG.

    Attributes:
        feature, label: its names of features and labels.
        features, labels: names that others give to them.
        data: words before the names of data of nodes, in an error; and before those of nodes and of edges, in a list.
        nodes, edges: place of the data of a node type, and of the edges of an edge type, after the name of the file.
        rename: remedy for a mask with another name.
        no_weight, wide_weight: problems of missing weights, and of several for each edge; and the remedy for the latter.
    """

    feature: str = "x"
    label: str = "y"
    features: tuple[str, ...] = ("h", *MEANT["x"])
    labels: tuple[str, ...] = MEANT["y"]
    data: tuple[str, str, str] = ("", "data", "data")
    nodes: str = "node type '{}'"
    edges: str = ": 'edge_index'"
    saved: str = "object"
    rename: str = "set {owner}.{mask} to it, as true or false for each node, delete '{name}', and save the graph again"
    no_weight: str = "{where}: no data '{name}' of edges{hint}; they have {has}"
    wide_weight: tuple[str, str] = (
        "{where}: '{name}' is {type}{shape}, not weights [{count}] or [{count}, 1]",
        "keep one number per edge",
    )


@dataclass(frozen=True, kw_only=True)
class NamedArrays:
    """The data of one graph, by name.

    Attributes:
        nodes: node type -> its data; None stands for data that are not read.
        counts: node type -> number of nodes; {} if the data tell it.
        node_names: names of all nodes, in the order of their types; None without.
        whole: phrases about data of the whole graph, which are not read.
        typed: whether there may be several types; else names of types stay out of messages.
    """

    where: str
    nodes: Mapping[str, Mapping[str, Any]]
    edges: Mapping[Kind, Mapping[str, Any]]
    counts: Mapping[str, int] = field(default_factory=dict)
    node_names: Sequence[str] | None = None
    whole: Sequence[str] = ()
    typed: bool = True
    words: Words = Words()

    def place(self, kind: str | Kind) -> str:
        """Returns words for the place of a node type's or edge type's data, for errors."""
        if not self.typed:
            return f"{self.where}: data"
        inside = self.words.nodes.format(kind) if isinstance(kind, str) else f"edges {'/'.join(kind)}"
        return f"{self.where}: {inside}"

    def array(self, kind: str | Kind, name: str, *, wide: bool = False) -> tuple[Array, np.dtype[Any] | str]:
        """Returns data as an array over the same memory, and its type.

        Args:
            wide: whether bfloat16 becomes float32; else it is u16 with its bits, of the type "bfloat16".

        Raises:
            InputError: the value is neither a tensor nor an array, or NumPy has no form of it.
        """
        value = self.nodes[kind][name] if isinstance(kind, str) else self.edges[kind][name]
        value = open_plain(value) if isinstance(value, Path) else value
        if isinstance(value, np.ndarray):
            return value, value.dtype
        return _of_tensor(value, f"{self.place(kind)}: '{name}'", wide=wide)

    def num_nodes(self, name: str, sized: Sequence[str]) -> int:
        """Returns the number of nodes of a type: as given, else `num_nodes`, the rows of one of `sized`, or the largest id + 1.

        Raises:
            InputError: `num_nodes` is not a number.
        """
        data = self.nodes[name]
        if name in self.counts:
            return self.counts[name]
        if "num_nodes" in data:
            return _number(data["num_nodes"], f"{self.place(name)}: 'num_nodes'")
        for key in sized:
            shape: tuple[int, ...] = getattr(data.get(key), "shape", ())
            if shape:
                return int(shape[0])
        most = -1
        for kind in self.edges:
            ends, _ = self.array(kind, "edge_index")
            for row, end in zip(ends, (kind[0], kind[2]), strict=True):
                most = max(most, largest(row) if end == name else -1)
        return most + 1


def _of_tensor(value: Any, where: str, *, wide: bool) -> tuple[Array, np.dtype[Any] | str]:
    import torch

    if not isinstance(value, torch.Tensor):
        problem = f"{where} is a {type(value).__name__}, not a tensor"
        raise InputError(problem, "save it as a tensor: torch.tensor(value)")
    if value.layout != torch.strided:
        raise InputError(f"{where} is a sparse tensor", "save it as a dense one: value.to_dense()")
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return (value.float().numpy(), np.dtype(np.float32)) if wide else (value.view(torch.uint16).numpy(), BFLOAT16)
    try:
        found = value.numpy()
    except (TypeError, RuntimeError) as error:
        raise InputError(f"{where} is {value.dtype}, which NumPy lacks", "save it as float32") from error
    return found, found.dtype


def _number(value: Any, where: str) -> int:
    """Returns a whole number, which may stand in a tensor or list of one."""
    try:
        found = np.asarray(value).reshape(-1)
    except TypeError:  # NumPy lacks the type, such as bfloat16
        found = np.zeros(0)
    if len(found) != 1 or found.dtype.kind not in "iu" or found[0] < 0:
        problem = f"{where} is {value!r}, not a number of nodes"
        raise InputError(problem, "set num_nodes to a whole number, or leave it out")
    return int(found[0])
