"""The stored labels of the kinds of tasks. Their type says the kind, so that a graph needs no other record of it.

    classes      i32[N]      number of the node's class, -1 unknown
    multilabel   i8[N, C]    1 for each label that the node has, 0 for the others, -1 unknown
    regression   f32[N, T]   the node's numbers, NaN unknown
    links        i32[N]      -1: nodes need no labels, edges are predicted (assets/tasks/links.py)

Of edge_classes and edge_regression nodes have those of links, and each link has the label that a node has of classes or regression.

A node is labelled if at least one of its values is known. Everything here is NumPy and takes any slice of the labels.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from graphmill.kernels.types import Array

Kind = Literal["classes", "multilabel", "regression", "links", "edge_classes", "edge_regression"]
CLASSES: Kind = "classes"
LINKS: Kind = "links"
OF_LABEL: dict[Kind, Kind] = {"edge_classes": "classes", "edge_regression": "regression"}
"""Kind whose edges have labels -> the kind of nodes with labels of this form."""
ON_EDGES: tuple[Kind, ...] = (LINKS, *OF_LABEL)
"""Kinds whose seeds are edges."""
STORED: dict[Kind, tuple[str, int]] = {
    "classes": ("int32", 1),
    "multilabel": ("int8", 2),
    "regression": ("float32", 2),
    **dict.fromkeys(ON_EDGES, ("int32", 1)),
}
"""Kind -> type and number of dimensions of the labels of nodes."""
COLUMN_WORDS: dict[Kind, tuple[str, str]] = {
    "classes": ("class", "classes"),
    "multilabel": ("label", "labels"),
    "regression": ("target", "targets"),
    "links": ("class", "classes"),
    "edge_classes": ("class", "classes"),
    "edge_regression": ("target", "targets"),
}
"""Kind -> the words for one column and for several columns of a model's output."""


def kind_of(labels: Array) -> Kind:
    """Returns the kind of a task of nodes by the type of its stored labels."""
    return next(kind for kind, (dtype, _) in STORED.items() if labels.dtype == dtype)


def no_labels(kind: Kind, num_nodes: int, width: int = 0) -> Array:
    """Returns the labels of nodes of which none is known.

    Args:
        width: number of labels or targets; unused for classes and links.
    """
    if STORED[kind][1] == 1:
        return np.full(num_nodes, -1, np.int32)
    if kind == "multilabel":
        return np.full((num_nodes, width), -1, np.int8)
    return np.full((num_nodes, width), np.nan, np.float32)


def known_values(labels: Array) -> Array:
    """Returns a bool array of the labels' shape: whether each value is known."""
    return ~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0


def labelled(labels: Array) -> Array:
    """Returns bool[n], whether each node has a label."""
    known = known_values(labels)
    return known if known.ndim == 1 else np.any(known, axis=1)  # pyright: ignore[reportReturnType]


def strata(labels: Array) -> Array:
    """Returns i32[n], the group of each node within which a random split draws: its class, 0 for other labels, -1 unknown."""
    return labels if labels.ndim == 1 else labelled(labels).astype(np.int32) - 1


def step_values(labels: Array) -> Array:
    """Returns labels as a step and other libraries take them: classes as i64, numbers and several labels as they are stored."""
    return labels.astype(np.int64) if labels.ndim == 1 else np.ascontiguousarray(labels)


def column_counts(labels: Array, width: int) -> Array:
    """Returns i64[width], the nodes of each class, with each label, or with a known number.

    Classes outside the width lengthen the result.
    """
    if labels.ndim == 2:
        return ((labels > 0) if labels.dtype.kind == "i" else known_values(labels)).sum(axis=0, dtype=np.int64)
    return np.bincount(labels[labels >= 0], minlength=width)


def column_words(kind: str, number: int) -> str:
    """Returns the number of columns of a model's output in words, such as "7 classes" or "1 target"."""
    one, several = COLUMN_WORDS[kind]  # pyright: ignore[reportArgumentType]
    return f"{number:,} {one if number == 1 and one != 'class' else several}"
