"""The table `[train.fresh]`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from graphmill.assets.building.keys import KeyProblem, size_problem, within
from graphmill.trainers.recipe.settings import Settings

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig

SHARE_OF_EPOCH = re.compile(r"epoch\s*/\s*([1-9]\d{0,17})", re.ASCII)
MOST_STALE = 200
"""Largest `t_stale` of a share of an epoch: the paper's value for its largest graphs (section 7.1)."""
WINDOW_BYTES, LEAST_WINDOW_BYTES, WINDOWS = 16 << 20, 1 << 20, 8
"""Most and least bytes of windows of rows on their way to the arena's batch, and windows of a batch between these; the ledger counts
requests, so no setting of a run changes them."""
WINDOW_ROWS = 64
"""A window is a multiple of these rows, so that it begins as aligned as the batch's rows do."""
MOST_STEPS = 10**18
"""Largest number of steps: ages are counted in 64 bits."""
Policy = Literal["accuracy", "accuracy+features", "performance+features"]


@dataclass(frozen=True, kw_only=True)
class FreshSettings(Settings):
    """How embeddings of earlier steps take the place of computed ones."""

    # Share of each layer's nodes, those of the smallest gradients, whose embeddings count as stable; 0 caches none.
    p_grad: float = field(default=0.9, metadata=within(0, 1))
    # Age in optimiser steps from which on an embedding is not used: a number; "epoch/K" = a K-th of an epoch, at most 200; "forever" = no
    # bound.
    t_stale: int | str = "epoch/6"
    # Optimiser steps at the beginning in which every embedding is computed: a number, or "epoch/K".
    stabilise: int | str = 0
    # Content of the arena: accuracy = stable embeddings; accuracy+features = these, and beside them the hottest feature rows;
    # performance+features = both, ranked together by the rows that each byte saves.
    policy: Policy = "performance+features"
    # Bytes of the arena, or a share of the bytes of all features. They decide which embeddings are reused, so "auto" is not allowed.
    arena: str = "10%"
    # Batches by which lookups run ahead of the step: 0 = each batch is decided behind the update before its step (the paper's order); 1 =
    # one update earlier, so that its rows are loaded while the batch before is trained on.
    lookahead: int = field(default=0, metadata=within(0, 1))
    # Source of feature rows: table = the feature table or a cache in front of it; packed = packed chunks, of stored samples.
    rows: Literal["table", "packed"] = field(default="table", metadata={"hashed": False})
    # Cached embeddings that are compared with authentic ones at the end of every epoch; 0 compares none.
    probe: int = field(default=0, metadata=within(0, hashed="unless default"))

    remedy = 'for example: p_grad = 0.9, t_stale = "epoch/6", arena = "10%"'

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of steps and of the arena's size."""
        yield from super().problems()
        for name, words in (("t_stale", ("forever",)), ("stabilise", ())):
            value = getattr(self, name)
            text = isinstance(value, str) and not (SHARE_OF_EPOCH.fullmatch(value) or value in words)
            if text or (not isinstance(value, str) and value < 0):
                more = ' or "forever"' if words else ""
                yield KeyProblem(name, f'{name} = {value!r} is not a number of steps, nor "epoch/K"{more}')
            elif not isinstance(value, str) and value > MOST_STEPS:
                yield KeyProblem(name, f"{name} = {value!r} is above {MOST_STEPS:,}")
        if self.lookahead and self.policy == "accuracy+features":
            why = "reads feature rows beside the update, which displaces them with policy = 'accuracy+features'"
            yield KeyProblem("lookahead", f"lookahead = {self.lookahead} {why}: take another policy")
        if self.arena == "auto":
            why = "would let the machine decide which embeddings are reused, and so the weights: give a size or a share"
            yield KeyProblem("arena", f"arena = 'auto' {why}")
        else:
            yield from size_problem("arena", self.arena, whole=1 << 40)

    @property
    def features(self) -> bool:
        """Whether the arena holds feature rows."""
        return self.policy.endswith("features")

    @property
    def ranked(self) -> bool:
        """Whether embeddings are ranked by their saving, together with the feature rows."""
        return self.policy.startswith("performance")

    def stale_steps(self, per_epoch: int) -> int | None:
        """Returns t_stale in optimiser steps, None for no bound."""
        if self.t_stale == "forever":
            return None
        share = isinstance(self.t_stale, str)
        return min(MOST_STALE, _steps(self.t_stale, per_epoch)) if share else _steps(self.t_stale, per_epoch)

    def first_step(self, per_epoch: int) -> int:
        """Returns the first optimiser step of the run whose embeddings may be kept."""
        return _steps(self.stabilise, per_epoch)


SETTINGS = FreshSettings


def window_bytes(batch_bytes: int, *, packed: bool, there: bool) -> int:
    """Returns the bytes of a window of a batch's rows, but for `WINDOW_ROWS`.

    Rows of a table are read in the order of the inputs, so small windows would read a page several times. Packed rows are read in the order
    of the file, a window while the one before it crosses to the device; a device waits for each, so there are few.

    Args:
        packed: whether they are packed rows; else those of a table.
        there: whether they go to a device with memory of its own.
    """
    if not packed:
        return WINDOW_BYTES
    most = WINDOW_BYTES // 2
    return most if there else min(most, max(LEAST_WINDOW_BYTES, batch_bytes // WINDOWS))


def kept_layers(train: TrainConfig) -> int:
    """Returns the number of layers whose rows are kept, from the first one on.

    Rows above the first layer have messages along edges of other nodes. If batches leave out the links that they predict, these may be
    links of a later batch.
    """
    return min(1, train.layers - 1) if train.predicts_links and train.exclude_targets else train.layers - 1


def _steps(value: int | str, per_epoch: int) -> int:
    if isinstance(value, int):
        return value
    match = SHARE_OF_EPOCH.fullmatch(value)
    assert match, f"{value!r} was checked"
    return per_epoch // int(match[1])
