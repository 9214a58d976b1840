"""Matrix products of float32 rows on the host: oneDNN beside the library that `torch.mm` calls, one process, in drawn order.

The shapes are those of a step (features x hidden, hidden x hidden), of exact inference and of a head. Each is measured as the product of a
map, as the gradient of its rows and as that of its matrix (trainers/models/products.py). The results of both libraries are compared with
float64 first. On processors of Intel graphmill takes the library of torch, elsewhere oneDNN: the row says what this machine does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, get_args

from benchmarks.record import in_turn, record

SHAPES = ((30_000, 100, 256), (30_000, 256, 256), (100_000, 128, 64), (8_000, 256, 16))
"""Rows, columns of a row, columns of the result."""
KINDS = ("map", "rows", "matrix")
"""The product of a map, the gradient of its rows, the gradient of its matrix."""
ROUNDS, LEAST_SECONDS = 15, 0.05


def main(quick: bool) -> None:
    import torch

    from graphmill.trainers.models.products import Library, own_library

    libraries = get_args(Library)
    rows = []
    for shape in SHAPES[-2:] if quick else SHAPES:
        for kind in KINDS:
            runs = {name: _product(shape, kind, name) for name in libraries}
            results = {name: run().double() for name, run in runs.items()}
            exact = _product(shape, kind, "blas", torch.float64)()
            for name, found in results.items():
                error = ((found - exact).abs().max() / exact.abs().max()).item()
                assert error < 1e-5, f"{name} differs from float64 by {error} of the largest value"
            seconds = in_turn(
                {name: lambda run=run: _seconds(run) for name, run in runs.items()}, 3 if quick else ROUNDS
            )
            operations = 2 * shape[0] * shape[1] * shape[2]
            found = {name: operations / statistics.median(each) / 1e9 for name, each in seconds.items()}
            rows.append({"shape": shape, "kind": kind, "gflops": found, "ratio": found["onednn"] / found["blas"]})
            shown = " x ".join(f"{each:,}" for each in shape)
            print(
                f"{shown}, {kind}: oneDNN {found['onednn']:.0f}, BLAS {found['blas']:.0f} GFLOP/s, {rows[-1]['ratio']:.2f} times"
            )
    taken = own_library()
    print(f"on this machine products are computed by {taken}; {torch.get_num_threads()} threads")
    row = {
        "scale": "quick" if quick else "full",
        "library": taken,
        "threads": torch.get_num_threads(),
        "products": rows,
    }
    record("products", row)


def _product(shape: tuple[int, int, int], kind: str, library: Any, dtype: Any = None) -> Callable[[], Any]:
    """A function that computes a product of the same random matrices."""
    import torch

    from graphmill.trainers.models.products import products_of, summed_over_rows, times

    generator = torch.Generator().manual_seed(0)
    count, inner, columns = shape
    inputs, matrix, grad = (
        torch.randn(size, generator=generator).to(dtype or torch.float32)
        for size in ((count, inner), (columns, inner), (count, columns))
    )
    products = {
        "map": lambda: times(inputs, matrix),
        "rows": lambda: times(grad, matrix.T),
        "matrix": lambda: summed_over_rows(grad, inputs),
    }

    def run() -> Any:
        with products_of(library):
            return products[kind]()

    return run


def _seconds(run: Callable[[], Any]) -> float:
    """The seconds of one product, of as many as take `LEAST_SECONDS`."""
    count, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < LEAST_SECONDS:
        run()
        count += 1
    return spent / count
