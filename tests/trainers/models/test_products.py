"""Products by oneDNN: those of float64, the same bits on any threads and beside any rows, and BLAS's own where it computes."""

import platform
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.models.products import (
    KEPT_PRODUCTS,
    PIECE_ROWS,
    Map,
    add_times,
    library,
    mapped,
    products_of,
    summed_over_rows,
    times,
    times_in,
)
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.training.thread_count import decide_library

SHAPES = [(1, 64, 64), (2, 64, 64), (700, 100, 47), (2 * PIECE_ROWS + 5, 33, 70), (70, 1433, 16), (3, 2, 2000)]
"""Rows, columns of the rows, and columns of the result."""

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")


def drawn(rows: int, columns: int, wide: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Returns rows, a matrix and gradients of the mapped rows."""
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=draw) for shape in ((rows, columns), (wide, columns), (rows, wide)))  # pyright: ignore[reportReturnType]


def layouts(matrix: Tensor) -> list[Tensor]:
    """Returns the same matrix as it lies, and as a part of a larger one, of which it leaves out columns, rows, or each second value."""
    wider = torch.cat([torch.full_like(matrix[:, :1], 7.0), matrix, matrix], dim=1)
    columns, beside = wider[:, 1 : 1 + matrix.shape[1]], torch.stack([matrix, matrix], dim=2).flatten(1)[:, ::2]
    turned = torch.cat([matrix, matrix]).T.contiguous().T[: len(matrix)]
    return [
        matrix,
        matrix.T.contiguous().T,
        columns,
        beside,
        turned,
        torch.cat([matrix, matrix], dim=1).view(-1, matrix.shape[1])[::2],
    ]


def close(found: Tensor, wanted: Tensor, terms: int) -> bool:
    return bool((found.double() - wanted).abs().max() <= 1e-6 * terms)


@needs_onednn
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_float64_however_matrices_lie(shape: tuple[int, int, int]) -> None:
    rows, matrix, above = drawn(*shape)
    bias, into = above[0].clone(), above.clone()
    exact, of_rows = rows.double() @ matrix.double().T, above.double().T @ rows.double()
    with products_of("onednn"):
        for a in layouts(rows):
            for b in layouts(matrix):
                assert close(times(a, b, bias), exact + bias, shape[1])
                assert close(times_in(torch.empty_like(above), a, b), exact, shape[1])
                assert close(add_times(into.clone(), a, b), exact + into, shape[1])
            for c in layouts(above):
                assert close(summed_over_rows(c, a), of_rows, shape[0])


@needs_onednn
@pytest.mark.parametrize("seed", range(12))
def test_bits_depend_neither_on_threads_nor_on_the_rows_beside(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = int(draw.integers(2, 9000)), int(draw.integers(16, 700)), int(draw.integers(128, 300))
    rows, matrix, above = drawn(*shape, seed)
    found = []
    with products_of("onednn"):
        for threads in (1, 2, 3, 8):
            with torch_threads(threads):
                found.append((times(rows, matrix), times(above, matrix.T), summed_over_rows(above, rows)))
        for begin, end in draw.integers(0, shape[0], size=(20, 2)):
            taken = slice(min(begin, end), max(begin, end) + 1)
            assert torch.equal(times(rows[taken], matrix), found[0][0][taken])
            assert torch.equal(times(above[taken], matrix.T), found[0][1][taken])
    assert all(torch.equal(*pair) for other in found[1:] for pair in zip(found[0], other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chosen", ["onednn", "blas"])
def test_gradients_are_those_of_the_function_of_torch(chosen: str, dtype: torch.dtype) -> None:
    rows, matrix, above = (each.to(dtype).requires_grad_() for each in drawn(500, 80, 60))
    bias = above[0].detach().clone().requires_grad_()
    found = []
    for map_rows in (mapped, functional.linear):
        with products_of(chosen):  # pyright: ignore[reportArgumentType]
            out = map_rows(rows, matrix, bias)
            found.append((out, *torch.autograd.grad(out, (rows, matrix, bias), above)))
    for mine, theirs in zip(*found, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-4)
        assert torch.equal(mine, theirs) or (chosen == "onednn" and dtype == torch.float32)


@pytest.mark.parametrize("num_rows", [1, 2, 3])
@pytest.mark.parametrize("chosen", ["onednn", "blas"])
def test_what_follows_a_product_may_write_in_place(chosen: str, num_rows: int) -> None:
    """A batch may have a single row between two layers, whose activation is computed in place; gradients are those of a copy."""
    rows, matrix, bias = torch.randn(num_rows, 70), torch.randn(64, 70), torch.zeros(64)
    found = []
    for copied in (False, True):
        weight = matrix.clone().requires_grad_()
        with products_of(chosen):  # pyright: ignore[reportArgumentType]
            out = mapped(rows, weight, bias)
            (out.clone() if copied else out).relu_().square().sum().backward()
        found.append(weight.grad)
    assert torch.equal(*found)


def test_a_map_is_a_linear_module_of_torch() -> None:
    mine, theirs = Map(70, 40), torch.nn.Linear(70, 40)
    theirs.load_state_dict(mine.state_dict())
    rows = drawn(90, 70, 40)[0]
    assert torch.allclose(mine(rows), theirs(rows), atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mine(rows), theirs(rows)) and mine(rows).dtype == torch.bfloat16


def test_a_training_that_goes_on_keeps_the_library_of_its_checkpoint() -> None:
    assert decide_library(ALONE, {}) == library()
    assert decide_library(ALONE, {"version": "1"}) == "blas", "a checkpoint from before there was a choice"
    for chosen in ("blas", "onednn"):
        assert decide_library(ALONE, {"products": chosen}) == chosen


@needs_onednn
@pytest.mark.parametrize("shape", [(700, 100, 64), (3621, 745, 128), (64, 384, 64)])
def test_however_matrices_lie_a_product_has_the_bits_of_copies(shape: tuple[int, int, int]) -> None:
    """oneDNN has plain loops for parts of larger matrices, with other bits, which take a thousand times as long."""
    plain = drawn(*shape)
    with products_of("onednn"):
        wanted = _products(*plain)
        for number in range(len(layouts(plain[0]))):
            for place in range(3):
                given = [layouts(each)[number if at == place else 0] for at, each in enumerate(plain)]
                assert all(map(torch.equal, _products(*given), wanted)), (number, place)
            assert all(map(torch.equal, _products(*(layouts(each)[number] for each in plain)), wanted)), number


def _products(rows: Tensor, matrix: Tensor, above: Tensor) -> tuple[Tensor, ...]:
    return times(rows, matrix), times(above, matrix.T), summed_over_rows(above, rows)


KEPT = """
import ctypes
import torch
from graphmill.trainers.models.products import KEPT_PRODUCTS, onednn_product

NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
Heap = type("Heap", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in NAMES]})
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Heap
matrix, used = torch.ones(64, 384), []
for rows in range(100, 100 + 8 * KEPT_PRODUCTS):
    onednn_product(torch.ones(rows, 384), matrix)
    used.append(mallinfo().uordblks)
print(used[2 * KEPT_PRODUCTS] - used[0], used[-1] - used[2 * KEPT_PRODUCTS])
"""


@needs_onednn
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap is counted by glibc")
def test_batches_of_other_sizes_take_no_more_memory_for_compiled_products() -> None:
    child = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, timeout=600, check=True)
    first, later = map(int, child.stdout.split())
    assert first > KEPT_PRODUCTS << 13, "nothing was compiled: the test counts nothing"
    assert later < first / 4
