"""Work on threads whose results come in the order of its items."""

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(workers: Sequence[Callable[[Item], Result]], items: Iterable[Item]) -> Iterator[Result]:
    """Yields the result of each item in the order of items; at most two per worker are worked on ahead.

    Args:
        workers: functions that do the work, each on one thread at a time. An error of one is raised here.
    """
    idle: queue.SimpleQueue[Callable[[Item], Result]] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def work(item: Item) -> Result:
        worker = idle.get()
        try:
            return worker(item)
        finally:
            idle.put(worker)

    pool, ahead = ThreadPoolExecutor(len(workers)), deque()
    try:
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) >= 2 * len(workers):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
