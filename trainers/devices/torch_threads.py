"""Torch's threads for a run, and the same bits from its first operation on.

Torch hands functions like sqrt and exp to oneMKL, a part of a tensor a thread. oneMKL chooses the code of such a function at its first
call; where two threads make that call at once, one of them may get a code of low accuracy for its part, that one time
(pytorch/pytorch#188792; oneMKL 2024.2, which torch's wheels hold). Adam's first step takes a root of every second moment, so without
care a training in eighteen ended with other bits than the rest. A call on one number stays on one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

VECTOR_MATH = (
    "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "sin", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
"""Torch's functions that oneMKL computes, as ATen/cpu/vml.h names them."""


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Gives torch's operations `threads` threads, and puts the number back that was set before."""
    _settle_vector_math()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _settle_vector_math() -> None:
    """Makes the first call of every function, in both types, on this thread alone; later calls of a process find them made."""
    for dtype in (torch.float32, torch.float64):
        half = torch.full((1,), 0.5, dtype=dtype)
        for name in VECTOR_MATH:
            getattr(torch, name)(half)
