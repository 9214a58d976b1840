"""Products of an evaluation: those of NumPy, with the same bits on any number of threads and whatever the other rows are."""

import numpy as np
import pytest
import torch

from graphmill.trainers.models.products import map_evaluated


@pytest.fixture(autouse=True)
def same_threads_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_rows", [1, 64, 1000, 4096])
@pytest.mark.parametrize("width", [8, 33, 384, 1400])
@pytest.mark.parametrize("columns", [16, 100])
def test_threads_and_other_rows_change_no_bit(num_rows: int, width: int, columns: int) -> None:
    draws = torch.Generator().manual_seed(0)
    rows, other = (torch.randn(num_rows, width, generator=draws) for _ in range(2))
    matrices = [torch.randn(count, width, generator=draws) for count in (columns, 5)]
    kept = torch.rand(num_rows, generator=draws) < 0.3
    found = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        found.append([each.clone() for each in map_evaluated(rows, *matrices)])
        mixed = map_evaluated(torch.where(kept[:, None], rows, other), *matrices)
        assert all(torch.equal(one[kept], two[kept]) for one, two in zip(mixed, found[0], strict=True))
    assert all(torch.equal(one, two) for each in found for one, two in zip(each, found[0], strict=True))
    alone = [torch.cat(each) for each in zip(*(map_evaluated(row[None], *matrices) for row in rows[:40]), strict=True)]
    assert all(torch.equal(one, two[:40]) for one, two in zip(alone, found[0], strict=True))
    for out, matrix in zip(found[0], matrices, strict=True):
        exact = rows.double().numpy() @ matrix.double().numpy().T
        np.testing.assert_allclose(out.numpy(), exact, rtol=0, atol=1e-5 * np.abs(exact).max())
