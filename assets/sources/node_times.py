"""Times of nodes, as of which they are seeds of batches whose [sampling] has `before`."""

from collections.abc import Iterator

import numpy as np

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.sources.edge_marks import as_numbers
from graphmill.assets.sources.interface import GraphConfig
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array


def node_time_problems(key: str, value: str | None, config: GraphConfig) -> Iterator[KeyProblem]:
    """Yields a key of the times of nodes that no [sampling] reads."""
    if value is not None and (not config.times or config.links is not None):
        why = (
            "the seeds of links have the times of their edges" if config.times else "no `before` of [sampling] reads it"
        )
        yield KeyProblem(key, f"{key} = {value!r} has no effect, since {why}: leave it out")


def of_node_times(values: Array, num_nodes: int, where: str) -> Array:
    """Returns f64[N], the times of nodes, NaN for a node without one, of an array of times.

    Raises:
        InputError: the array is not numbers [N] or [N, 1], or one is infinite, with its node.
    """
    if values.shape not in ((num_nodes,), (num_nodes, 1)) or values.dtype.kind not in "biufmM":
        problem = f"{where} is {values.dtype}{list(values.shape)}, not times [{num_nodes}]"
        raise InputError(problem, "give a time for each node, NaN for one that is never a seed")
    times = as_numbers(values.reshape(-1))
    wrong = np.flatnonzero(np.isinf(times))
    if len(wrong):
        raise InputError(f"{where}: node {wrong[0]} is {times[wrong[0]]}", "give a time, or NaN")
    return times
