"""Fan-outs per relation: the rows of a graph are sorted by relation, and each relation's run of a row is drawn as a row of its own.

A layer's entry of `fanouts` is one number for all neighbours of a node, or a tuple with a number for each relation: 0 draws none of its
neighbours, -1 takes all. A run of d neighbours of relation r is cut down to k as a row is (kernels/sampling/sample.py), keyed by (seed,
stream, epoch, step, layer, node, relation): the key absorbs the relation after the node. So the draws of one relation do not depend on the
numbers of the others. A node's sampled edges are in the order of relations, and ascend in each.

The neighbours of a node are not a uniform sample of its row then: d_in(v) / k does not make their sum unbiased
(kernels/blocks/coefficients.py). Means and attention per relation are estimated as with one number.

A number draws as if the edges had no relations, so a layer of equal numbers per relation differs from a layer of one number.

Not checked: that every row is sorted by relation, as `build_csc` sorts it.

Cost beside one number: the relations of a row are read, a byte per edge, by binary search in long runs.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Topology

MOST_RELATIONS = 256
MOST_EDGES = 2**31 - 1
Fanout = int | tuple[int, ...]
"""Number of neighbours of a node, or of each relation; -1 = all."""


def layer_fanouts(fanouts: Sequence[int | Sequence[int]]) -> tuple[Fanout, ...]:
    """Returns the fan-outs of the layers, from the seeds outwards: a number each, or a number per relation."""
    found = tuple(
        tuple(int(each) for each in fanout) if isinstance(fanout, Sequence | np.ndarray) else int(fanout)
        for fanout in fanouts
    )
    if not found or any(_wrong(fanout) for fanout in found):
        remedy = "give a number of neighbours per layer, or -1 for all; or a list of numbers per relation, 0 for none"
        raise InputError(f"fanouts = {list(found)}", remedy)
    return found


def _wrong(fanout: Fanout) -> bool:
    if isinstance(fanout, int):
        return fanout < -1 or fanout == 0 or fanout > MOST_EDGES
    return not 0 < len(fanout) <= MOST_RELATIONS or any(not -1 <= each <= MOST_EDGES for each in fanout)


def most_of_row(fanout: Fanout) -> int:
    """Returns the most neighbours that a node draws; -1 if only its row bounds them."""
    if isinstance(fanout, int):
        return fanout
    most = sum(fanout)
    return -1 if -1 in fanout or most > MOST_EDGES else most


def native_fanouts(fanouts: Sequence[Fanout], topology: Topology) -> tuple[list[int], dict[str, Any]]:
    """Returns the most neighbours per layer, and the arguments of the native sampler for numbers per relation.

    Args:
        topology: the in-neighbours, whose edges have relations if a layer has numbers per relation.

    Raises:
        InputError: the edges have no relations, or their array does not fit.
    """
    most = [most_of_row(fanout) for fanout in fanouts]
    if all(isinstance(fanout, int) for fanout in fanouts):
        return most, {}
    types = topology.edge_types
    if types is None:
        raise InputError("fanouts per relation, but the edges have no relations", "give one number per layer")
    if types.dtype != np.uint8 or types.shape != (topology.num_edges,):
        problem = f"edge_types is {types.dtype}{list(types.shape)}, the graph has {topology.num_edges} edges"
        raise InputError(problem, "give uint8[E]")
    by_relation = [[] if isinstance(fanout, int) else list(fanout) for fanout in fanouts]
    return most, {"edge_types": np.require(types, requirements=["C", "A"]), "by_relation": by_relation}


def runs_reference(types: Array) -> Iterator[tuple[int, int, int]]:
    """Yields (relation, first, last) of each run of a row whose relations are `types`, u8[d] ascending (the rule in plain Python)."""
    cuts = [0, *(np.flatnonzero(np.diff(types)) + 1).tolist(), len(types)]
    for first, last in pairwise(cuts):
        if first < last:
            yield int(types[first]), first, last
