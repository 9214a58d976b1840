"""Curves in a terminal: letters on a grid of characters, so that neither colours nor other programs are needed."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from itertools import pairwise

from graphmill.jobs.report.series import Series

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
HEIGHT, LEAST_WIDTH = 16, 24


def curve_lines(title: str, curves: Sequence[Series], width: int, *, log: bool = False) -> Iterator[str]:
    """Yields the lines of a picture of curves, and a legend: a letter for each curve, and its last value.

    Args:
        title: the first line.
        curves: at least one curve; later ones are drawn over earlier ones.
        width: columns of the terminal.
        log: whether the vertical axis is logarithmic; all values are above 0 then.
    """
    points = [(x, y) for curve in curves for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]
    yield title
    if not points:
        yield "  no finite value"
        return
    scale = math.log if log else float
    lefts, heights = [x for x, _ in points], [scale(y) for _, y in points]
    low, high = min(heights), max(heights)
    labels = [f"{math.exp(each) if log else each:.4g}" for each in (high, (low + high) / 2, low)]
    margin = max(map(len, labels))
    columns = max(LEAST_WIDTH, width - margin - 3)
    across, down = (min(lefts), max(lefts)), (low, high)
    grid = [[" "] * columns for _ in range(HEIGHT)]
    for letter, curve in zip(_letters(len(curves)), curves, strict=True):
        places = [
            (_place(x, across, columns), HEIGHT - 1 - _place(scale(y), down, HEIGHT))
            for x, y in zip(curve.x, curve.y, strict=True)
            if math.isfinite(y)
        ]
        for column, row in _joined(places):
            grid[row][column] = letter
    beside = {0: labels[0], HEIGHT // 2: labels[1], HEIGHT - 1: labels[2]}
    for number, row in enumerate(grid):
        yield f"{beside.get(number, ''):>{margin}} |{''.join(row)}".rstrip()
    yield f"{'':{margin}} +{'-' * columns}"
    left, right = f"{across[0]:.4g}", f"{across[1]:.4g}"
    yield f"{'':{margin}}  {left}{right:>{columns - len(left)}}"
    for letter, curve in zip(_letters(len(curves)), curves, strict=True):
        last = f"{curve.y[-1]:.4g}" if math.isfinite(curve.y[-1]) else "not finite"
        yield f"  {letter}  {curve.label}: {last} at {curve.x[-1]:.4g}"


def _letters(count: int) -> list[str]:
    return [LETTERS[place % len(LETTERS)] for place in range(count)]


def _place(value: float, ends: tuple[float, float], count: int) -> int:
    """Returns the place of a value among `count` ones from the first end to the last."""
    low, high = ends
    return 0 if high <= low else round((value - low) / (high - low) * (count - 1))


def _joined(places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the cells of a line through all places."""
    yield from places[:1]
    for (x, y), (to_x, to_y) in pairwise(places):
        steps = max(abs(to_x - x), abs(to_y - y))
        for step in range(1, steps + 1):
            yield x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)
