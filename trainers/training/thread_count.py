"""What decides the last bits of a training and is left to the machine: its number of threads (`threads = "auto"`), its library of products.

The ranks on one machine share its cores, and so do trainers that compute at the same time in one process. All ranks take the number of the
rank with the smallest share: a training has one number, which its run record and its checkpoints name. At equal numbers and kinds of
processor the bits are equal.

A training that goes on from a checkpoint keeps the checkpoint's number, so that it ends with the bits of an uninterrupted one. Only if a
process may use fewer cores than that, the training takes the number of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphmill.assets.storage.system.machine import here_and_now, usable_cores
from graphmill.trainers.models.products import Library, own_library
from graphmill.trainers.ranks.group import Ranks
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig


@dataclass(frozen=True, kw_only=True)
class ThreadCount:
    """The number of threads of a training, and those `before`, oldest first, of the checkpoint that it goes on from."""

    number: int
    before: tuple[int, ...] = ()

    @property
    def all(self) -> list[int]:
        """The numbers that the training has had, oldest first, each once in a row."""
        return [*self.before, *(() if self.before[-1:] == (self.number,) else (self.number,))]

    @property
    def warning(self) -> str:
        """The sentence about a number that is not the checkpoint's; "" if it is."""
        if self.before[-1:] in ((), (self.number,)):
            return ""
        were = f"{self.before[-1]} thread{'s' if self.before[-1] > 1 else ''}"
        return (
            f"goes on with {self.number} of {were}, since there are fewer cores than before: "
            "the last bits may differ from those of an uninterrupted training"
        )

    def resolve(self, semantic: ModelConfig) -> ModelConfig:
        """Returns a recipe with this number in place of "auto". Its version is another one: only the training itself takes it."""
        return replace(semantic, train=replace(semantic.train, threads=self.number))


def decide_threads(train: TrainConfig, ranks: Ranks, before: Sequence[int]) -> ThreadCount:
    """Returns the number of threads of a training, the same for all its ranks, by those of a checkpoint at the first one; collective."""
    if not isinstance(train.threads, str):
        return ThreadCount(number=train.threads)
    # Ranks that may run on the same cores share them; ranks that are pinned to different ones do not.
    place = [here_and_now(), sorted(os.sched_getaffinity(0))]
    members = ranks.main.gather_values({"place": place, "cores": usable_cores(), "before": list(before)})
    before = members[0]["before"]
    if before and before[-1] <= min(member["cores"] for member in members):
        return ThreadCount(number=before[-1], before=tuple(before))
    number = min(_share(member, members, train) for member in members)
    return ThreadCount(number=max(1, number), before=tuple(before))


def decide_library(ranks: Ranks, checkpoint: Mapping[str, Any]) -> Library:
    """Returns the library of a training; all its ranks call it, and get the same.

    Bits of the two differ. A training that goes on takes that of its checkpoint, which is BLAS where the checkpoint does not say it.

    Args:
        checkpoint: header of the checkpoint from which the training goes on, at the first rank; empty without one.
    """
    before = checkpoint.get("products", "blas") if checkpoint else None
    members = ranks.main.gather_values({"own": own_library(), "before": before})
    every = all(member["own"] == "onednn" for member in members)
    return members[0]["before"] or ("onednn" if every else "blas")


def _share(member: dict[str, Any], members: Sequence[dict[str, Any]], train: TrainConfig) -> int:
    """Returns the number of cores for each trainer of a rank."""
    cores = member["cores"] // sum(other["place"] == member["place"] for other in members)
    # A device with memory of its own computes for the one trainer that drives it.
    return cores // (train.own_settings.trainers_of(cores) if train.device == "cpu" else 1)
