"""Fan-outs that change over epochs (FastSample, section 5, names it as future work: an adaptive fan-out schedule).

Small fan-outs make early epochs cheap, and large ones late epochs exact. A batch's key names its epoch, so its fan-outs are a function of
the key, and a batch can be drawn anywhere at any time, as with constant ones. Memory: that of one sampler; a sampler of other fan-outs
takes the place of the one before.
"""

from collections.abc import Callable
from typing import Any

from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import BatchKey, Block


class ScheduledSampler:
    """Samples each epoch, from 0, by a sampler that `make` makes of its own fan-outs, which are listed from the seeds outwards."""

    def __init__(self, fanouts_at: Callable[[int], tuple[Any, ...]], make: Callable[[tuple[Any, ...]], AnySampler]):
        self.fanouts_at, self.make = fanouts_at, make
        self._fanouts: tuple[Any, ...] = ()
        self._sampler: AnySampler | None = None

    def sample(
        self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden", **more: Any
    ) -> tuple[Block, ...]:
        """Samples the blocks under the seeds by the fan-outs of the batch's epoch."""
        fanouts = self.fanouts_at(batch.epoch)
        if self._sampler is None or fanouts != self._fanouts:
            self._sampler = None  # its memory goes before the next one's comes
            self._sampler, self._fanouts = self.make(fanouts), fanouts
        return self._sampler.sample(batch, seeds, transpose=transpose, **more)
