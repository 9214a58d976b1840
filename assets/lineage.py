"""Which artifacts must stay: a pure function of who was built when, who reads whom, and what is leased."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from assets.leases import Address


@dataclass(frozen=True, kw_only=True)
class Node:
    """One artifact as the garbage collector sees it.

    Attributes:
        address: stage and version.
        built: when, as text that sorts by time.
        inputs: what it was built from; an input need not be in the store any more.
        sound: whether it can be opened.
    """

    address: Address
    built: str
    inputs: tuple[Address, ...] = ()
    sound: bool = True


def closure(starts: Iterable[Address], inputs: Mapping[Address, Collection[Address]]) -> set[Address]:
    """Returns the starts and everything that they refer to, transitively."""
    reached, waiting = set(), list(starts)
    while waiting:
        address = waiting.pop()
        if address not in reached:
            reached.add(address)
            waiting.extend(inputs.get(address, ()))
    return reached


def reasons_to_keep(nodes: Collection[Node], keep: int, leased: Collection[Address]) -> dict[Address, str]:
    """Returns address -> reason for every artifact that must stay.

    Args:
        nodes: everything that the store has.
        keep: how many of the newest sound versions of each stage stay.
        leased: what living jobs hold.
    """
    inputs = {node.address: node.inputs for node in nodes}
    reasons: dict[Address, str] = {address: "used by a running job" for address in leased if address in inputs}
    newest = sorted((node for node in nodes if node.sound), key=lambda node: (node.built, node.address), reverse=True)
    for stage in {node.address[0] for node in newest}:
        for node in [node for node in newest if node.address[0] == stage][:keep]:
            reasons.setdefault(node.address, f"one of the newest {keep} of stage {stage}")
    for address in closure([*reasons, *leased], inputs) & inputs.keys():
        reasons.setdefault(address, "read by an artifact that is kept")
    return reasons


def readers_first(nodes: Collection[Node]) -> Iterator[Node]:
    """Yields the nodes so that each comes before what it refers to: an interrupted removal leaves no gap in a lineage.

    A recipe names its inputs by their hashes, so no artifact refers to itself by any path.
    """
    waiting = {node.address: node for node in nodes}
    num_readers = dict.fromkeys(waiting, 0)
    for node in nodes:
        for address in set(node.inputs) & waiting.keys():
            num_readers[address] += 1
    ready = sorted((address for address, count in num_readers.items() if not count), reverse=True)
    while ready:
        node = waiting[ready.pop()]
        yield node
        for address in sorted(set(node.inputs) & waiting.keys(), reverse=True):
            num_readers[address] -= 1
            if not num_readers[address]:
                ready.append(address)
