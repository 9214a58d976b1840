"""Pearson's chi-square test of counts against probabilities."""

import numpy as np


def chi_square_limit(freedom):
    """Exceeded with probability about 3e-5 (Wilson and Hilferty's approximation at 4 deviations)."""
    return freedom * (1 - 2 / (9 * freedom) + 4 * (2 / (9 * freedom)) ** 0.5) ** 3


def assert_fits(counts, chances):
    """Counts of independent draws fit their probabilities; what is expected less than 5 times is counted together."""
    counts, chances = np.asarray(counts, float), np.asarray(chances, float)
    assert abs(chances.sum() - 1) < 1e-9
    expected = chances * counts.sum()
    rare = expected < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 5:  # too few even together: nearly none may be there
        assert counts[-1] <= 25
        counts, expected = counts[:-1], expected[:-1]
    freedom = len(counts) - 1
    if freedom > 0:
        assert ((counts - expected) ** 2 / expected).sum() < chi_square_limit(freedom)
