"""How mini-batches are sampled: the `[sampling]` table of a pipeline file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assets.storage.user_code import is_reference, load_reference
from kernels.errors import InputError
from kernels.sampling.own_sampling import AnySampler, OwnSampler
from kernels.sampling.sample import Sampler
from kernels.types import Topology


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """The `[sampling]` table; all of it is hashed.

    Raises:
        InputError: names every value outside its range.
    """

    # How a node's neighbours are drawn; uniform = without replacement, each set of k equally likely; or "module:function" of one's own.
    method: Literal["uniform"] | str = "uniform"
    # Neighbours a node draws, from the seeds outwards, one number per layer; -1 = all of them.
    fanouts: tuple[int, ...]
    # Seeds in a mini-batch at most; n seeds are cut into ceil(n / batch_size) nearly equal batches.
    batch_size: int = 1024
    # K: training epoch e uses the samples of sampling epoch e mod K; 0 = every epoch draws its own.
    reuse: int = 0

    def __post_init__(self) -> None:
        """Checks the ranges."""
        problems = []
        if self.method != "uniform" and not is_reference(self.method):
            problems.append(f"method = {self.method!r} is neither uniform nor module:function")
        if not self.fanouts or any(fanout == 0 or fanout < -1 for fanout in self.fanouts):
            problems.append(
                f"fanouts = {list(self.fanouts)} is not a list of positive numbers, or -1 for all neighbours"
            )
        if self.batch_size < 1:
            problems.append(f"batch_size = {self.batch_size} is less than 1")
        if self.reuse < 0:
            problems.append(f"reuse = {self.reuse} is negative")
        if problems:
            raise InputError("; ".join(problems), "for example: fanouts = [10, 5], batch_size = 1024, reuse = 0")


def open_sampler(
    topology: Topology, method: str, fanouts: tuple[int, ...], *, seed: int, threads: int = 1
) -> AnySampler:
    """Returns the sampler of a `[sampling]` table: the fused kernel, or one around the user's own function.

    Raises:
        InputError: there is no such function, or the topology or fanouts are not sound.
    """
    if is_reference(method):
        return OwnSampler(topology, fanouts, load_reference(method), seed=seed, name=method)
    return Sampler(topology, fanouts, seed=seed, threads=threads)
