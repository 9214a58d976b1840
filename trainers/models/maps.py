"""Maps of rows by several matrices, as differentiable torch operations with fewer products, or fewer matrices that are written.

Tensors are float32, float64, float16 or bfloat16. Within `torch.autocast` products are computed in its type.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.trainers.models.products import add_times, mapped, onednn_product, summed_over_rows, times, times_in


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
