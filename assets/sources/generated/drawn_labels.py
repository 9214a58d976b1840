"""Several labels, or a number, of the nodes of a generator, with the best score that any model can reach.

Both follow from the hidden class of a node, which its neighbours tell and its own features hardly do. A node of class c has labels c and
c + 1 (modulo their number) with probability `OWN` and any other with probability `OTHER`. Its number is the class's level, of mean 0 and
variance 1 over the classes, plus noise of a quarter of that variance.

The best answer knows the class alone: the labels c and c + 1, and the mean of the class's numbers. Its score is counted on the drawn labels
themselves, so a model that finds all classes reaches it exactly, but for the nodes of its split.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.assets.sources.features.blocks import row_ranges
from graphmill.assets.tasks.labels import CLASSES, LINKS, Kind, no_labels
from graphmill.kernels.rng import absorb_ids, draws, key, normal_int
from graphmill.kernels.types import Array, Stream

OWN, OTHER = 0.9, 0.02
"""Probabilities of a label that the class has, and of one that it has not."""
NOISE = 0.5 / 43690**0.5
"""Factor of the integers of `normal_int`, so that the noise has the deviation one half."""
WORDS = 7, 8
"""The words after the stream of generators, of labels and of numbers; kernels/graph/generate.py and generators.py have the others."""


def task_labels(
    kind: Kind, classes: Array, hidden: Array, num_classes: int, seed: int, words: tuple[int, int] = WORDS
) -> tuple[Array, tuple[str, ...], dict[str, Any]]:
    """Returns the labels of a kind of task, the names of classes, labels or targets, and the best score by name.

    Args:
        classes: i32[N], the classes that edges and features follow.
        hidden: i32[N], the same with -1 for nodes whose label is hidden.
        words: words after the stream of generators, of labels and of numbers.
    """
    names = tuple(map(str, range(num_classes)))
    if kind in (CLASSES, LINKS):
        return hidden, names, {}
    values, best = drawn_labels(kind, classes, num_classes, seed, words)
    values[hidden < 0] = no_labels(kind, 1, values.shape[1])
    return values, names[: values.shape[1]], best


def drawn_labels(
    kind: Kind, classes: Array, num_classes: int, seed: int, words: tuple[int, int] = WORDS
) -> tuple[Array, dict[str, Any]]:
    """Returns the labels of all nodes, and the best score by name; no byte depends on threads.

    Args:
        kind: "multilabel" for labels i8[N, num_classes], "regression" for numbers f32[N, 1].
        classes: i32[N].
    """
    if kind == "multilabel":
        return _topics(classes, num_classes, key(seed, Stream.GENERATORS, words[0]))
    name = key(seed, Stream.GENERATORS, words[1])
    spread = np.sqrt((num_classes**2 - 1) / 12) or 1.0
    level = (np.arange(num_classes) - (num_classes - 1) / 2) / spread
    numbers = np.empty((len(classes), 1), np.float32)
    for low, high in row_ranges(len(classes), 16):
        numbers[low:high, 0] = level[classes[low:high]] + NOISE * normal_int(name, np.arange(low, high), 1)[:, 0]
    counts = np.maximum(1, np.bincount(classes, minlength=num_classes))
    exact = numbers[:, 0].astype(np.float64)
    means = np.bincount(classes, weights=exact, minlength=num_classes) / counts
    left = np.square(exact - means[classes]).sum() / max(np.square(exact - exact.mean()).sum(), 1e-300)
    return numbers, {"best_r2": float(1 - left)}


def _topics(classes: Array, num_classes: int, name: Any) -> tuple[Array, dict[str, Any]]:
    """Returns the labels, and the F1 over all labels together of the answer c and c + 1."""
    labels = np.empty((len(classes), num_classes), np.int8)
    own, other = (np.uint64(round(share * 2**32)) for share in (OWN, OTHER))
    right = had = given = 0
    for low, high in row_ranges(len(classes), 17 * num_classes):
        distance = (np.arange(num_classes) - classes[low:high, None]) % num_classes
        drawn = draws(absorb_ids(name, np.arange(low, high))[:, None], np.arange(num_classes)) >> np.uint64(32)
        labels[low:high] = drawn < np.where(distance < 2, own, other)
        right += int(labels[low:high][distance < 2].sum())
        had, given = had + int(labels[low:high].sum()), given + int((distance < 2).sum())
    return labels, {"best_f1_micro": 2 * right / max(1, had + given)}
