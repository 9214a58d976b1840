"""The `[sampling]` table of a pipeline file: how mini-batches are sampled."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from assets.storage.user_code import is_reference
from kernels.errors import InputError
from kernels.sampling.alias import EmptyRows
from kernels.sampling.walk import MOST_VISITS, walk_problems

METHODS = ("uniform", "weighted", "random_walk")
DEGREES = ("in_degree", "out_degree")
"""Columns that every graph has."""

MORE_PATHS = 10
"""Factor on the number of paths in exact evaluation of walks."""

OF_NODES = re.compile(r"node:([A-Za-z0-9_-]+)")
LATER: dict[str, Any] = {"hashed": "unless default"}


def fanout_problems(fanouts: tuple[int, ...]) -> list[str]:
    """Returns the problems of a list of fan-outs."""
    if fanouts and all(fanout > 0 or fanout == -1 for fanout in fanouts):
        return []
    return [f"fanouts = {list(fanouts)} is not a list of positive numbers, or -1 for all neighbours"]


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """How a node's neighbours are drawn; all of it is hashed.

    Raises:
        InputError: a value is outside its range; the error names all of them.
    """

    # how a node's neighbours are drawn: uniform = each set of k equally likely; weighted = in proportion to `weights`; random_walk = the
    # nodes that short walks visit most; or your own "module:function"
    method: Literal["uniform", "weighted", "random_walk"] | str = "uniform"
    # number of neighbours that a node draws, one per layer, from the seeds outwards; -1 = all of them
    fanouts: tuple[int, ...]
    # with replacement: a node with neighbours draws exactly its fan-out, repeats included (uniform and weighted)
    replace: bool = field(default=False, metadata=LATER)
    # weighted: "edge" = the graph's edge weights; "node:COLUMN" = the weight of the edge's source, COLUMN being in_degree, out_degree, the
    # name of a feature table of one column ([features.COLUMN]), or the number of a column of the main feature table
    weights: str = field(default="edge", metadata=LATER)
    # weighted: result for a node whose neighbours all have the weight 0: error, uniform (as if all were equal), none (no neighbours)
    empty_rows: EmptyRows = field(default="error", metadata=LATER)
    # random_walk: number of paths that start at a node
    paths: int = field(default=4, metadata=LATER)
    # random_walk: number of steps per path
    length: int = field(default=3, metadata=LATER)
    # random_walk: probability that a path returns to its start before a step, above 0 and up to 1
    restart: float = field(default=0.5, metadata=LATER)

    def __post_init__(self) -> None:
        """Checks the ranges."""
        problems = self.problems()
        if problems:
            raise InputError("; ".join(problems), "for example: fanouts = [10, 5], batch_size = 1024, reuse = 0")

    def problems(self) -> list[str]:
        """Returns the problems: values outside their range, and keys that do not go with the method."""
        found = []
        if self.method not in METHODS and not is_reference(self.method):
            found.append(f"method = {self.method!r} is neither {', '.join(METHODS)} nor module:function")
        found += fanout_problems(self.fanouts)
        if self.weights != "edge" and not OF_NODES.fullmatch(self.weights):
            found.append(f'weights = {self.weights!r} is neither "edge" nor "node:COLUMN"')
        return [*found, *self._walk_problems(), *self._unused()]

    def _walk_problems(self) -> list[str]:
        """Returns the problems of the walks, including those of an exact evaluation."""
        found, most = walk_problems(self.paths, self.length, self.restart), MOST_VISITS // MORE_PATHS
        if not found and self.paths * self.length > most:
            found.append(
                f"paths * length = {self.paths * self.length} visits are more than {most:,}: an exact evaluation takes "
                f"{MORE_PATHS} times as many, and at most {MOST_VISITS:,}"
            )
        return found

    def _unused(self) -> list[str]:
        """Returns keys that have no meaning for the method."""
        of = {
            "replace": ("uniform", "weighted"),
            **dict.fromkeys(("weights", "empty_rows"), ("weighted",)),
            **dict.fromkeys(("paths", "length", "restart"), ("random_walk",)),
        }
        defaults = {name: self.__dataclass_fields__[name].default for name in of}
        return [
            f"{name} = {getattr(self, name)!r} is for method = {' or '.join(map(repr, methods))}, not for {self.method!r}"
            for name, methods in of.items()
            if getattr(self, name) != defaults[name] and self.method not in methods
        ]

    @property
    def column(self) -> str:
        """Name of the column with the weights of nodes, "" for weights of edges."""
        match = OF_NODES.fullmatch(self.weights)
        return match[1] if match else ""

    @property
    def feature_table(self) -> str | None:
        """Name of the feature table with the weights, "" for the main one; None if no feature table has them."""
        if self.method != "weighted" or self.column in ("", *DEGREES):
            return None
        return "" if self.column.isdigit() else self.column

    @property
    def inputs(self) -> tuple[str, ...]:
        """Stages besides the graph whose artifacts decide the drawn neighbours."""
        return ("sampling_tables",) if self.method == "weighted" else ()


@dataclass(frozen=True, kw_only=True)
class FanoutStep:
    """Fan-outs from an epoch on."""

    # first training epoch with these fan-outs, counted from 1
    epoch: int
    # number of neighbours that a node draws, as in `fanouts`
    fanouts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Neighbours):
    """The `[sampling]` table; all of it is hashed.

    Raises:
        InputError: a value is outside its range; the error names all of them.
    """

    # largest number of seeds per mini-batch; n seeds are cut into ceil(n / batch_size) nearly equal batches
    batch_size: int = 1024
    # K: training epoch e uses the samples of sampling epoch e mod K; 0 = every epoch draws its own
    reuse: int = 0
    # other fan-outs from some epochs on, for trainers that sample while they train: a list of { epoch = E, fanouts = [...] }
    schedule: tuple[FanoutStep, ...] = field(default=(), metadata={"hashed": "unless default"})

    def problems(self) -> list[str]:
        """Returns every value outside its range."""
        found = super().problems()
        found += [problem for step in self.schedule for problem in fanout_problems(step.fanouts)]
        found += self._schedule_problems()
        if self.batch_size < 1:
            found.append(f"batch_size = {self.batch_size} is less than 1")
        if self.reuse < 0:
            found.append(f"reuse = {self.reuse} is negative")
        return found

    def _schedule_problems(self) -> list[str]:
        """Returns the problems of the schedule."""
        found, epochs = [], [1, *(step.epoch for step in self.schedule)]
        if any(later <= earlier for earlier, later in pairwise(epochs)):
            found.append(f"schedule has the epochs {epochs[1:]}, which do not ascend from 2")
        if any(len(step.fanouts) != len(self.fanouts) for step in self.schedule):
            found.append(f"schedule has fanouts of other lengths than fanouts = {list(self.fanouts)}")
        if self.schedule and self.reuse:
            found.append(
                f"schedule changes fan-outs, but reuse = {self.reuse} takes the samples of earlier epochs again"
            )
        return found

    def cpu_alone(self) -> str:
        """Returns the reason why a device with memory of its own cannot draw these batches, "" if it can."""
        if self.schedule:
            return "fan-outs follow a schedule"
        return "" if self.method in METHODS else f"method = {self.method!r} runs on the CPU"

    @property
    def largest_fanouts(self) -> tuple[int, ...]:
        """The largest fan-outs of the schedule, layer by layer."""
        lists = [self.fanouts, *(step.fanouts for step in self.schedule)]
        return tuple(-1 if -1 in layer else max(layer) for layer in zip(*lists, strict=True))

    def fanouts_at(self, epoch: int) -> tuple[int, ...]:
        """Returns the fan-outs of a training epoch, counted from 0."""
        begun = [step.fanouts for step in self.schedule if step.epoch <= epoch + 1]
        return begun[-1] if begun else self.fanouts
