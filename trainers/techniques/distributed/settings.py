"""The table `[train.distributed]`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import KeyProblem, gbps_of, speed_problem, within
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.links import parse_links
from graphmill.trainers.recipe.settings import Settings

FOUND = ("measured", "nvml")
"""Values of `links` that name no link: it is found when the ranks have met."""
WINDOW_BYTES = 32 << 20
"""Bytes of own rows that a rank reads before they are gathered."""
HEAD_BYTES = 8
"""Bytes of the number at the head of the rows that a rank sends."""


@dataclass(frozen=True, kw_only=True)
class DistributedSettings(Settings):
    """How ranks share a training; the parts are those of [partitions]."""

    # Processes that graphmill train starts, here or on a cluster; a divisor of [partitions] parts. --ranks and torchrun override it.
    ranks: int = field(default=1, metadata=within(1, 4096, hashed=False))
    # Sum of the gradients: ordered = those of all batches of a step are gathered and added in batch order: the same bits on any number of
    # ranks. all-reduce = each rank adds its own and the library adds the sums: less traffic for large models, other bits on other numbers
    # of ranks.
    gradients: Literal["ordered", "all-reduce"] = "ordered"
    # Part of the graph on every rank. hybrid = the whole topology. unfused = the same, with the two-step sampler. vanilla = the in-edges of
    # its own nodes alone, so that every layer below the first is sampled by the other ranks. The batches are the same to the byte.
    scheme: Literal["hybrid", "unfused", "vanilla"] = field(default="hybrid", metadata={"hashed": False})
    # Origin of the rows of a training batch: exchange = the shards, of which other ranks send theirs; packed = packed chunks of the rank's
    # stored batches, with rows of all parts, so that an epoch exchanges gradients alone.
    rows: Literal["exchange", "packed"] = field(default="exchange", metadata={"hashed": False})
    # Order of the transfers of an exchange: all_to_all = all at once. rounds = in rounds in which no link carries two transfers in one
    # direction, as few as possible. auto = rounds if `links` says that they are faster. peer = the hottest rows lie on the devices of the
    # machine, within [memory] device, which read them from each other in place; the others go as by auto. The delivered bytes are the same.
    exchange: Literal["auto", "all_to_all", "rounds", "peer"] = field(default="auto", metadata={"hashed": False})
    # Share of a device's rows that every device has, with exchange = "peer"; the others lie on the device of their part alone. Without it
    # every device has the hottest rows.
    replicated: float = field(default=0.5, metadata=within(0, 1, hashed=False))
    # Links between the ranks: groups at a switch and speeds, "0 1 | 2 3 @ 32GB/s | 16GB/s" (trainers/ranks/links.py); measured = by timing
    # transfers between the ranks, once per home; nvml = as nvidia-smi shows the GPUs of this machine. "" = unknown.
    links: str = field(default="", metadata={"hashed": False})
    # Exchanges take as long as they would over these links, modelled by waiting.
    model_links: bool = field(default=False, metadata={"hashed": False})
    # Seconds that a rank waits for the others before the run ends.
    timeout: float = field(default=45.0, metadata=within(1, 3600, hashed=False))
    # Network between ranks, modelled by waiting: microseconds per exchange, and the speed at which a rank sends or receives, "3 GB/s" or
    # "25 Gbit/s"; None = the real speed.
    latency_us: float = field(default=0.0, metadata=within(0, 1e9, hashed=False))
    rank_link: str | None = field(default=None, metadata={"hashed": False})

    @property
    def rank_gbps(self) -> float | None:
        """The speed of `rank_link` in GB/s."""
        return gbps_of(self.rank_link)

    @property
    def linked_devices(self) -> int:
        """The number of devices between which `links` names links; as many as ranks if it names none."""
        return parse_links(self.links).num_devices if self.links and self.links not in FOUND else self.ranks

    def problems(self) -> Iterator[KeyProblem]:
        """Yields links and speeds that are not written as such, and keys that need or contradict them."""
        yield from super().problems()
        yield from speed_problem("rank_link", self.rank_link)
        if self.links and self.links not in FOUND:
            try:
                parse_links(self.links)
            except InputError as error:
                yield KeyProblem("links", f"{error.problem}: {error.remedy}")
        for name, value in (("exchange", "rounds"), ("model_links", True)):
            if getattr(self, name) == value and not self.links:
                text = f'{name} needs the links between the ranks: set links to groups and speeds, or to "measured"'
                yield KeyProblem(f"{name} links", text)
        if self.links and self.exchange == "all_to_all" and not self.model_links:
            text = 'links has no effect with exchange = "all_to_all": remove it, or set model_links'
            yield KeyProblem("links exchange", text)
        if self.model_links and self.rank_link:
            yield KeyProblem("model_links rank_link", "model_links has the speeds of links: remove rank_link")


SETTINGS = DistributedSettings
