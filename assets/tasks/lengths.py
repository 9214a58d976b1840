"""Lengths of time, such as `window` of [sampling]: a number in the unit of the times, or of dates a length such as "7d"."""

import re
from collections.abc import Sequence

from graphmill.kernels.errors import InputError

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
LENGTH = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d|w)")
PER_SECOND = 1e6
"""Dates are kept in microseconds."""
LEAST_DATE = 1e13
"""Smallest largest time of dates: numbers below are another unit, or dates before May 1970."""


def length_problem(key: str, length: float | str | None) -> str:
    """Returns the problem of the length that a key has, "" without one."""
    if isinstance(length, str) and not LENGTH.fullmatch(length):
        return f'{key} = "{length}" is not a length: write a number and one of {", ".join(SECONDS)}, such as "7d"'
    if length is not None and not length_size(length) > 0:
        return f"{key} = {length} has no time in it: give a length above 0, or leave it out"
    return ""


def length_size(length: float | str) -> float:
    """Returns a length in the unit of the times, microseconds for a text."""
    if not isinstance(length, str):
        return float(length)
    number, unit = LENGTH.fullmatch(length).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return float(number) * SECONDS[unit] * PER_SECOND


def require_dates(key: str, length: float | str | None, times: Sequence[float], of: str = "edges") -> None:
    """Raises InputError if the length that a key has is one of dates, and the times are not dates.

    Args:
        times: the earliest and the latest time.
    """
    if isinstance(length, str) and max(map(abs, times)) < LEAST_DATE:
        problem = f'{key} = "{length}" is a length of dates, and the times of the {of} are numbers from {times[0]:g} to {times[1]:g}'
        raise InputError(problem, f"give the {key} as a number in their unit, or the times as dates")
