"""Seconds of an exchange over links: all transfers at once, or in rounds (FreshGNN, section 6).

At once, transfers share links fairly (max-min): the rates of all grow together until a link is full, then those of the rest. With that
alone, rounds gain nothing: one shot keeps the narrowest link full, too, and rounds leave links idle. What they save is congestion: with k
transfers on it, a link carries only `share(k)` of its speed (`Interconnect.efficiency`).

A modelled network (`LinkModel`) delays exchanges to these seconds, on a machine whose loopback is faster than any network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphmill.kernels.types import Array
from graphmill.trainers.ranks.links import Interconnect, Pair
from graphmill.trainers.ranks.rounds import Rounds

DONE = 1e-9
"""Share of its bytes below which a transfer is over: it covers rounding."""
GAIN = 1.01
"""Factor by which rounds must be faster before they are taken."""


def fair_rates(links: Interconnect, transfers: Mapping[Pair, float]) -> dict[Pair, float]:
    """Returns the GB/s of each of the transfers that run at the same time, none of which has 0 bytes."""
    users: dict[int, set[Pair]] = {}
    for pair in transfers:
        for link in links.routes[pair]:
            users.setdefault(link, set()).add(pair)
    left = {link: links.gbps[link] * links.share(len(pairs)) for link, pairs in users.items()}
    rates: dict[Pair, float] = {}
    while users:
        link = min(users, key=lambda each: (left[each] / len(users[each]), each))
        rate = max(0.0, left[link]) / len(users[link])
        for pair in sorted(users[link]):
            rates[pair] = rate
            for other in links.routes[pair]:
                left[other] -= rate
                users[other].discard(pair)
                if not users[other]:
                    del users[other]
    return rates


def ends_at_once(links: Interconnect, sizes: Mapping[Pair, int]) -> dict[Pair, float]:
    """Returns the seconds until each transfer has ended, if all begin at the same time.

    Args:
        sizes: bytes of each transfer; those of 0 bytes take no time.
    """
    ends = dict.fromkeys(sizes, 0.0)
    left = {pair: float(size) for pair, size in sizes.items() if size}
    now = 0.0
    while left:
        rates = fair_rates(links, left)
        step = min(size / rates[pair] for pair, size in left.items())
        now += step
        left = {pair: size - step * rates[pair] for pair, size in left.items()}
        for pair in [each for each, size in left.items() if size <= DONE * sizes[each]]:
            ends[pair] = now * 1e-9
            del left[pair]
    return ends


def seconds_of_round(links: Interconnect, transfers: Mapping[Pair, int]) -> float:
    """Returns the seconds of the longest of some transfers that share no link, with the bytes of each."""
    return max((size / links.alone_gbps(pair) * 1e-9 for pair, size in transfers.items()), default=0.0)


def seconds_in_rounds(links: Interconnect, rounds: Rounds, sizes: Mapping[Pair, int]) -> list[float]:
    """Returns the seconds of each round; a round begins when the one before has ended."""
    return [seconds_of_round(links, {pair: sizes.get(pair, 0) for pair in each}) for each in rounds.rounds]


def faster_in_rounds(links: Interconnect, rounds: Rounds) -> bool:
    """Tells whether transfers of equal size take less time in rounds than at once."""
    sizes = dict.fromkeys(links.routes, 1 << 20)
    if not sizes:
        return False
    return max(ends_at_once(links, sizes).values()) > GAIN * sum(seconds_in_rounds(links, rounds, sizes))


@dataclass(frozen=True, kw_only=True)
class LinkModel:
    """The time of a collective call between ranks on a modelled network, for a machine whose loopback is faster than any network.

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
