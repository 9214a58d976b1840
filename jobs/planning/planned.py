"""The trainings of a plan, each with what it is expected to take on this machine, and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphmill.assets.pipeline.file import Pipeline
from graphmill.jobs.planning.variants import Variant
from graphmill.trainers.recipe.costs.forecast import Forecast

TIE = 0.1
"""Share by which seconds differ before one technique counts as faster than another."""
PIECES = ("start", "evaluation", "scores")
"""What a training takes once, besides its epochs."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One training of a plan.

    Attributes:
        variant: the training.
        forecast: what it is expected to take; None if it is refused, or if there is no formula for it.
        why: reason why there is no forecast, if its variant is not refused.
        fits: whether its memory fits the machine's.
        stages: name of a step that it needs and the store lacks -> seconds of its build; those of unknown speed are 0.
        epochs: number of its epochs, of all seeds.
        seeds: number of its seeds, which share what is prepared.
        evaluation: the way of its evaluations with the reason, in words, if the file leaves it open; "" if not.
    """

    variant: Variant
    forecast: Forecast | None = None
    why: str = ""
    fits: bool = False
    stages: Mapping[str, float] = field(default_factory=dict)
    epochs: int = 0
    seeds: int = 1
    evaluation: str = ""

    @property
    def preparing(self) -> float:
        """Seconds of all stages that are not built."""
        return sum(self.stages.values())

    @property
    def own_preparing(self) -> float:
        """Seconds of those besides the graph and its features, which every training needs."""
        return sum(seconds for name, seconds in self.stages.items() if not _is_common(name))

    @property
    def epoch_seconds(self) -> float:
        """Seconds of an epoch; infinite if they are not known."""
        known = self.forecast is not None and self.forecast.epoch_seconds is not None
        return float(self.forecast.epoch_seconds) if known else float("inf")  # pyright: ignore

    def of_seeds(self, piece: str) -> float:
        """Returns the seconds of a piece of the forecast, "start", "evaluation" or "scores", of all seeds; infinite likewise."""
        known = self.epoch_seconds < float("inf")
        return self.seeds * getattr(self.forecast, f"{piece}_seconds") if known else float("inf")

    @property
    def total_seconds(self) -> float:
        """Seconds that a user waits, of all seeds: preparing, starting, epochs, evaluations and final scores."""
        return self.preparing + self.epochs * self.epoch_seconds + sum(map(self.of_seeds, PIECES))

    @property
    def memory_bytes(self) -> float:
        """Bytes of memory that it is expected to take; infinite if they are not known."""
        known = None if self.forecast is None else self.forecast.memory_bytes
        return float("inf") if known is None else known

    @property
    def exact(self) -> bool:
        """Whether it trains on whole mini-batches, so that its epochs are worth as much as those of the others."""
        technique = self.variant.technique
        return not technique.approximate and not technique.whole_graph


@dataclass(frozen=True, kw_only=True)
class TechniquePlan:
    """The result.

    Attributes:
        pipeline: the file.
        rows: the trainings, in the order of the file, then the other techniques.
        memory_bytes: memory of the machine.
        built: whether the graph is built; else one that is drawn stands in for it.
        text: text of a file with the chosen training alone; "" if none fits.
    """

    pipeline: Pipeline
    rows: Sequence[Planned]
    memory_bytes: int
    built: bool
    text: str = ""

    @property
    def chosen(self) -> Planned | None:
        """Of the trainings that fit and wait least, within `TIE`, the one that prepares least, and of these the one with least memory.

        One without whole mini-batches is chosen only if no other fits.
        """
        fit = [row for row in self.rows if row.fits and row.forecast is not None]
        compared = [row for row in fit if row.exact] or fit
        least = min((row.total_seconds for row in compared), default=0.0)
        ties = [row for row in compared if row.total_seconds <= (1 + TIE) * least]
        return min(ties, key=lambda row: (row.own_preparing, row.memory_bytes), default=None)

    def paid_back(self, row: Planned) -> float | None:
        """Returns the number of epochs, of all seeds, after which a training's preparation is paid back against the best one without it.

        Returns:
            The number; 0 if nothing is to be prepared, None if it is never paid back, or if nothing is there to compare.
        """
        if not row.own_preparing:
            return 0.0
        others = [each for each in self.rows if not each.own_preparing and each.fits and each.exact and each is not row]
        best = min((each.epoch_seconds for each in others), default=float("inf"))
        spared = best - row.epoch_seconds
        return row.own_preparing / spared if 0 < spared < float("inf") else None


def _is_common(name: str) -> bool:
    return name.partition(",")[0].partition("_")[0] in ("graph", "features")
