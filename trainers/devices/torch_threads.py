"""Sets torch's threads for a run, reproducible bits from its first operation on, and short turns of Python's threads.

Torch computes functions like sqrt and exp by oneMKL, one part of a tensor per thread. oneMKL chooses the code of such a function at its
first call; if two threads make that call at once, one of them may get a code of low accuracy for its part, that one time
(pytorch/pytorch#188792; oneMKL 2024.2, which torch's wheels contain). Adam's first step takes a root of every second moment, so without
this module one training in eighteen ended with other bits than the rest. A call on one number stays on one thread.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar, cast

import torch

T = TypeVar("T")
VECTOR_MATH = (
    "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "sin", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
"""Torch's functions that oneMKL computes, as ATen/cpu/vml.h names them."""


SWITCH_SECONDS = 0.0002
"""Seconds for which a thread keeps Python's lock while another one waits for it."""


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Gives torch's operations `threads` threads, and restores the former number at the end."""
    settle_vector_math()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_threads(pieces: Iterable[T], threads: int) -> Iterator[T]:
    """Yields pieces, each computed with `threads` threads, whichever thread asks for it: each thread has a number of its own."""
    iterator, end = iter(pieces), object()
    while True:
        with torch_threads(threads):
            piece = next(iterator, end)
        if piece is end:
            return
        yield cast(T, piece)


@contextmanager
def prompt_turns() -> Iterator[None]:
    """Makes Python's threads switch quickly.

    The roles of `factored` sample, gather and compute in native code and return to Python for a moment per batch. By default Python lets a
    thread keep the interpreter's lock for 5 ms while others wait, which is as long as a stage of a batch.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH_SECONDS, before))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@cache
def settle_vector_math() -> None:
    """Makes the first call of every function, in both types, on this thread alone, once per process."""
    for dtype in (torch.float32, torch.float64):
        half = torch.full((1,), 0.5, dtype=dtype)
        for name in VECTOR_MATH:
            getattr(torch, name)(half)
