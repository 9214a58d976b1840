"""Labels as sources have them, one class, several labels or numbers per node: what is read, what is refused, and with which remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphmill.assets.sources.markers import is_bound
from graphmill.assets.tasks.labels import ON_EDGES, Kind, known_values, labelled, no_labels
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


def read_labels(kind: Kind, values: Array, num_nodes: int, where: str, name: str = "y") -> Array:
    """Returns labels as the graph stores them (assets/tasks/labels.py), from an array that a source holds.

    Args:
        values: of classes as in `known_labels`; otherwise numbers or booleans [N, C], or [N] for one column. NaN is unknown, and so is -1
            among several labels.
        where, name: place of the array, and its name in the remedies.

    Raises:
        InputError: the values have another shape or type, or one is not a label, with its node.
    """
    if kind in ON_EDGES:
        return no_labels(kind, num_nodes)
    if kind == "classes":
        return known_labels(values, num_nodes, where, name)
    if values.ndim == 1 and len(values) == num_nodes:
        values = values[:, None]
    if values.ndim != 2 or values.shape[0] != num_nodes or not values.shape[1]:
        given = "a label matrix has a row per node and a column per label" if kind == "multilabel" else "give [N, T]"
        raise InputError(f"{where} has shape {list(values.shape)}, not [{num_nodes}, C]", given)
    if values.dtype.kind not in "iufb":
        raise InputError(f"{where} is {values.dtype}, not numbers", f"save {name} as numbers")
    return checked_values(kind, values, lambda row, column: f"{where}: node {row}, column {column}")


def checked_values(kind: Kind, values: Array, place: Callable[[int, int], str]) -> Array:
    """Returns rows of several labels i8[n, C], or of targets f32[n, T].

    Args:
        values: [n, C], numbers or booleans, NaN for unknown.
        place: function (row, column) -> place of a value in words.

    Raises:
        InputError: a label is neither 0 nor 1, or a number is infinite or beyond float32, with its row.
    """
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    if kind == "multilabel":
        if values.dtype.kind != "u" and values.dtype.kind != "b":
            missing = missing | (values == -1)
        wrong = ~missing & (values != 0) & (values != 1)
        why, remedy = (
            "a label is 0 or 1, and NaN or -1 where it is not known",
            'for numbers set [task] kind = "regression"',
        )
    else:
        with np.errstate(over="ignore"):
            wrong = ~missing & ~np.isfinite(values.astype(np.float32))
        why, remedy = "a target is a finite number of float32, and NaN where it is not known", "correct or scale it"
    if wrong.any():
        row, column = (int(each) for each in np.argwhere(wrong)[0])
        raise InputError(f"{place(row, column)} is {values[row, column]}: {why}", remedy)
    if kind == "multilabel":
        return np.where(missing, -1, values).astype(np.int8)
    return values.astype(np.float32)


def joined_labels(kind: Kind, parts: Sequence[Array]) -> Array:
    """Returns the labels of all node types after one another; those of types without columns are unknown."""
    width = max((part.shape[-1] for part in parts), default=0) if kind not in ("classes", *ON_EDGES) else 0
    return np.concatenate(
        [part if part.shape[-1] or not width else no_labels(kind, len(part), width) for part in parts]
    )


def require_known(labels: Array, parts: Sequence[Array], names: Sequence[str], where: str) -> None:
    """Refuses a column of which no training node has a known value: nothing could be learnt of it.

    Args:
        labels: i8[N, C] or f32[N, T]; classes are not tested.
        parts: training, validation and test nodes.

    Raises:
        InputError: there is such a column, with its name.
    """
    if labels.ndim == 1 or not len(parts[0]):
        return
    unknown = ~known_values(labels[np.sort(np.asarray(parts[0]))]).any(axis=0)
    if unknown.any():
        column = names[int(np.flatnonzero(unknown)[0])]
        known = (
            "of all nodes"
            if not known_values(labels[:, int(np.flatnonzero(unknown)[0])]).any()
            else "of all training nodes"
        )
        problem = f"{where}: the column '{column}' is unknown {known}"
        raise InputError(problem, "leave the column out, or give its values")


def column_names(labels: Array, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """Returns the names of the columns of a model's output: the given ones, else numbers."""
    width = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
    return tuple(map(str, range(width))) if given is None else tuple(given)


def unlabelled(labels: Array) -> int:
    """Returns the number of nodes without a label."""
    return len(labels) - int(np.count_nonzero(labelled(labels)))
