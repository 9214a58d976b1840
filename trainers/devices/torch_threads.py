"""Torch's threads for a run, the same bits from its first operation on, and how promptly Python's threads take turns.

Torch hands functions like sqrt and exp to oneMKL, a part of a tensor a thread. oneMKL chooses the code of such a function at its first
call; where two threads make that call at once, one of them may get a code of low accuracy for its part, that one time
(pytorch/pytorch#188792; oneMKL 2024.2, which torch's wheels hold). Adam's first step takes a root of every second moment, so without
care a training in eighteen ended with other bits than the rest. A call on one number stays on one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

VECTOR_MATH = (
    "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "sin", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
"""Torch's functions that oneMKL computes, as ATen/cpu/vml.h names them."""


SWITCH_SECONDS = 0.0002
"""How long a thread keeps Python's lock while another one wants it."""


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


@contextmanager
def prompt_turns() -> Iterator[None]:
    """Has Python's threads take turns promptly.

    Executors sample, gather and compute in native code and come back to Python for a moment per batch. Python lets a thread keep its lock
    for 5 ms while others want it, which is as long as a stage of a batch.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH_SECONDS, before))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@cache
def _settle_vector_math() -> None:
    """Makes the first call of every function, in both types, on this thread alone; later calls of a process find them made."""
    for dtype in (torch.float32, torch.float64):
        half = torch.full((1,), 0.5, dtype=dtype)
        for name in VECTOR_MATH:
            getattr(torch, name)(half)
