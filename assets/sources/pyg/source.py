"""Graphs of PyG: one `HeteroData` or `Data` object that `torch.save` wrote, with its features, labels and masks.

Accepted are the object itself, the dictionary that its `to_dict` returns, the tuple in processed/data.pt of an `InMemoryDataset` with
one graph, and a list of `Data` objects (assets/sources/named/many.py). Of each node type:

    x                                    features [N, F] or [N]
    y                                    labels [N] or [N, 1], -1 or NaN unknown
    train_mask, val_mask, test_mask      masks [N], or [N, S] with `split = s`
    num_nodes                            number of nodes; else that of x, of y or of a mask, else the largest id among the edges + 1

Of each edge type: edge_index [2, E], from row 0 to row 1, and weights [E] or [E, 1], if `weight` names them. Of a `Data` object,
`edge_type` [E] holds the number of the relation of each edge. Data of other names are not read, which `graphmill inspect` says; a name
that probably means one that is missing is refused. Node types become ranges of ids and edge types relations, in the order of the file.

Reading runs no code from the file and does not need torch_geometric (assets/sources/pyg/source.py). Tensors are mapped. Peak memory: as
assets/sources/edges/source.py states; pages of the file that were read count as the process's until the system needs them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from graphmill.assets.sources.arrays.torch_file import Allowed, load_saved
from graphmill.assets.sources.interface import FEATURES_TOO
from graphmill.assets.sources.named.arrays import Kind, NamedArrays, require_one_file
from graphmill.assets.sources.named.edges import SAVE_EDGES
from graphmill.assets.sources.named.many import OneGraph, joined_graphs, one_graph
from graphmill.assets.sources.named.source import NamedSource
from graphmill.assets.sources.unread import unread_words
from graphmill.kernels.errors import InputError

SAVE_AGAIN = "copy it again, or save it again: torch.save(data.to_dict(), PATH)"
ONE_TYPE = "node"
"""Name of the node type of a `Data` object."""
ONE_RELATION: Kind = (ONE_TYPE, "edge", ONE_TYPE)
"""The relation of a `Data` object without `edge_type`."""


class StandIn:
    """An object of a class of PyG: keeps the state that the file gives it, and drops its arguments."""

    def __init__(self, *arguments: Any):
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class DataObject(StandIn):
    """Stands for `Data`."""


class HeteroObject(StandIn):
    """Stands for `HeteroData`."""


class Storage(StandIn):
    """Stands for the storages of both."""


CLASSES: Mapping[type[StandIn], tuple[str, ...]] = {
    DataObject: ("data.Data",),
    HeteroObject: ("hetero_data.HeteroData",),
    Storage: tuple(f"storage.{name}" for name in ("BaseStorage", "NodeStorage", "EdgeStorage", "GlobalStorage")),
    StandIn: (
        "storage.AttrType", "data.DataEdgeAttr", "data.DataTensorAttr", "feature_store.TensorAttr", "feature_store._FieldStatus",
        "feature_store.FeatureStore", "graph_store.EdgeAttr", "graph_store.EdgeLayout", "graph_store.GraphStore",
    ),
}  # fmt: skip
"""Stand-in -> names in `torch_geometric.data` of the classes that it stands for."""


def _plain_dict(*arguments: Any) -> dict[Any, Any]:
    return {}


def _plain_set(values: list[Any] | None = None) -> list[Any]:
    return [*(values or ())]


def _allowed() -> list[Allowed]:
    found: list[Allowed] = [
        (stand_in, f"torch_geometric.data.{name}") for stand_in, names in CLASSES.items() for name in names
    ]
    # The cache of a storage is a defaultdict of sets.
    return [*found, (_plain_dict, "collections.defaultdict"), (_plain_set, "builtins.set")]


def _remedy(name: str) -> str:
    if not name:
        return SAVE_AGAIN
    if name.startswith("torch_sparse"):
        return SAVE_EDGES
    return "save plain tensors alone: torch.save(data.to_dict(), PATH)"


def load_stores(path: Path, edge_names: Sequence[str] = ()) -> NamedArrays:
    """Reads a file of `Data`, `HeteroData`, the dictionary of one of them, or the tuple of an `InMemoryDataset` with one graph.

    Args:
        edge_names: names of data of edges, of a graph without types.

    Raises:
        InputError: the file cannot be read without running code from it, is damaged, or holds something else.
    """
    require_one_file(path, ("processed/*.pt", "*.pt"))
    found = load_saved(path, _allowed(), _remedy)
    if isinstance(found, tuple) and len(found) >= 2:
        _require_one_graph(found[1], path)
        found = found[0]
    if isinstance(found, list) and found:
        return _of_many(found, path)
    if isinstance(found, DataObject):
        state = _dict(found.state, path)
        # Versions before 2.0 keep the data in the object itself.
        return _of_data(_mapping(state.get("_store", state), path), path, edge_names)
    if isinstance(found, HeteroObject):
        state = _dict(found.state, path)
        by_type = {**_dict(state.get("_node_store_dict"), path), **_dict(state.get("_edge_store_dict"), path)}
        return _of_types(by_type, state.get("_global_store", {}), path)
    if isinstance(found, dict) and ("_global_store" in found or any(isinstance(key, tuple) for key in found)):
        by_type = {key: value for key, value in found.items() if key != "_global_store"}
        return _of_types(by_type, found.get("_global_store", {}), path)
    if isinstance(found, dict) and any(name in found for name in ("edge_index", "adj_t")):
        return _of_data(_mapping(found, path), path, edge_names)
    what = f"a {type(found).__name__}"
    if isinstance(found, dict):
        what = f"a dictionary of {', '.join(map(str, [*found][:5])) or 'nothing'}"
    raise InputError(f"{path}: holds {what}, not a graph of PyG", "save a Data or HeteroData: torch.save(data, PATH)")


def _of_many(found: list[Any], path: Path) -> NamedArrays:
    """Returns a list of `Data` objects, or of their dictionaries, as one graph."""
    graphs: list[OneGraph] = []
    for number, each in enumerate(found):
        state = _dict(each.state, path) if isinstance(each, DataObject) else each
        store = state.get("_store", state) if isinstance(state, dict) else None
        data = {} if store is None else _mapping(store, path)
        if "edge_index" not in data:
            problem = f"{path}: graph {number} of its {len(found)} is not a Data object with an edge_index"
            raise InputError(problem, "save a list of Data: torch.save([*dataset], PATH)")
        ends = np.asarray(data.pop("edge_index"))
        more = {name: np.asarray(value) for name, value in data.items() if hasattr(value, "shape")}
        graphs.append(one_graph(number, ends, more, data.get("num_nodes"), path))
    return joined_graphs(graphs, path)


def _require_one_graph(slices: Any, path: Path) -> None:
    """Raises InputError if the slices of an `InMemoryDataset` say that it holds several graphs; None says one."""
    counts = [0]
    pending = [slices]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            pending += each.values()
        elif isinstance(each, list) or getattr(each, "ndim", 0) == 1:
            counts.append(len(each) - 1)
    if max(counts) > 1:
        how = "save one of them, torch.save(dataset[0], PATH), or the list of all: torch.save([*dataset], PATH)"
        raise InputError(f"{path}: holds {max(counts)} graphs", how)


def _dict(found: Any, path: Path) -> dict[Any, Any]:
    if not isinstance(found, dict):
        problem = f"{path}: holds an object of {type(found).__name__} where the data of a graph belong"
        raise InputError(problem, SAVE_AGAIN)
    return found


def _mapping(store: Any, path: Path) -> dict[str, Any]:
    """Returns the data of a storage, None left out."""
    found = _dict(_dict(store.state, path).get("_mapping") if isinstance(store, Storage) else store, path)
    return {str(name): value for name, value in found.items() if value is not None and not str(name).startswith("_")}


def _of_data(data: dict[str, Any], path: Path, edge_names: Sequence[str]) -> NamedArrays:
    """Returns the data of a `Data` object: those of edges have names that begin so."""
    of_edges = {name for name in data if name in edge_names or name.startswith(("edge_", "adj"))}
    return NamedArrays(
        where=str(path),
        nodes={ONE_TYPE: {name: value for name, value in data.items() if name not in of_edges}},
        edges={ONE_RELATION: {name: data[name] for name in data if name in of_edges}},
        typed=False,
    )


def _of_types(by_type: dict[Any, Any], whole: Any, path: Path) -> NamedArrays:
    """Returns the data of a `HeteroData` object; a node type that only edges name has none."""
    nodes: dict[str, dict[str, Any]] = {}
    edges: dict[Kind, dict[str, Any]] = {}
    for key, store in by_type.items():
        if isinstance(key, str):
            nodes[key] = _mapping(store, path)
        elif isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key):
            edges[key] = _mapping(store, path)
        else:
            problem = f"{path}: {key!r} is neither a node type nor an edge type (source, relation, target)"
            raise InputError(problem, "name types by texts, and edge types by three of them")
    for source, _, target in edges:
        nodes.setdefault(source, {})
        nodes.setdefault(target, {})
    names = [f"'{name}'" for name in sorted(_mapping(whole, path))]
    unread = unread_words("data", "data", names, " of the whole graph")
    return NamedArrays(where=str(path), nodes=nodes, edges=edges, whole=unread)


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
