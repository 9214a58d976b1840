"""The key `window` of [sampling]: a number in the unit of the times, or of dates a length such as "7d"."""

import math
import re
from collections.abc import Sequence

from graphmill.kernels.errors import InputError

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
LENGTH = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d|w)")
PER_SECOND = 1e6
"""Dates are kept in microseconds."""
LEAST_DATE = 1e13
"""Smallest largest time of dates: numbers below are another unit, or dates before May 1970."""


def window_problem(window: float | str | None) -> str:
    """Returns the problem of a window, "" without one."""
    if isinstance(window, str) and not LENGTH.fullmatch(window):
        return f'window = "{window}" is not a length: write a number and one of {", ".join(SECONDS)}, such as "7d"'
    if window is not None and not window_size(window) > 0:
        return f"window = {window} has no time in it: give a length above 0, or leave it out"
    return ""


def window_size(window: float | str | None) -> float:
    """Returns a window in the unit of the times, microseconds for a text; infinite for None."""
    if window is None:
        return math.inf
    if not isinstance(window, str):
        return float(window)
    number, unit = LENGTH.fullmatch(window).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return float(number) * SECONDS[unit] * PER_SECOND


def require_dates(window: float | str | None, times: Sequence[float]) -> None:
    """Raises InputError if a window is a length of dates, and the times are not dates.

    Args:
        times: the earliest and the latest time of the edges.
    """
    if isinstance(window, str) and max(map(abs, times)) < LEAST_DATE:
        problem = f'window = "{window}" is a length of dates, and the times of the edges are numbers from {times[0]:g} to {times[1]:g}'
        raise InputError(problem, "give the window as a number in their unit, or the times as dates")
