"""Labels as sources have them: what is a class number, what is not, and what to do about the latter."""

from __future__ import annotations

import numpy as np

from graphmill.assets.sources.markers import is_bound
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

CLASSIFIES = (
    'without [task] a node has one class; kind = "multilabel" is for several labels, kind = "regression" for numbers'
)
"""The sentence about labels that are not one class per node."""

NUMBER_THEM = "number the classes from 0, unknown is -1"


def known_labels(values: Array, num_nodes: int, where: str, name: str = "y") -> Array:
    """Returns labels i32[N] from class numbers [N], [N, 1] or [1, N] of any type; NaN and -1 are unknown, booleans are the classes 0 and 1.

    Raises:
        InputError: the values have another shape, or one is not a class number in [-1, N), with its node.
    """
    if values.ndim == 2 and values.size == num_nodes and 1 in values.shape:
        values = values.reshape(-1)
    if values.shape != (num_nodes,):
        raise InputError(f"{where} has shape {list(values.shape)}, not [{num_nodes}]", _remedy(values, num_nodes, name))
    if values.dtype.kind not in "iufb":
        problem = f"{where} is {values.dtype}, not class numbers"
        if values.dtype.kind in "US":
            raise InputError(problem, f"class_names, {name} = np.unique({name}, return_inverse=True), and save both")
        raise InputError(problem, f"{NUMBER_THEM}: {CLASSIFIES}")
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
    whole = np.isfinite(values) & (values == np.floor(values)) if values.dtype.kind == "f" else known
    below = values < -1 if values.dtype.kind in "if" else ~known & known  # -1 is not a value of unsigned types
    wrong = np.flatnonzero(known & (~whole | below | (values >= num_nodes)))
    if len(wrong):
        shown = ", ".join(f"node {node} has {values[node]}" for node in wrong[:3].tolist())
        problem = f"{where}: {len(wrong)} labels are no class numbers in [-1, {num_nodes}): {shown}"
        raise InputError(problem, _numbering(values, known, whole, name))
    labels = np.full(len(values), -1, np.int32)
    labels[known] = values[known].astype(np.int32)
    return labels


def _numbering(values: Array, known: Array, whole: Array, name: str) -> str:
    """Returns the remedy for numbers of which some are no class numbers."""
    if (known & ~whole).any():
        return f"{CLASSIFIES}: give each node the number of its class, from 0, or NaN"
    if (values[known] < len(values)).all():
        return f"{NUMBER_THEM}: {name}[{name} < 0] = -1"
    number = f"{NUMBER_THEM}: known = {name} >= 0; {name}[known] = np.unique({name}[known], return_inverse=True)[1]"
    largest = int(values[known].max())
    if is_bound(largest) and (values[known & (values != largest)] < len(values)).all():
        return f"if {largest} means unknown: {name} = np.where({name} == {largest}, -1, {name}.astype(np.int64)); otherwise {number}"
    return number


def _remedy(values: Array, num_nodes: int, name: str) -> str:
    """Returns the remedy for labels of another shape: one-hot rows are a class each, other rows several labels."""
    if values.ndim != 2 or values.shape[0] != num_nodes or values.dtype.kind not in "iufb" or not values.size:
        return f"give one label per node: {CLASSIFIES}"
    if np.isin(values, (0, 1)).all() and (np.sum(values, axis=1) == 1).all():
        return f"its rows are one-hot: save {name}.argmax(axis=1)"
    return f"keep one column, {name}[:, 0]: {CLASSIFIES}"
