"""How a stored graph is opened, by memory mapping; it needs only NumPy and xxhash."""

from dataclasses import dataclass

import numpy as np

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require
from graphmill.assets.tasks.labels import CLASSES, OF_LABEL, ON_EDGES, STORED, Kind, kind_of
from graphmill.assets.tasks.links import LinkCandidates, Links
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import Side
from graphmill.kernels.links.splits import PARTS, TRAIN
from graphmill.kernels.types import Array, Topology

SAMPLING = "sampling"
"""The aspect of a graph that samplers read: topology and splits, without labels and names."""

OPTIONAL_ARRAYS = ("weights", "edge_types", "edge_ids", "edge_times", "node_type_ptr")
"""Arrays of the topology that not every source has."""

OF_ROWS = ("indptr", "indices", "weights", "edge_types", "edge_ids", "edge_times")
"""Arrays with the rows of the topology."""

SIDES: tuple[Side, ...] = ("target", "source")

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
        node_times: f64[N], the time of each node as a seed, NaN where it is not known; None of a graph without times.
        links: the edges that are predicted; None for other tasks. The topology lacks those that are held out, and nodes have no labels.
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
    node_times: Array | None = None
    links: Links | None = None

    def __repr__(self) -> str:
        """Returns a line without the arrays."""
        sizes = f"{self.topology.num_nodes:,} nodes, {self.topology.num_edges:,} edges, {self.num_classes} classes"
        return f"Graph({sizes}; {', '.join(f'{len(ids):,}' for ids in self.splits)} train, valid, test)"

    @property
    def task(self) -> Kind:
        """What a model learns."""
        return kind_of(self.labels) if self.links is None else self.links.kind

    @property
    def seeds(self) -> tuple[Array, Array, Array]:
        """The seeds of batches for training, validation and test: nodes; or the numbers 0 to n - 1 of the training links, and none."""
        if self.links is None:
            return self.splits
        none = np.empty(0, np.int64)
        return np.arange(np.count_nonzero(self.links.split == TRAIN)), none, none

    @property
    def trained_nodes(self) -> Array:
        """ids[n], distinct: the training nodes, or the ends of the training links."""
        if self.links is None:
            return np.asarray(self.train_ids)
        own = self.links.split == TRAIN
        return np.unique(np.concatenate([self.links.source[own], self.links.target[own]]))

    def split_labels(self, split: str) -> Array:
        """Returns the labels of a split: those of its nodes, or of its edges if edges have labels."""
        if self.links is not None and self.links.labels is not None:
            return np.array(self.links.labels[self.links.split == PARTS.index(split)])
        return self.labels[np.array(getattr(self, f"{split}_ids"))]

    @property
    def splits(self) -> tuple[Array, Array, Array]:
        """The nodes for training, validation and test."""
        return self.train_ids, self.valid_ids, self.test_ids


def seed_counts(artifact: Artifact) -> list[int]:
    """Returns the lengths of `Graph.seeds` of a graph artifact, of which no array is opened."""
    if artifact.config.get("task") in ON_EDGES:
        return [artifact.summary["numbers"]["num_train_links"], 0, 0]
    return [artifact.files[f"{split}_ids.npy"]["shape"][0] for split in ("train", "valid", "test")]


def open_graph(artifact: Artifact, *, compared: bool = True) -> Graph:
    """Opens a graph artifact without copying an array; it needs only NumPy and xxhash.

    Args:
        compared: whether labels and the rows of the topology are compared with their digests here; False for readers that compare what
            they read, and read no label.

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
    if artifact.config.get("task") in ON_EDGES:
        arrays |= {"link_ends": ids | {"ndim": 2}, "link_split": {"dtype": "uint8", "ndim": 1}}
    if (of := OF_LABEL.get(artifact.config.get("task", CLASSES))) is not None:
        arrays |= {"link_labels": dict(zip(("dtype", "ndim"), STORED[of], strict=True))}
    require(artifact, {"stage": "graph", "arrays": arrays})

    def array(name: str) -> Array:
        return artifact.array(name, verified=compared or name not in (*OF_ROWS, "labels"))

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
        node_times=array("node_times") if "node_times.npy" in artifact.files else None,
        links=_links(artifact) if artifact.config.get("task") in ON_EDGES else None,
    )


def _candidates(artifact: Artifact) -> LinkCandidates | None:
    """Opens the candidates of links; None if the artifact has none."""
    array = artifact.array
    sides: list[Side] = [side for side in SIDES if f"{side}_candidates.npy" in artifact.files]
    shared = "candidate_pairs.npy" in artifact.files
    if not sides and not shared:
        return None
    return LinkCandidates(
        starts={side: array(f"{side}_candidate_starts") for side in sides},
        ends={side: array(f"{side}_candidates") for side in sides},
        pairs=array("candidate_pairs") if shared else None,
        part=array("candidate_pairs_part") if shared else None,
    )


def _links(artifact: Artifact) -> Links:
    ends, numbers = artifact.array("link_ends"), artifact.summary["numbers"]
    return Links(
        source=ends[:, 0],
        target=ends[:, 1],
        relation=artifact.array("link_relation") if "link_relation.npy" in artifact.files else None,
        split=artifact.array("link_split"),
        reverse_of=tuple(numbers["reverse_of"]),
        predicted=tuple(numbers["predicted"]),
        candidates=_candidates(artifact),
        uniform=numbers.get("num_uniform_candidates", 0),
        labels=artifact.array("link_labels") if "link_labels.npy" in artifact.files else None,
        times=artifact.array("link_times") if "link_times.npy" in artifact.files else None,
    )
