"""The table `[train.fullgraph]`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import KeyProblem, gbps_of, speed_problem, within
from graphmill.trainers.recipe.settings import Settings


@dataclass(frozen=True, kw_only=True)
class FullGraphSettings(Settings):
    """How a full-graph training moves rows."""

    # Transfers of neighbour rows: vanilla = every chunk loads all its neighbours; p2p = each row of a step is loaded once and fetched from
    # the device that has it; p2p+reuse = a row that two steps in a row need is loaded once. device = the graph is not cut, everything is on
    # the device.
    mode: Literal["vanilla", "p2p", "p2p+reuse", "device"] = "p2p+reuse"
    # Processes that graphmill train starts, here or on a cluster; a divisor of [partitions] parts. Each has the rows between layers of its
    # own parts. --ranks and torchrun override it. The bits do not depend on it.
    ranks: int = field(default=1, metadata=within(1, 4096, hashed=False))
    # Seconds that a rank waits for the others before the run ends.
    timeout: float = field(default=45.0, metadata=within(1, 3600, hashed=False))
    # Devices that share the parts, a divisor of [partitions] parts and a multiple of the ranks; 0 = one for each part, and of GPUs one for
    # each rank. A process drives several GPUs by a thread and a copy of the model for each. The sums do not depend on it.
    devices: int = field(default=0, metadata=within(0, hashed=False))
    # Aggregates are kept on the host between the two passes of a layer, if the layer allows it, instead of computed again.
    hybrid: bool = field(default=True, metadata={"hashed": False})
    # The first layer's aggregates of the features are computed once and kept, N rows of F columns, if no parameter and no dropout comes
    # before them; else every pass computes them.
    keep_first: bool = field(default=True, metadata={"hashed": False})
    # Inputs of a step are loaded while the step before it is computed, and its results leave while the next one is, if a device has a link
    # to the host. It takes memory for two steps' rows.
    overlap: bool = field(default=True, metadata={"hashed": False})
    # Speed at which each device, and each rank, receives rows of the others, "12 GB/s" or "25 Gbit/s", modelled by waiting, for the CPU
    # alone; None = the machine's own speed.
    peer_link: str | None = field(default=None, metadata={"hashed": False})

    @property
    def peer_gbps(self) -> float | None:
        """The speed of `peer_link` in GB/s."""
        return gbps_of(self.peer_link)

    @property
    def unread(self) -> tuple[str, ...]:
        """Tables and stages that are not read with these keys: an uncut graph has neither parts nor chunks, and all rows on the device."""
        return ("partitions", "chunks", "budgets") if self.mode == "device" else ()

    def problems(self) -> Iterator[KeyProblem]:
        """Yields speeds without a unit, and keys that have no effect where the graph is not cut."""
        yield from super().problems()
        yield from speed_problem("peer_link", self.peer_link)
        for name in ("timeout", "devices", "hybrid", "overlap", "peer_link") if self.mode == "device" else ():
            if getattr(self, name) != self.__dataclass_fields__[name].default:
                text = f'{name} is for a graph that is cut, and mode = "device" does not cut it: remove the key'
                yield KeyProblem(f"{name} mode", text)


SETTINGS = FullGraphSettings
