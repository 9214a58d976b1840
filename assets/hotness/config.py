"""The `[hotness]` table, the configuration that the stage hashes, and the memory that counting takes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import NODES_AT_ONCE, SUMS_AT_ONCE
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import id_dtype

Policy = Literal["bayes", "presample", "degree", "pagerank", "random", "optimal"]
COUNTING: tuple[Policy, ...] = ("bayes", "presample")
"""Policies that count epochs of their own."""
SUM_BYTES, RANGE_BYTES = 16, 100
"""Bytes per node of a range of sums, and of a range whose temporary arrays exist at one time (kernels/ranges.py)."""
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


def needed_bytes(
    config: HotnessConfig, num_nodes: int, threads: int, *, sums_at_once: int = SUMS_AT_ONCE, passes: bool = False
) -> tuple[int, int]:
    """Returns (peak memory beside mapped files, bytes in the store) of building this ranking, by the formulas above.

    The maps and batches of samplers are left out where the graph has so many nodes that a map is sized by the batch, or if batches are
    drawn by `passes`.
    """
    table, id_bytes = config.hotness, id_dtype(num_nodes).itemsize
    layers = len(config.sampling.fanouts) if config.sampling else 0
    stored = id_bytes
    if table.presamples:
        stored += 4 + 4 * layers * (table.layers != "none") + 8 * layers * (table.layers == "inputs")
    stored += 8 * (table.policy in ("bayes", "degree", "pagerank"))
    ranges = SUM_BYTES * min(num_nodes, sums_at_once) + RANGE_BYTES * min(num_nodes, NODES_AT_ONCE)
    # The maps of samplers are gone before nodes are ranked.
    maps = 8 * threads * num_nodes * (table.presamples and not passes and num_nodes <= Sampler.MOST_DIRECT_NODES)
    return counted_node_bytes(config) * num_nodes + max(maps, ranges), stored * num_nodes


def counted_node_bytes(config: HotnessConfig) -> int:
    """Returns the bytes of memory per node of the graph, beside the maps of samplers."""
    table, layers = config.hotness, len(config.sampling.fanouts) if config.sampling else 0
    if not table.presamples:
        return 1  # the test that the order is a permutation
    counts = 4 + 4 * layers * (table.counted_layers != "none") + 8 * layers * (table.layers == "inputs")
    compared = 8 * (max(table.rounds, table.evaluate_epochs) > 1)  # visits of the epoch before, and of all before it
    return counts + 4 * (table.evaluate_epochs > 0) + compared + 1
