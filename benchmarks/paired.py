"""Scores of trainings in pairs of equal seeds: the mean difference, and how certain it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Number of pairs -> 97.5 % quantile of Student's t with one degree of freedom less."""


def paired(plain: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """Returns the mean of `other` - `plain` over the pairs, its standard error, and half of its 95 % interval, to three digits.

    Args:
        plain, other: scores by seed, two pairs or more.
    """
    differences = [theirs - ours for ours, theirs in zip(plain, other, strict=True)]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    found = {
        "difference": statistics.fmean(differences),
        "standard_error": error,
        "half_interval": STUDENT[len(differences)] * error,
    }
    return {name: round(value, 3) for name, value in found.items()}
