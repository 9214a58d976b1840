"""One item made by a thread while the one before it is used."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor
from typing import TypeVar

Item = TypeVar("Item")


def one_ahead(
    items: Iterator[Item], thread: Executor, drop: Callable[[Item], None] | None = None
) -> Generator[Item, None, None]:
    """Yields items; a thread asks for the next one meanwhile. It asks for none any more when this has ended.

    Args:
        drop: gets an item that was made and is not taken, because this ends early.

    Raises:
        BaseException: the error of the iterator, in the place of its item.
    """

    def following() -> tuple[Item] | None:
        for item in items:
            return (item,)
        return None

    waiting = thread.submit(following)
    try:
        while (made := waiting.result()) is not None:
            waiting = thread.submit(following)
            yield made[0]
    finally:
        if waiting.exception() is None and (made := waiting.result()) is not None and drop is not None:
            drop(made[0])
