"""Tiles of rows side by side: one thread computes a whole tile, and results come in the order of the tiles.

Threads that share each product and each sum wait for one another after every operation, and all of them for the Python code between two
operations: a quarter of an exact evaluation in memory. A tile that one thread computes has the same bits on any number of threads, which
products of BLAS that threads share have not at some numbers of columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

import torch

from graphmill.trainers.devices.torch_threads import settle_vector_math

AHEAD_BYTES, MOST_AHEAD = 8 << 20, 64
"""Bytes of the tiles, and most tiles, that wait to be computed or to be taken, beyond one for each thread; one tile at least."""
Result = TypeVar("Result")
Tile = tuple[Any, ...]


class TileThreads:
    """Threads that each compute one tile at a time; a context. They start with the first tiles."""

    def __init__(self, number: int):
        self.number, self._threads = number, None

    def __enter__(self) -> TileThreads:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def in_order(
        self, function: Callable[..., Result], tiles: Iterable[Tile], tile_bytes: int
    ) -> Iterator[tuple[int, int, Result]]:
        """Yields (low, high, result of the function) of each tile, in their order.

        Args:
            function: receives the values of a tile; any thread may call it.
            tiles: (low, high, ...) of each tile; the caller's thread takes them, one after the other.
            tile_bytes: bytes that a tile holds while it waits, or its result.
        """
        self._threads = self._threads or _single_threads(self.number)
        ahead = max(1, min(MOST_AHEAD, AHEAD_BYTES // max(1, tile_bytes)))
        waiting = deque[tuple[int, int, Future[Result]]]()
        for tile in tiles:
            waiting.append((tile[0], tile[1], self._threads.submit(function, *tile)))
            if len(waiting) == self.number + ahead:
                yield _first(waiting)
        while waiting:
            yield _first(waiting)


def _first(waiting: deque[tuple[int, int, Future[Result]]]) -> tuple[int, int, Result]:
    low, high, result = waiting.popleft()
    return low, high, result.result()


def _single_threads(number: int) -> ThreadPoolExecutor:
    """Starts threads that compute without gradients, each of torch's operations on the thread that calls it."""
    settle_vector_math()
    before, started = torch.get_num_threads(), Barrier(number + 1)
    threads = ThreadPoolExecutor(number, "tile", _compute_alone)
    for _ in range(number):
        threads.submit(started.wait)
    started.wait()
    torch.set_num_threads(before)  # what a thread was told last is also the number of threads that are yet to start
    return threads


def _compute_alone() -> None:
    torch.get_num_threads()  # takes the process's number once, and not later in place of the next one
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
