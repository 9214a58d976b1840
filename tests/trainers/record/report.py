"""Scores by class from their definitions, node by node, as scikit-learn's `classification_report` and `confusion_matrix` have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def report(labels: Sequence[int], answers: Sequence[int], num_classes: int) -> dict[str, Any]:
    """Precision, recall, F1 and support of each class, the means over the classes that occur, and the matrix of counts."""
    pairs = list(zip(map(int, labels), map(int, answers), strict=True))
    matrix = [[pairs.count((label, answer)) for answer in range(num_classes)] for label in range(num_classes)]
    found: dict[str, Any] = {"matrix": matrix, "classes": [], "accuracy": sum(a == b for a, b in pairs) / len(pairs)}
    for one in range(num_classes):
        hits = sum(a == b == one for a, b in pairs)
        has, given = sum(a == one for a, _ in pairs), sum(b == one for _, b in pairs)
        precision, recall = hits / given if given else 0.0, hits / has if has else 0.0
        f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
        found["classes"].append({"precision": precision, "recall": recall, "f1": f1, "support": has, "given": given})
    occurring = [each for each in found["classes"] if each["support"] or each["given"]]
    for name in ("precision", "recall", "f1"):
        found[f"{name}_macro"] = float(np.mean([each[name] for each in occurring]))
        found[f"{name}_weighted"] = sum(each[name] * each["support"] for each in occurring) / len(pairs)
        found[f"{name}_micro"] = found["accuracy"]
    found["balanced_accuracy"] = float(np.mean([each["recall"] for each in occurring if each["support"]]))
    return found


def calibration(probabilities: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """The expected calibration error of Guo et al. (2017), equation 3, node by node in float64."""
    sums: dict[int, list[float]] = {}
    for row, label in zip(probabilities.astype(np.float64), labels, strict=True):
        answer, confidence = int(row.argmax()), float(row.max())
        place = next(b for b in range(bins) if confidence <= (b + 1) / bins or b == bins - 1)
        held = sums.setdefault(place, [0.0, 0.0])
        held[0] += confidence
        held[1] += float(answer == label)
    return sum(abs(right - confidence) for confidence, right in sums.values()) / len(labels)
