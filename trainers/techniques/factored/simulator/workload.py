"""The workload of a simulated epoch: stage times, batches, updates, the bound of the queue."""

import random
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from graphmill.kernels.errors import InputError

STAGES = ("sample", "extract", "train", "standby_extract")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One epoch of factored training; raises InputError if a number is out of its range."""

    # Batches of the epoch.
    batches: int = 200
    # Seconds of one batch: sampled and marked (T_s), its rows extracted by a trainer, trained on.
    sample: float = 1.0
    extract: float = 0.0
    train: float = 1.0
    # Seconds in which a standby trainer, with its smaller cache, extracts a batch; None = as a trainer.
    standby: float | None = None
    # Batches per update; 0 = replicas never wait for one (FGNN's asynchronous updates).
    group: int = 0
    # Updates that the weights of a batch may lack.
    staleness: int = 0
    # Seconds of an update.
    update: float = 0.0
    # Batches that are in the queue or with a trainer, at most; 0 = no bound.
    queue: int = 0
    # Share of themselves by which times vary at most, evenly.
    jitter: float = 0.0
    # Seed of the jitter.
    seed: int = 0

    def __post_init__(self):
        """Checks ranges."""
        below = {"batches": 1} | dict.fromkeys(
            ("sample", "extract", "train", "group", "staleness", "update", "queue"), 0
        )
        wrong = [
            f"{name} = {getattr(self, name)} is below {least}"
            for name, least in below.items()
            if getattr(self, name) < least
        ]
        times = {name: getattr(self, name) for name in ("sample", "extract", "train", "standby", "update")}
        wrong += [f"{name} = {value} is no time" for name, value in times.items() if not isfinite(value or 0.0)]
        if not 0 <= self.jitter < 1:
            wrong.append(f"jitter = {self.jitter} is not in [0, 1)")
        if self.standby is not None and self.standby < 0:
            wrong.append(f"standby = {self.standby} is below 0")
        if wrong:
            raise InputError("; ".join(wrong), "give seconds, counts and a share in these ranges")

    @property
    def standby_extract(self) -> float:
        """Seconds in which a standby trainer extracts a batch."""
        return self.extract if self.standby is None else self.standby

    @property
    def trainer_seconds(self) -> float:
        """T_t: seconds from one batch of a busy trainer to its next; extracting and training overlap."""
        return max(self.extract, self.train)

    @property
    def standby_seconds(self) -> float:
        """T_t': seconds of one batch by a standby trainer, which extracts and trains in turn."""
        return self.standby_extract + self.train

    def seconds(self, stage: str, position: int) -> float:
        """Returns the seconds of a stage of a batch, which do not depend on the role or the time."""
        return self._drawn[stage][position]

    @cached_property
    def _drawn(self) -> dict[str, list[float]]:
        draw = random.Random(self.seed)
        return {
            stage: [
                getattr(self, stage) * (1 + self.jitter * (2 * draw.random() - 1) if self.jitter else 1.0)
                for _ in range(self.batches)
            ]
            for stage in STAGES
        }
