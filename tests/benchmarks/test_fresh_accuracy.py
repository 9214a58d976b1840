"""Errors of kept rows, and scores that are paired by seed."""

import pytest
import torch

from benchmarks.fresh_drift import errors, mean_of
from benchmarks.fresh_thresholds import compared


def test_an_error_is_relative_to_the_exact_row_and_rows_of_zeros_have_none() -> None:
    exact = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    rows = torch.tensor([[3.0, 3.0], [1.0, 1.0], [0.0, 3.0]])
    assert errors(rows, exact).tolist() == pytest.approx([0.2, 0.5])


def test_seeds_are_averaged_step_by_step_and_the_range_is_kept() -> None:
    found = [{"steps": [0, 20], "logits": [0.25, 0.5]}, {"steps": [0, 20], "logits": [0.75, 1.0]}]
    assert mean_of(found) == {"steps": [0, 20], "logits": [0.5, 0.75], "range": [[0.25, 0.5], [0.75, 1.0]]}


def test_savings_are_averaged_beside_paired_scores() -> None:
    plain = [(90.0, 0.0), (80.0, 0.0), (85.0, 0.0)]
    found = compared(plain, [(89.0, 0.5), (79.0, 0.25), (84.0, 0.0)])
    assert found == {"difference": -1.0, "standard_error": 0.0, "half_interval": 0.0, "saving": 0.25}
