"""How a stored graph is opened, by memory mapping; it needs only NumPy and xxhash."""

from dataclasses import dataclass

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require
from graphmill.assets.tasks.labels import CLASSES, STORED, Kind, kind_of
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Topology

SAMPLING = "sampling"
"""The aspect of a graph that samplers read: topology and splits, without labels and names."""

OPTIONAL_ARRAYS = ("weights", "edge_types", "edge_ids", "node_type_ptr")
"""Arrays of the topology that not every source has."""


REBUILD = "build it again: graphmill build PIPELINE; then `graphmill gc` removes the old one"


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A stored graph, memory-mapped.

    Attributes:
        topology: in-neighbours and whole-graph degrees.
        labels: labels of N nodes (assets/tasks/labels.py); of classes i32[N], -1 unknown.
        train_ids, valid_ids, test_ids: ids[n], ascending, disjoint.
        num_classes, class_names: the classes in label order; the columns of the labels if these are of another kind.
        relations: names of the edge types, in the order of their numbers; none if edges have no types.
        node_types: names of the node types, in the order of their ids; none if nodes have no types.
    """

    topology: Topology
    labels: Array
    train_ids: Array
    valid_ids: Array
    test_ids: Array
    num_classes: int
    class_names: tuple[str, ...]
    relations: tuple[str, ...] = ()
    node_types: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Returns a line without the arrays."""
        sizes = f"{self.topology.num_nodes:,} nodes, {self.topology.num_edges:,} edges, {self.num_classes} classes"
        return f"Graph({sizes}; {', '.join(f'{len(ids):,}' for ids in self.splits)} train, valid, test)"

    @property
    def task(self) -> Kind:
        """What a model learns of a node."""
        return kind_of(self.labels)

    @property
    def splits(self) -> tuple[Array, Array, Array]:
        """The nodes for training, validation and test."""
        return self.train_ids, self.valid_ids, self.test_ids


def open_graph(artifact: Artifact) -> Graph:
    """Opens a graph artifact without copying an array; it needs only NumPy and xxhash.

    Raises:
        InputError: the artifact is of another stage, lacks an array of the graph stage, or an older version of graphmill wrote it.
    """
    if "features.npy" in artifact.files:
        raise InputError(f"{artifact.label} was built by an older version of graphmill", REBUILD)

    ids = {"dtype": ("int32", "int64"), "ndim": 1}
    arrays = {name: ids for name in ("indices", "train_ids", "valid_ids", "test_ids")}
    arrays |= {name: {"dtype": "int32", "ndim": 1} for name in ("in_degree", "out_degree")}
    arrays |= {"indptr": {"dtype": "int64", "ndim": 1}}
    dtype, ndim = STORED[artifact.config.get("task", CLASSES)]
    arrays |= {"labels": {"dtype": dtype, "ndim": ndim}}
    require(artifact, {"stage": "graph", "arrays": arrays})
    array = artifact.array
    optional = [name for name in OPTIONAL_ARRAYS if f"{name}.npy" in artifact.files]
    names = tuple(artifact.summary["numbers"]["class_names"])
    return Graph(
        topology=Topology(
            indptr=array("indptr"),
            indices=array("indices"),
            in_degree=array("in_degree"),
            out_degree=array("out_degree"),
            **{name: array(name) for name in optional},
        ),
        labels=array("labels"),
        train_ids=array("train_ids"),
        valid_ids=array("valid_ids"),
        test_ids=array("test_ids"),
        num_classes=len(names),
        class_names=names,
        relations=tuple(artifact.summary["numbers"].get("edge_types", ())),
        node_types=tuple(artifact.summary["numbers"].get("node_types", ())),
    )
