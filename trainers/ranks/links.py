"""The links between devices or ranks, and the route of every transfer (FreshGNN, section 6).

A topology is a line of text: groups of devices that share a switch, and the speed of a link, in each direction.

    0 1 2 3 @ 300GB/s                                     four devices at one switch
    0 1 | 2 3 @ 32GB/s | 16GB/s                           two switches of two devices, and a bridge (Figure 9c of the paper)
    0 1 | 2 3 || 4 5 | 6 7 @ 32GB/s | 24GB/s || 16GB/s    two sockets of two switches each
    0 1 | 2 3 @ 32GB/s | 16GB/s; 0-2 50GB/s               a direct link as well, which its two devices use
    0 1 | 2 3 @ 32GB/s | 16GB/s; efficiency 1 0.6 0.4     congestion: the share of its speed that a link has with 1, 2, 3 transfers

The first speed is that of each device's own link. The speed behind | is that of the link from each group between single bars to the others.
If the longest bars separate two groups, one bridge joins them. A link carries one stream of bytes per direction; here each direction is a
link of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from graphmill.kernels.errors import InputError

MOST_DEVICES = 64
UNITS = {"MB/s": 1e-3, "GB/s": 1.0, "TB/s": 1e3}
FORM = 'write groups and speeds: links = "0 1 | 2 3 @ 32GB/s | 16GB/s"'
Pair = tuple[int, int]
"""A transfer: the device that sends, and the one that receives."""


@dataclass(frozen=True, kw_only=True)
class Interconnect:
    """Links of one direction each, and the route of every transfer."""

    # Name of each link.
    names: tuple[str, ...]
    # Speed of each link in GB/s, 10^9 bytes per second.
    gbps: tuple[float, ...]
    # Transfer -> links on its way; every ordered pair of devices has one.
    routes: Mapping[Pair, tuple[int, ...]]
    # Device -> numbers of its groups, the outermost first, and its number in the last one.
    places: tuple[tuple[int, ...], ...]
    # Share of its speed that a link has with 1, 2, ... transfers on it; the last number holds for more of them.
    efficiency: tuple[float, ...] = (1.0,)

    @property
    def num_devices(self) -> int:
        """Number of devices, which are numbered from 0."""
        return len(self.places)

    def users(self) -> list[list[Pair]]:
        """Returns the transfers that each link carries in an exchange of all with all."""
        found: list[list[Pair]] = [[] for _ in self.names]
        for pair, route in sorted(self.routes.items()):
            for link in route:
                found[link].append(pair)
        return found

    def share(self, transfers: int) -> float:
        """Returns the share of its speed that a link has with a number of transfers on it."""
        return self.efficiency[min(transfers, len(self.efficiency)) - 1]

    def alone_gbps(self, pair: Pair) -> float:
        """Returns the speed in GB/s of a transfer that shares no link."""
        return min(self.gbps[link] for link in self.routes[pair]) * self.share(1)

    def between(self, devices: Sequence[int]) -> Interconnect:
        """Returns the links of some devices alone, numbered anew in the given order; raises InputError if there is no such device."""
        if max(devices) >= self.num_devices:
            problem = f"`links` has {self.num_devices} devices, and {max(devices) + 1} are needed"
            raise InputError(problem, "name as many devices as there are ranks, or start fewer ranks")
        pairs = {
            (one, other): (source, target) for one, source in enumerate(devices) for other, target in enumerate(devices)
        }
        routes = {pair: self.routes[there] for pair, there in pairs.items() if pair[0] != pair[1]}
        return replace(self, routes=routes, places=tuple(self.places[device] for device in devices))


class _Ways(NamedTuple):
    """The links of a group or a device to the rest of the tree, and the groups and the device below it."""

    out: int | None
    into: int | None


class _Tree:
    """Collects the links of nested groups of devices, with GB/s of the links of each level, those of the devices first."""

    def __init__(self, speeds: list[float]):
        self.speeds = speeds
        self.names: list[str] = []
        self.gbps: list[float] = []
        self.above: dict[int, tuple[tuple[str, _Ways], ...]] = {}
        self.places: dict[int, tuple[int, ...]] = {}

    def link(self, name: str, gbps: float) -> int:
        """Adds a link of one direction and returns its number."""
        self.names.append(name)
        self.gbps.append(gbps)
        return len(self.names) - 1

    def add(self, text: str, level: int, path: tuple[tuple[str, _Ways], ...] = (), place: tuple[int, ...] = ()) -> None:
        """Adds the groups of a text that bars of a length separate.

        Args:
            level: the length of the bars; 0 for a list of devices.
            path: name and links of each group around it, the outermost first.
            place: numbers of these groups.
        """
        members = _split(text, level)
        names = [name if level == 0 else f"{{{_flat(name)}}}" for name in members]
        ways = self._joined(names, level, outermost=not path)
        for number, (member, name, way) in enumerate(zip(members, names, ways, strict=True)):
            if level == 0:
                device = _device(member, self.above)
                self.above[device], self.places[device] = (*path, (name, way)), (*place, number)
            else:
                self.add(member, level - 1, (*path, (name, way)), (*place, number))

    def _joined(self, names: list[str], level: int, *, outermost: bool) -> list[_Ways]:
        """Returns the links of the members of a group."""
        if level and outermost and len(names) == 2:
            there, back = (
                self.link(f"{one}>{other}", self.speeds[level]) for one, other in (names, list(reversed(names)))
            )
            return [_Ways(there, back), _Ways(back, there)]
        return [
            _Ways(self.link(f"{name} out", self.speeds[level]), self.link(f"{name} in", self.speeds[level]))
            for name in names
        ]

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Returns the links from a device to another one."""
        up, down = self.above[source], self.above[target]
        common = next(depth for depth, (one, other) in enumerate(zip(up, down, strict=True)) if one != other)
        links = [way.out for _, way in reversed(up[common:])] + [way.into for _, way in down[common:]]
        return tuple(dict.fromkeys(link for link in links if link is not None))  # a bridge is out and into at once


def parse_links(text: str) -> Interconnect:
    """Returns the links that a text describes in the form at the head of this file; raises InputError for another form."""
    groups, *clauses = (each.strip() for each in text.split(";"))
    members, at, spelled = groups.partition("@")
    depth = max((len(bars) for bars in re.findall(r"\|+", members)), default=0)
    if not at or not members.strip():
        raise InputError(f"links = {text!r} has no devices or no speed", FORM)
    tree = _Tree(_speeds(spelled, depth))
    tree.add(members, depth)
    if sorted(tree.above) != list(range(len(tree.above))) or not 2 <= len(tree.above) <= MOST_DEVICES:
        problem = f"links = {text!r} names the devices {', '.join(map(str, sorted(tree.above)))}"
        raise InputError(problem, f"name 2 to {MOST_DEVICES} devices, numbered from 0 without a gap")
    devices = range(len(tree.above))
    routes = {(one, other): tree.route(one, other) for one in devices for other in devices if one != other}
    efficiency = (1.0,)
    for clause in filter(None, clauses):
        if found := re.fullmatch(r"(\d+)\s*-\s*(\d+)\s+(\S+)", clause):
            _add_direct(tree, routes, int(found[1]), int(found[2]), _speed(found[3]))
        elif clause.startswith("efficiency "):
            efficiency = parse_efficiency(clause.removeprefix("efficiency "))
        else:
            raise InputError(f"links has {clause!r}, which is not a direct link", 'write "0-2 50GB/s"')
    places = tuple(tree.places[device] for device in devices)
    return Interconnect(
        names=tuple(tree.names), gbps=tuple(tree.gbps), routes=routes, places=places, efficiency=efficiency
    )


def parse_efficiency(text: str) -> tuple[float, ...]:
    """Returns the shares of a text such as "1 0.6 0.4" or "1,0.6,0.4"; raises InputError if one is not in (0, 1], or they grow."""
    try:
        found = tuple(float(each) for each in re.split(r"[\s,]+", text.strip()))
    except ValueError:
        found = ()
    if not found or not all(0 < each <= 1 for each in found) or any(a < b for a, b in zip(found, found[1:])):  # noqa: B905, RUF007
        problem = f"the efficiencies {text!r} are not shares from 1 downwards"
        raise InputError(problem, "give the share of its speed that a link has with 1, 2, 3 transfers: 1 0.6 0.4")
    return found


def _add_direct(tree: _Tree, routes: dict[Pair, tuple[int, ...]], one: int, other: int, gbps: float) -> None:
    """Routes the two transfers between two devices over a link of their own."""
    for pair in ((one, other), (other, one)):
        if pair not in routes:
            raise InputError(f"links joins {one}-{other} directly", "take two of the devices of the groups")
        routes[pair] = (tree.link(f"{pair[0]}>{pair[1]}", gbps),)


def _split(text: str, level: int) -> list[str]:
    """Returns the members of a group, separated by bars of a length or blanks; raises InputError for one without devices."""
    members = text.split() if level == 0 else re.split(rf"(?<!\|)\|{{{level}}}(?!\|)", text)
    found = [each.strip() for each in members]
    if not found or not all(found):
        raise InputError(f"links has a group without devices in {text.strip()!r}", FORM)
    return found


def _flat(name: str) -> str:
    return " ".join(re.findall(r"\d+", name))


def _device(text: str, known: Collection[int]) -> int:
    """Returns the number of a device; raises InputError if it is not a number, or it stands there twice."""
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII) or int(text) in known:
        raise InputError(f"links has {text!r}, which is not the number of another device", FORM)
    return int(text)


def _speeds(text: str, depth: int) -> list[float]:
    """Returns the speeds of a text such as "32GB/s | 16GB/s": of devices, and of bars of each length to `depth`; else raises InputError."""
    first, *others = re.split(r"(\|+)", text)
    bars = [len(each) for each in others[::2]]
    if bars != list(range(1, depth + 1)):
        wanted = " ".join(["@ 32GB/s", *(f"{'|' * level} 16GB/s" for level in range(1, depth + 1))])
        raise InputError(f"links has the speeds {text.strip()!r}", f"give one for each length of bars: {wanted}")
    return [_speed(each) for each in (first, *others[1::2])]


def _speed(text: str) -> float:
    """Returns GB/s of a text such as "32GB/s"; raises InputError if it is not a speed above 0."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([MGT]B/s)\s*", text, re.ASCII)
    if not found or not 1e-6 <= (gbps := float(found[1]) * UNITS[found[2]]) <= 1e6:
        raise InputError(f"links has the speed {text.strip()!r}", "give a number above 0 with its unit: 32GB/s")
    return gbps
