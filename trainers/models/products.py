"""Matrix products of float32 rows on the host: by oneDNN where that is faster than what torch calls, with sums in a fixed order.

`torch.mm` calls oneMKL, which leaves half of a processor unused if its maker is not Intel, and whose sums depend on the number of threads
at some shapes. oneDNN is a part of torch. On such processors its products take 0.4 to 0.8 of the time; they are the same with any number
of threads, and a row of the result is the same beside any other rows.

oneDNN compiles a product for each number of rows, and keeps those of the latest 1,024 shapes: half a MiB each, of which a training whose
batches all differ took hundreds. Those of one batch are enough.

Maps of rows by several matrices are differentiable torch operations with fewer products, or fewer matrices that are written. Tensors are
float32, float64, float16 or bfloat16. Within `torch.autocast` products are computed in its type.

The key `dtype` of a train table: "float32" and "float64" are the type of the parameters and of all values computed from them. With "bf16"
parameters, moments, sums and losses stay float32, and matrix products are computed from bfloat16 by torch's autocast; the results of a
product keep its type until an operation widens them. Layers between two passes of an exact evaluation are kept in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.kernels import environment

PIECE_ROWS = 4096
"""Rows of a product that is added to others: it stays in the processor's cache, and so does what oneDNN rearranges of it."""
LEAST_ENTRIES = 2048
"""Entries of the smaller matrix from which oneDNN takes a product: below it takes longer to prepare than to compute."""
KEPT_PRODUCTS = 32
"""Shapes whose compiled products are kept."""
for name in (environment.PRODUCTS, environment.SHAPES):  # oneDNN and torch read them at the first product
    environment.set_default(name, str(KEPT_PRODUCTS))

Library = Literal["onednn", "blas"]
_chosen: list[Library] = []


@functools.cache
def own_library() -> Library:
    """Returns the library of this machine's products: oneDNN, or BLAS on a processor of Intel and where torch has no oneDNN."""
    try:
        intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        intel = False
    return "onednn" if torch.backends.mkldnn.is_available() and not intel else "blas"


def library() -> Library:
    """Returns the library that computes products now."""
    return _chosen[-1] if _chosen else own_library()


@contextmanager
def products_of(chosen: Library) -> Iterator[None]:
    """Has a library compute all products of this process."""
    _chosen.append(chosen)
    try:
        yield
    finally:
        _chosen.pop()


def times(rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns rows times the transpose of a matrix, without gradient: float[n, G].

    Args:
        rows: float[n, F].
        matrix: float[G, F].
        bias: float[G], added to each row.
    """
    if _taken(matrix.numel(), rows, matrix):
        return onednn_product(rows, matrix, bias)
    return functional.linear(rows, matrix, bias)


def times_in(out: Tensor | None, rows: Tensor, matrix: Tensor) -> Tensor:
    """Writes rows times the transpose of a matrix to `out`: float[n, G], and returns it; to a new one if it is None, as `times`."""
    if out is None:
        return times(rows, matrix)
    if not _taken(matrix.numel(), rows, matrix):
        return torch.mm(rows, matrix.T, out=out)
    for place, piece in _pieces(out, rows):
        place.copy_(onednn_product(piece, matrix))
    return out


def add_times(into: Tensor, rows: Tensor, matrix: Tensor) -> Tensor:
    """Adds rows times the transpose of a matrix to `into`: float[n, G], in its place, and returns it; see `times`."""
    if not _taken(matrix.numel(), rows, matrix):
        return into.addmm_(rows, matrix.T)
    for place, piece in _pieces(into, rows):
        place.add_(onednn_product(piece, matrix))
    return into


def summed_over_rows(left: Tensor, right: Tensor) -> Tensor:
    """Returns float[G, F], the product of float[n, G] and float[n, F] over their rows, without gradient: that of a map's matrix."""
    if not _taken(left.shape[1] * right.shape[1], left, right):
        return left.T @ right
    products = (onednn_product(a.T, b.T) for a, b in _pieces(left, right))
    total = next(products)
    for product in products:
        total.add_(product)
    return total


class _Mapped(torch.autograd.Function):
    """`times` and its gradients, each a product of this module."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, matrix)
        return times(rows, matrix, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (rows, matrix), needed = grads, ctx.saved_tensors, ctx.needs_input_grad
        return (
            times(grad, matrix.T) if needed[0] else None,
            summed_over_rows(grad, rows) if needed[1] else None,
            grad.sum(0) if needed[2] else None,
        )


def mapped(rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `times`, with gradient, and with the type of `torch.autocast`."""
    if _taken(matrix.numel(), rows, matrix):
        return _Mapped.apply(rows, matrix, bias)  # pyright: ignore[reportReturnType]
    return functional.linear(rows, matrix, bias)


class Map(nn.Linear):
    """`torch.nn.Linear` by the products of this module: the same parameters, initial values and keys of a state dict."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns float[n, out_features] from rows: float[n, in_features]."""
        return mapped(input, self.weight, self.bias)


def _taken(entries: int, *matrices: Tensor) -> bool:
    """Whether oneDNN computes a product: of float32 matrices with rows on the host, outside of `torch.autocast`, and not too small.

    Args:
        entries: of the matrix of a map, or of its gradient.
    """
    plain = all(each.dtype == torch.float32 and each.device.type == "cpu" and each.dim() == 2 for each in matrices)
    some = entries >= LEAST_ENTRIES and all(len(each) and each.shape[1] > 1 for each in matrices)
    return plain and some and library() == "onednn" and not torch.is_autocast_enabled("cpu")


def _pieces(left: Tensor, right: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(left.split(PIECE_ROWS), right.split(PIECE_ROWS), strict=True)


def onednn_product(rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns `times` of float32 rows on the host, at least one, by oneDNN; a row has the same bits alone and beside others.

    Columns of a wider matrix are copied first: with such a matrix oneDNN computes by plain loops, a thousand times as slow.
    """
    if not (matrix.is_contiguous() or matrix.T.is_contiguous()):
        matrix = matrix.contiguous()
    if len(rows) == 1:  # alone it would be summed in another order than beside other rows
        # A copy, since what follows writes in place, which autograd refuses on a view of a function of its own.
        return onednn_product(rows.expand(2, -1).contiguous(), matrix, bias)[:1].clone()
    return torch.ops.mkldnn._linear_pointwise(rows, matrix, bias, "none", [], "")


class _MapPieces(torch.autograd.Function):
    """Maps pieces of rows, each by a matrix of its own: one product per piece, into one result."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...], *matrices: Tensor) -> Tensor:
        kind, ctx.counts = rows.device.type, counts
        ctx.dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype
        ctx.save_for_backward(rows, *matrices)
        return _mapped(rows, counts, [matrix.T for matrix in matrices], ctx.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (rows, *matrices) = grads, ctx.saved_tensors
        below = _mapped(grad, ctx.counts, matrices, ctx.dtype) if ctx.needs_input_grad[0] else None
        pieces = zip(matrices, grad.split(ctx.counts), rows.split(ctx.counts), strict=True)
        found = [
            summed_over_rows(above.to(ctx.dtype), row.to(ctx.dtype)).to(matrix.dtype) for matrix, above, row in pieces
        ]
        return below, None, *found


class _MapBoth(torch.autograd.Function):
    """a A^T + b + c C^T, the second product being added to the first in its place."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, a_map: Tensor, bias: Tensor, c: Tensor, c_map: Tensor) -> Tensor:
        ctx.save_for_backward(a, a_map, c, c_map)
        return add_times(times(a, a_map, bias), c, c_map)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (a, a_map, c, c_map), needed = grads, ctx.saved_tensors, ctx.needs_input_grad
        return (
            times(grad, a_map.T) if needed[0] else None,
            summed_over_rows(grad, a) if needed[1] else None,
            grad.sum(0) if needed[2] else None,
            times(grad, c_map.T) if needed[3] else None,
            summed_over_rows(grad, c) if needed[4] else None,
        )


class _MapTwice(torch.autograd.Function):
    """Two maps of the same rows as one product, and one product of their gradients."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        maps = torch.cat([first, second])
        ctx.save_for_backward(rows, maps)
        found = times(rows, maps)
        return found[:, : len(first)].contiguous(), found[:, len(first) :].contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        rows, maps = ctx.saved_tensors
        grad = torch.cat(grads, dim=1)
        below, found = times(grad, maps.T) if ctx.needs_input_grad[0] else None, summed_over_rows(grad, rows)
        of_first, of_second = found.split([grads[0].shape[1], grads[1].shape[1]])
        return below, of_first, of_second


def _mapped(rows: Tensor, counts: tuple[int, ...], matrices: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Returns rows times matrices, piece by piece, computed in a type and kept in that of the rows."""
    out = rows.new_empty((len(rows), matrices[0].shape[1]))
    for piece, place, matrix in zip(rows.split(counts), out.split(counts), matrices, strict=True):
        if dtype == rows.dtype == matrix.dtype:
            times_in(place, piece, matrix.T)
        else:
            place.copy_(piece.to(dtype) @ matrix.to(dtype))
    return out


def map_pieces(rows: Tensor, counts: tuple[int, ...], matrices: Sequence[Tensor]) -> Tensor:
    """Maps consecutive pieces of rows, each by a matrix of its own, with gradient.

    Args:
        rows: float[n, F].
        counts: number of rows of each piece; their sum is n.
        matrices: float[G, F] for each piece.

    Returns:
        float[n, G].
    """
    return _MapPieces.apply(rows, counts, *matrices)  # pyright: ignore[reportReturnType]


def map_both(a: Tensor, a_map: nn.Linear, c: Tensor, c_map: nn.Linear) -> Tensor:
    """Returns the sum of maps of float[n, F], with a bias, and of float[n, K], without one: float[n, G], with gradient."""
    if torch.is_autocast_enabled(a.device.type):
        return a_map(a) + c_map(c)
    return _MapBoth.apply(a, a_map.weight, a_map.bias, c, c_map.weight)  # pyright: ignore[reportReturnType]


def map_twice(rows: Tensor, first: nn.Linear, second: nn.Linear) -> tuple[Tensor, Tensor]:
    """Returns two maps of the same rows, float[n, F], without their biases, with gradient: float[n, G] and float[n, K]."""
    if torch.is_autocast_enabled(rows.device.type):
        return functional.linear(rows, first.weight), functional.linear(rows, second.weight)
    return _MapTwice.apply(rows, first.weight, second.weight)  # pyright: ignore[reportReturnType]


def map_halves(rows: Tensor, first: nn.Linear, second: nn.Linear) -> Tensor:
    """Returns the sum of two maps of two parts of rows, as one product, with gradient: float[n, G]; biases are left out.

    Args:
        rows: float[n, F + K].
        first, second: the maps of the left F and of the right K columns, to G columns.
    """
    return mapped(rows, torch.cat([first.weight, second.weight], dim=1))


def map_evaluated(rows: Tensor, *matrices: Tensor) -> Sequence[Tensor]:
    """Maps rows by several matrices with one product, without gradient; float32 on the host by oneDNN.

    It takes half of BLAS's time, and its sums do not depend on the number of threads; those of BLAS do at some numbers of columns.

    Args:
        rows: float[n, F].
        matrices: float[G, F] each.

    Returns:
        float[n, G] of each matrix; on the host views of one array.
    """
    maps, host = torch.cat(matrices), rows.device.type == "cpu"
    plain = rows.dtype == maps.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    if host and plain and len(rows) and torch.backends.mkldnn.is_available():
        product = onednn_product(rows, maps)
    else:
        product = functional.linear(rows, maps)
    found = product.split([len(matrix) for matrix in matrices], dim=1)
    return found if host else [each.contiguous() for each in found]


BF16 = "bf16"


def kept_dtype(dtype: str) -> str:
    """Returns NumPy's and torch's name of the type of parameters and of gathered rows."""
    return "float32" if dtype == BF16 else dtype


def computing(dtype: str, device: torch.device) -> AbstractContextManager[Any]:
    """Returns the context in which a model's forward pass is computed on a device."""
    return torch.autocast(device.type, torch.bfloat16) if dtype == BF16 else nullcontext()


def widened(rows: Tensor) -> Tensor:
    """Returns rows that autocast left in bfloat16 as float32; others as they are."""
    return rows.float() if rows.dtype == torch.bfloat16 else rows
