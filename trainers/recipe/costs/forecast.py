"""What a training is expected to take: memory, bytes over each link and seconds of an epoch.

A technique's formulas are in its `Costs`, which its row of the table names. Numbers that follow from artifacts alone, such as those of
packed chunks, are exact; others are means over the drawn batches of a `Case`.

Seconds are those of pieces that run side by side. A machine of c cores gives a batch no less time than its longest piece takes, and no less
than a c-th of the work of all pieces; the larger of the two is said. Disks are read beside both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphmill.assets.costs.needs import Term
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.course import Case, Scored
from graphmill.trainers.recipe.costs.evaluation import cold_seconds
from graphmill.trainers.recipe.costs.memory import memory_terms
from graphmill.trainers.recipe.techniques import find_technique

SAMPLING, LOADING, COMPUTING, EXCHANGING = "sampling", "loading", "computing", "exchanging"
"""Pieces of an epoch: drawing batches, bringing their rows, the steps, and waiting for other processes."""

RANK_START = 0.45
"""Share of the seconds of a start that another rank's imports take, on one of the cores that all ranks share."""
Links = tuple[Mapping[str, float], bool]
Seconds = tuple[Mapping[str, float], float]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The formulas of a technique.

    Attributes:
        memory: case -> terms of the memory of all its processes, without those that wait for it.
        links: case -> (link -> bytes of an epoch, whether they follow from artifacts alone).
        seconds: case with measured speeds -> (piece -> seconds of an epoch, seconds of the epoch).
        evaluated: case with measured speeds, counts of an evaluation -> its seconds.
        ranges: case -> (link -> least and most bytes of an epoch), for links whose bytes depend on timing; None if none do.
    """

    memory: Callable[[Case], Sequence[Term]]
    links: Callable[[Case], Links]
    seconds: Callable[[Case], Seconds]
    evaluated: Callable[[Case, Scored], float]
    ranges: Callable[[Case], Mapping[str, tuple[float, float]]] | None = None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a training is expected to take.

    Attributes:
        memory: name of a term -> bytes, of all its processes, without those that wait for it; empty if there is no formula.
        links: link of the ledger -> bytes of an epoch, over all processes.
        ranges: link -> (least, most) bytes of an epoch, for links whose bytes depend on how fast threads turn out to be beside each other.
        exact: whether the bytes follow from artifacts alone.
        pieces: piece -> seconds of an epoch, each on its own; empty if nothing was measured.
        epoch_seconds: seconds of an epoch without its evaluation; None if nothing was measured.
        start_seconds: seconds until its first batch: processes, and reading what stays in memory from a disk; 0 likewise.
        evaluation_seconds: seconds of the evaluations between all epochs; 0 if they were not counted.
        scores_seconds: seconds of the scores at the end; 0 likewise.
    """

    memory: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    exact: bool = False
    pieces: Mapping[str, float] = field(default_factory=dict)
    epoch_seconds: float | None = None
    start_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    scores_seconds: float = 0.0

    @property
    def memory_bytes(self) -> int | None:
        """The sum of `memory`; None if there is no formula."""
        return sum(self.memory.values()) if self.memory else None

    def values(self) -> dict[str, Any]:
        """Returns everything as JSON-ready values."""
        seconds = None if self.epoch_seconds is None else round(self.epoch_seconds, 6)
        return {
            "memory_bytes": self.memory_bytes,
            "bytes_per_epoch": dict(self.links),
            "bytes_range": {link: list(each) for link, each in self.ranges.items()},
            "exact": self.exact,
            "epoch_seconds": seconds,
            **self._once(),
            "pieces": {name: round(each, 6) for name, each in self.pieces.items()},
        }

    def _once(self) -> dict[str, float]:
        """Returns name -> seconds of what a training takes once, as far as they were measured."""
        names = ("start_seconds", "evaluation_seconds", "scores_seconds")
        return {name: round(each, 6) for name in names if (each := getattr(self, name))}


def forecast(case: Case) -> Forecast | None:
    """Returns the forecast of a training; None for a technique or a device without a formula, and of an unknown sampler."""
    technique = find_technique(case.semantic.train.trainer)
    unknown = not has_formula(case.semantic) or (case.drawn is None and not technique.whole_graph)
    if unknown or (case.drawn is not None and not case.drawn.blocks):
        return None
    costs: Costs = technique.open_costs()
    links, exact = costs.links(case)
    links = {link: round(num_bytes) for link, num_bytes in links.items() if num_bytes >= 0.5}
    unsure = {} if costs.ranges is None else costs.ranges(case)
    ranges = {link: (round(least), round(most)) for link, (least, most) in unsure.items() if round(least) < round(most)}
    found = Forecast(memory=expected_memory(case), links=links, ranges=ranges, exact=exact)
    if case.speeds is None:
        return found
    pieces, seconds = costs.seconds(case)
    return replace(
        found,
        pieces=pieces,
        epoch_seconds=seconds,
        start_seconds=case.speeds.start * (1 + RANK_START * (case.ranks - 1) / case.cores) + cold_seconds(case),
        evaluation_seconds=case.num_evaluations * costs.evaluated(case, case.valid) if case.valid else 0.0,
        scores_seconds=costs.evaluated(case, case.final) if case.final else 0.0,
    )


def has_formula(semantic: ModelConfig) -> bool:
    """Returns whether there are formulas for a technique on its device: of a GPU there are none yet."""
    return bool(find_technique(semantic.train.trainer).costs) and semantic.train.device == "cpu"


def expected_memory(case: Case) -> dict[str, int]:
    """Returns name of a term -> bytes that it is expected to take, of a technique with formulas."""
    return {term.name: term.expected for term in memory_terms(case) if term.expected}
