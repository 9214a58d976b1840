"""Values that the keys of a configuration may have: ranges stand at the fields, and each problem names the keys that it is about."""

import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, NamedTuple

from graphmill.assets.sizes import format_bytes, parse_size, parse_speed
from graphmill.kernels.errors import InputError, did_you_mean


class KeyProblem(NamedTuple):
    """A mistake in the values of a configuration.

    Attributes:
        keys: the keys that it is about, separated by blanks; it is reported at the line of the first.
    """

    keys: str
    text: str


class ConfigError(InputError):
    """Values of a configuration are out of their ranges, or contradict one another."""

    def __init__(self, problems: Iterable[KeyProblem], remedy: str = ""):
        self.problems = tuple(problems)
        super().__init__("; ".join(each.text for each in self.problems), remedy)


def within(
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Returns the metadata of a field with a range: `least` and `most` are allowed values, `above` and `below` are not."""
    return {"least": least, "most": most, "above": above, "below": below} | more


LEAST_GBPS, MOST_GBPS = 1e-6, 1e6
"""Range of a speed: slower, a batch would take longer than a run lasts, and a wait longer than a clock counts."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A configuration that checks itself: choices (`Literal`), ranges (`within`), and `problems`.

    Attributes:
        remedy: what to do about any of its problems, where their sentences do not say it.

    Raises:
        ConfigError: a value is not among its choices, outside its range, or contradicts another; the error has all problems.
    """

    remedy = ""

    def __post_init__(self):
        if found := [*_field_problems(self), *self.problems()]:
            raise ConfigError(found, self.remedy)

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the problems besides choices and ranges; a subclass yields those of its base as well."""
        yield from ()


def size_problem(
    name: str, value: Any, remedy: str = "", whole: int | None = None, least: int = 0
) -> Iterator[KeyProblem]:
    """Yields the problem of a key that names a size.

    Args:
        remedy: what to write instead; "" for that of `parse_size`.
        whole: number of bytes that a share refers to; None if it has no meaning.
        least: least number of bytes that it may name.
    """
    try:
        if parse_size(value, whole) < least:
            yield KeyProblem(name, f'{name} = {value} is less than {format_bytes(least)}: give for example "2GiB"')
    except InputError as error:
        yield KeyProblem(name, f"{name} = {value!r}: {error.problem}; {remedy or error.remedy}")


def speed_problem(name: str, value: str | None) -> Iterator[KeyProblem]:
    """Yields the problem of a key that names a speed, None for none."""
    if value is None:
        return
    try:
        gbps = parse_speed(value) / 1e9
    except InputError as error:
        yield KeyProblem(name, f"{name} = {error.problem}; {error.remedy}")
        return
    if not LEAST_GBPS <= gbps <= MOST_GBPS:
        yield KeyProblem(name, f'{name} = {value!r} is not between "1 kB/s" and "1000 TB/s"')


def gbps_of(value: str | None) -> float | None:
    """Returns the GB/s (10^9 bytes per second) of a speed, None for None."""
    return None if value is None else parse_speed(value) / 1e9


def _field_problems(config: Any) -> Iterator[KeyProblem]:
    """Yields the fields of a configuration whose values are not among their choices, or not in their ranges."""
    for name, choices in _choices(type(config)).items():
        if (value := getattr(config, name)) not in choices:
            hint = did_you_mean(value, choices, "'")
            yield KeyProblem(name, f"{name} = {value!r} is not one of {', '.join(map(str, choices))}{hint}")
    for each in fields(config):
        value, bounds = getattr(config, each.name), each.metadata
        if not isinstance(value, int | float) or "least" not in bounds:
            continue
        for bound, holds, words in (
            ("above", lambda bound, value=value: value > bound, "not above"),
            ("least", lambda bound, value=value: value >= bound, "below"),
            ("below", lambda bound, value=value: value < bound, "not below"),
            ("most", lambda bound, value=value: value <= bound, "above"),
        ):
            if bounds[bound] is not None and not holds(bounds[bound]):
                yield KeyProblem(each.name, f"{each.name} = {value!r} is {words} {bounds[bound]:,}")
                break


@cache
def _choices(kind: type) -> dict[str, tuple[Any, ...]]:
    """Returns field -> its choices, of the fields that are a `Literal` and nothing else."""
    hints = typing.get_type_hints(kind)
    return {
        each.name: typing.get_args(hints[each.name])
        for each in fields(kind)
        if typing.get_origin(hints[each.name]) is Literal
    }
