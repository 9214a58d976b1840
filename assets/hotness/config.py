"""The `[hotness]` table, and the configuration that the stage hashes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.errors import InputError

Policy = Literal["bayes", "presample", "degree", "pagerank", "random", "optimal"]
COUNTING: tuple[Policy, ...] = ("bayes", "presample")
"""Policies that count epochs of their own."""
MOST_EPOCHS = 10_000
"""Most epochs that may be counted; further counts stop changing the ranking long before."""


@dataclass(frozen=True, kw_only=True)
class HotnessTable(Checked):
    """The `[hotness]` table; all of it is hashed."""

    # score that nodes are ranked by, see assets/hotness/__init__.py: "bayes" counts trial batches (never trained on) and corrects the
    # counts with a model of the sampler
    policy: Policy = "bayes"
    # K, the number of epochs that presampling counts
    rounds: int = field(default=1, metadata=within(1, MOST_EPOCHS))
    # "visits" also counts, per layer, how often a node is a destination; "inputs" adds the distinct inputs under it
    layers: Literal["none", "visits", "inputs"] = "none"
    # number of training epochs that the hit ratio of all policies is measured on; 0 = none
    evaluate_epochs: int = field(default=0, metadata=within(0, MOST_EPOCHS))

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a ranking by epochs that are not evaluated."""
        if self.policy == "optimal" and self.evaluate_epochs < 1:
            text = f'policy = "optimal" ranks by the evaluated epochs, but evaluate_epochs = {self.evaluate_epochs}'
            yield KeyProblem("policy evaluate_epochs", text)

    @property
    def counted_layers(self) -> Literal["none", "visits", "inputs"]:
        """The counts of layers that presampling makes: those that are stored, or that the blend of `bayes` needs."""
        needed = self.policy == "bayes" or self.evaluate_epochs > 0
        return "visits" if needed and self.layers == "none" else self.layers

    @property
    def presamples(self) -> bool:
        """Whether rounds are counted: for the ranking, for layers, or for a comparison."""
        return self.policy in COUNTING or self.layers != "none" or self.evaluate_epochs > 0


@dataclass(frozen=True, kw_only=True)
class HotnessConfig:
    """The stage's hashed configuration; `hotness_config` makes it."""

    # the `[hotness]` table
    hotness: HotnessTable
    # the `[sampling]` table; None if nothing is sampled
    sampling: SamplingConfig | None
    # seed of the pipeline, which names every random decision
    seed: int


def hotness_config(table: HotnessTable, sampling: SamplingConfig | None, seed: int) -> HotnessConfig:
    """Returns the stage's configuration without the values that do not matter, so that editing these rebuilds nothing.

    Raises:
        InputError: the policy samples, and `[sampling]` is missing.
    """
    if not table.presamples:
        return HotnessConfig(
            hotness=replace(table, rounds=1), sampling=None, seed=seed if table.policy == "random" else 0
        )
    if sampling is None:
        problem = f'policy = "{table.policy}" samples batches'
        raise InputError(problem, "add a table [sampling] with fanouts and batch_size")
    # The reuse of epochs does not change the nodes that an epoch asks for.
    return HotnessConfig(
        hotness=table, sampling=replace(sampling, reuse=0, sampling_seed=None), seed=sampling.seed_of(seed)
    )
