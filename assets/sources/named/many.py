"""Many graphs as one: what a model learns of a whole graph is the label of a node.

The graphs stand side by side, as disjoint parts of one graph. Each gets a node of its own, of the node type "graph", to which an edge leads
from each of its nodes:

    node types   node, the nodes of all graphs in their order; graph, one node for each graph
    relations    node/edge/node, the edges of the graphs; node/in/graph

So a mean over the neighbours of a graph's node is a readout, and sampling, trainers, splits and predictions are those of nodes. Data with a
row per node belong to the nodes, and labels y with one row to the graph. A graph may not have y of its nodes.

Peak memory: twice the arrays, which are joined. What edges carry beside their ends is not read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphmill.assets.sources.named.arrays import NamedArrays
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

NODE, GRAPH = "node", "graph"
"""The two node types."""
LABEL = "y"


class OneGraph(NamedTuple):
    """One of the graphs: number of nodes, edges i64[2, E], name -> rows of its nodes [n, ...], and its label [1, ...] or None."""

    num_nodes: int
    ends: Array
    rows: dict[str, Array]
    label: Array | None


def one_graph(
    number: int, ends: Array, data: dict[str, Array], num_nodes: Any, path: Path, label_name: str = LABEL
) -> OneGraph:
    """Returns a graph of a list.

    Args:
        ends: integers[2, E].
        data: name -> array; those with a row per node are kept, and the label.
        num_nodes: number of nodes; None = the rows of its data say it.

    Raises:
        InputError: an edge leads out of the graph, or the label is not that of the graph.
    """
    label, x = data.pop(label_name, None), data.get("x")
    count = int(num_nodes) if num_nodes is not None else int(ends.max(initial=-1)) + 1 if x is None else len(x)
    if ends.ndim != 2 or ends.shape[0] != 2 or ends.dtype.kind not in "iu":
        raise InputError(
            f"{path}: graph {number}: its edges are {ends.dtype}{list(ends.shape)}", "give integers [2, E]"
        )
    outside = np.flatnonzero((ends < 0).any(axis=0) | (ends >= count).any(axis=0))
    if len(outside):
        shown = " -> ".join(map(str, ends[:, outside[0]]))
        problem = f"{path}: graph {number}: edge {outside[0]}, {shown}, leads out of its {count} nodes"
        raise InputError(problem, "number the nodes of each graph from 0")
    if label is not None:
        label = label.reshape(1) if label.ndim == 0 else label
        if len(label) != 1:
            problem = f"{path}: graph {number}: {label_name} has {len(label)} rows, and a graph has one label"
            raise InputError(problem, f"give {label_name} of shape [1] or [1, C]")
    rows = {name: values for name, values in data.items() if values.ndim and len(values) == count}
    return OneGraph(count, ends.astype(np.int64), rows, label)


def joined_graphs(graphs: Sequence[OneGraph], path: Path, label_name: str = LABEL) -> NamedArrays:
    """Returns the arrays of one graph of all; raises InputError if data or labels of the graphs do not fit together.

    Args:
        label_name: name that the labels get among the data of the graphs' nodes.
    """
    names = {name for each in graphs for name in each.rows if all(name in other.rows for other in graphs)}
    if not any(each.label is not None for each in graphs):
        raise InputError(
            f"{path}: no graph has a label {label_name}", f"give {label_name} of shape [1] or [1, C] to each graph"
        )
    for what, shapes in (
        *((name, [each.rows[name].shape[1:] for each in graphs]) for name in sorted(names)),
        (label_name, [each.label.shape[1:] for each in graphs if each.label is not None]),
    ):
        if len({*shapes}) > 1:
            number = next(place for place, shape in enumerate(shapes) if shape != shapes[0])
            problem = f"{path}: {what} of the graphs have several shapes: {list(shapes[0])}, and {list(shapes[number])}"
            raise InputError(problem, "give all graphs data of one shape")
    counts = np.array([each.num_nodes for each in graphs], np.int64)
    starts = np.cumsum(counts) - counts
    ends = [each.ends + start for each, start in zip(graphs, starts, strict=True)]
    owner = np.repeat(np.arange(len(graphs), dtype=np.int64), counts)
    nodes: dict[str, Any] = {name: np.concatenate([each.rows[name] for each in graphs]) for name in sorted(names)}
    return NamedArrays(
        where=str(path),
        nodes={
            NODE: nodes | {"num_nodes": int(counts.sum())},
            GRAPH: {label_name: _labels([each.label for each in graphs]), "num_nodes": len(graphs)},
        },
        edges={
            (NODE, "edge", NODE): {"edge_index": np.concatenate(ends, axis=1)},
            (NODE, "in", GRAPH): {"edge_index": np.stack([np.arange(len(owner)), owner])},
        },
    )


def _labels(given: Sequence[Array | None]) -> Array:
    """Returns the labels of all graphs; of those without one -1 of whole numbers, else NaN."""
    first = next(each for each in given if each is not None)
    whole = all(each is None or each.dtype.kind in "iub" for each in given)
    none = np.full(first.shape, -1 if whole else np.nan)
    found = np.concatenate([none if each is None else each.astype(np.float64) for each in given])
    return found.astype(np.int64) if whole else found.astype(np.float32)
