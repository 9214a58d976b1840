"""The time of an exchange between ranks on a modelled network, for a machine whose loopback is faster than any network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphmill.kernels.types import Array
from graphmill.trainers.ranks.link_seconds import ends_at_once, seconds_of_round
from graphmill.trainers.ranks.links import Interconnect, Pair


@dataclass(frozen=True, kw_only=True)
class LinkModel:
    """The time of a collective call on a modelled network.

    Attributes:
        latency_seconds: alpha, seconds of each call.
        gbps: beta in GB/s (10^9 bytes per second) for the larger of sent and received bytes of a rank; None for no bound.
        links: links between the ranks, with their congestion; None if a rank's own bytes alone count.
    """

    latency_seconds: float = 0.0
    gbps: float | None = None
    links: Interconnect | None = None

    def seconds(self, num_bytes: int) -> float:
        """Returns the seconds of a call with `num_bytes` bytes."""
        return self.latency_seconds + (num_bytes / (self.gbps * 1e9) if self.gbps else 0.0)

    def seconds_at_once(self, rank: int, sizes: Array) -> float:
        """Returns the seconds until a rank has sent and received all, with i64[world, world] bytes from rank to rank."""
        assert self.links is not None
        ends = ends_at_once(self.links, {pair: int(sizes[pair]) for pair in self.links.routes})
        return self.latency_seconds + max(end for pair, end in ends.items() if rank in pair)

    def seconds_of_round(self, rank: int, transfers: Mapping[Pair, int]) -> float:
        """Returns the seconds of a round for a rank, with the bytes of its own transfers."""
        if self.links is not None:
            return self.latency_seconds + seconds_of_round(self.links, transfers)
        sent = sum(size for (source, _), size in transfers.items() if source == rank)
        return self.seconds(max(sent, sum(transfers.values()) - sent))
