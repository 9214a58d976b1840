"""Rounds of an exchange: every ordered pair of devices transfers once, and in a round no link carries two transfers (FreshGNN, section 6).

Transfers that share a link must be in different rounds, so rounds are the colours of a graph whose nodes are transfers. Transfers that all
share links with one another are in as many rounds as they are: the largest such set that is found is the bound. The rounds are fewest

    if they are as many as the bound       in trees of links they can be: the bound is then the largest number of transfers over one link
    if a search finds that one less fails  exact, for up to MOST_EXACT transfers and SEARCH_STEPS steps

Otherwise the bound stands beside them. Three methods are tried until one meets the bound: the transfers in the order of shifts from group
to group, which meets it if all groups are alike; the transfer with the fewest rounds left first (DSATUR); and a search by exchanges, some
of which are forbidden for a while (TABUCOL). All of them are deterministic.

The paper's rule pairs devices, which exchange both ways in a round: five rounds on its Figure 9c. One transfer per direction needs four.

Seconds of an exchange over links: all transfers at once, or in rounds (FreshGNN, section 6).

At once, transfers share links fairly (max-min): the rates of all grow together until a link is full, then those of the rest. With that
alone, rounds gain nothing: one shot keeps the narrowest link full, too, and rounds leave links idle. What they save is congestion: with k
transfers on it, a link carries only `share(k)` of its speed (`Interconnect.efficiency`).

A modelled network (`LinkModel`) delays exchanges to these seconds, on a machine whose loopback is faster than any network.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphmill.kernels.types import Array
from graphmill.trainers.ranks.links import Interconnect, Pair

MOST_EXACT = 56
"""Most transfers of an exact search: those of 8 devices."""
SEARCH_STEPS, TABU_STEPS = 20_000, 2_000


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The rounds of an exchange, each with its transfers, in order; no order needs fewer than `least` rounds."""

    rounds: tuple[tuple[Pair, ...], ...]
    least: int

    @property
    def fewest(self) -> bool:
        """Whether it is known that no order needs fewer rounds."""
        return len(self.rounds) == self.least

    @classmethod
    def of(cls, rounds: Sequence[Sequence[Sequence[int]]], least: int) -> Rounds:
        """Returns the rounds of JSON-ready lists."""
        return cls(rounds=tuple(tuple((one, other) for one, other in each) for each in rounds), least=least)


def make_rounds(links: Interconnect) -> Rounds:
    """Returns the fewest rounds that are found; the same for the same links on every machine."""
    pairs = sorted(links.routes)
    conflicts = conflict_sets(links, pairs)
    clique = _largest_clique(links, pairs, conflicts)
    bound = len(clique)
    best = min(
        (_first_fit(order, conflicts) for order in (_shift_order(links, pairs), [*range(len(pairs))])), key=_count
    )
    if _count(best) > bound:
        best = min(best, _dsatur(conflicts), key=_count)
    while _count(best) > bound and (better := _tabu(conflicts, best, _count(best) - 1)) is not None:
        best = better
    if _count(best) > bound and len(pairs) <= MOST_EXACT:
        best, bound = _exact(conflicts, clique, best)
    return Rounds(rounds=_ordered(pairs, best), least=bound)


def paired(links: Interconnect) -> Interconnect:
    """Returns the same links with both ways between two devices as one transfer, for rounds by the paper's rule."""
    routes = {
        (one, other): (*route, *(link for link in links.routes[other, one] if link not in route))
        for (one, other), route in links.routes.items()
        if one < other
    }
    return replace(links, routes=routes)


def conflict_sets(links: Interconnect, pairs: Sequence[Pair]) -> list[int]:
    """Returns for each transfer those that share a link with it, as bits by their places in `pairs`."""
    place = {pair: number for number, pair in enumerate(pairs)}
    found = [0] * len(pairs)
    for users in links.users():
        bits = sum(1 << place[pair] for pair in users)
        for pair in users:
            found[place[pair]] |= bits
    return [bits & ~(1 << number) for number, bits in enumerate(found)]


def _count(colours: Sequence[int]) -> int:
    return max(colours) + 1


def _ordered(pairs: Sequence[Pair], colours: Sequence[int]) -> tuple[tuple[Pair, ...], ...]:
    """Returns the transfers by round; rounds with many transfers are first."""
    found: list[list[Pair]] = [[] for _ in range(_count(colours))]
    for pair, colour in zip(pairs, colours, strict=True):
        found[colour].append(pair)
    return tuple(tuple(each) for each in sorted(found, key=lambda each: (-len(each), each)))


def _largest_clique(links: Interconnect, pairs: Sequence[Pair], conflicts: Sequence[int]) -> list[int]:
    """Returns transfers that all share links with one another: those of a link, and others that fit."""
    place, best = {pair: number for number, pair in enumerate(pairs)}, list[int]()
    for users in links.users():
        members = [place[pair] for pair in users]
        if not members:
            continue
        common = -1
        for member in members:
            common &= conflicts[member]
        while common:
            member = (common & -common).bit_length() - 1
            members.append(member)
            common &= conflicts[member]
        best = max(best, members, key=len)
    return best


def _shift_order(links: Interconnect, pairs: Sequence[Pair]) -> list[int]:
    """Returns the order by shifts: transfers between outer groups first, then by the distance of their groups, then by places within."""

    def key(pair: Pair) -> tuple[int, ...]:
        one, other = (links.places[device] for device in pair)
        level = next(depth for depth, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        size = 1 + max(place[level] for place in links.places if place[:level] == one[:level])
        return level, (other[level] - one[level]) % size, *one[level + 1 :], *other[level + 1 :], *one[: level + 1]

    return sorted(range(len(pairs)), key=lambda number: key(pairs[number]))


def _first_fit(order: Iterable[int], conflicts: Sequence[int]) -> list[int]:
    """Returns the round of each transfer, if each in the order takes the first one that fits."""
    colours, used = [0] * len(conflicts), list[int]()
    for number in order:
        colour = next((each for each, bits in enumerate(used) if not bits & conflicts[number]), len(used))
        used += [0] * (colour == len(used))
        used[colour] |= 1 << number
        colours[number] = colour
    return colours


def _dsatur(conflicts: Sequence[int]) -> list[int]:
    """Returns the round of each transfer, if the one with the most forbidden rounds is next and takes the first one that fits."""
    colours, forbidden = [-1] * len(conflicts), [0] * len(conflicts)
    for _ in conflicts:
        number = max(
            (each for each, colour in enumerate(colours) if colour < 0),
            key=lambda each: (forbidden[each].bit_count(), conflicts[each].bit_count(), -each),
        )
        colours[number] = (~forbidden[number] & (forbidden[number] + 1)).bit_length() - 1
        for each in _members(conflicts[number]):
            forbidden[each] |= 1 << colours[number]
    return colours


def _members(bits: int) -> Iterable[int]:
    while bits:
        yield (bits & -bits).bit_length() - 1
        bits &= bits - 1


def _tabu(conflicts: Sequence[int], colours: Sequence[int], count: int) -> list[int] | None:
    """Returns the round of each transfer in `count` rounds, from one more round that is dissolved; None if none is found."""
    found, draw = [each if each < count else number % count for number, each in enumerate(colours)], random.Random(0)
    neighbours = [list(_members(bits)) for bits in conflicts]
    near = [[0] * count for _ in found]  # how many transfers of each round share a link with each transfer
    for number, colour in enumerate(found):
        for each in neighbours[number]:
            near[each][colour] += 1
    until: dict[tuple[int, int], int] = {}
    for step in range(TABU_STEPS):
        wrong = [number for number, colour in enumerate(found) if near[number][colour]]
        if not wrong:
            return found
        moves = [
            (near[number][colour] - near[number][found[number]], draw.random(), number, colour)
            for number in wrong
            for colour in range(count)
            if colour != found[number] and (until.get((number, colour), -1) < step or not near[number][colour])
        ]
        if not moves:
            continue
        _, _, number, colour = min(moves)
        before, found[number] = found[number], colour
        until[number, before] = step + len(wrong) // 2 + draw.randrange(10)
        for each in neighbours[number]:
            near[each][before] -= 1
            near[each][colour] += 1
    return None


def _exact(conflicts: Sequence[int], clique: Sequence[int], best: list[int]) -> tuple[list[int], int]:
    """Returns the round of each transfer and the bound: equal numbers, unless the search takes too many steps."""
    while _count(best) > len(clique):
        search = _Search(conflicts, clique, _count(best) - 1)
        if search.run():
            best = search.colours
        else:
            return best, len(clique) if search.left == 0 else _count(best)
    return best, len(clique)


class _Search:
    """A search over all ways to put transfers into `count` rounds.

    Args:
        conflicts: transfers that share a link with each.
        clique: transfers that are in different rounds in any case; they get the first ones.

    Attributes:
        colours: the round of each transfer.
        left: steps that are left; 0 if the search was given up.
    """

    def __init__(self, conflicts: Sequence[int], clique: Sequence[int], count: int):
        self.conflicts, self.count, self.left = conflicts, count, SEARCH_STEPS
        self.colours, self.near = [-1] * len(conflicts), [[0] * count for _ in conflicts]
        self.used = len(clique)
        for colour, number in enumerate(clique):
            self._put(number, colour, 1)

    def run(self) -> bool:
        """Tells whether all transfers fit; False as well if the steps do not suffice."""
        number, colours = self._hardest()
        if number < 0:
            return True
        used = self.used
        for colour in colours:
            if colour > used or self.left == 0:  # rounds that are still empty are alike
                return False
            self.left -= 1
            self.used = max(used, colour + 1)
            self._put(number, colour, 1)
            if self.run():
                return True
            self._put(number, colour, -1)
            self.used = used
        return False

    def _put(self, number: int, colour: int, sign: int) -> None:
        self.colours[number] = colour if sign > 0 else -1
        for each in _members(self.conflicts[number]):
            self.near[each][colour] += sign

    def _hardest(self) -> tuple[int, list[int]]:
        """Returns the transfer that fits into the fewest rounds, and these; -1 if all are placed."""
        best, fits, most = -1, list[int](), 0
        for number, colour in enumerate(self.colours):
            if colour < 0:
                free = [each for each, count in enumerate(self.near[number]) if not count]
                degree = self.conflicts[number].bit_count()
                if best < 0 or (len(free), -degree) < (len(fits), -most):
                    best, fits, most = number, free, degree
        return best, fits


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
    """Returns the seconds until each transfer has ended, by its bytes, if all begin at the same time; those of 0 bytes take no time."""
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
    """The time of a collective call between ranks on a modelled network, for a machine whose loopback is faster than any network."""

    # Alpha, seconds of each call.
    latency_seconds: float = 0.0
    # Beta in GB/s (10^9 bytes per second) for the larger of sent and received bytes of a rank; None for no bound.
    gbps: float | None = None
    # Links between the ranks, with their congestion; None if a rank's own bytes alone count.
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
