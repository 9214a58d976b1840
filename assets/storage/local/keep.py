"""The artifacts that must stay, in a home or in an object store: a pure function of build times, inputs and leases."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from graphmill.assets.storage.names.manifest import Address
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Node:
    """One artifact as the garbage collector sees it.

    Attributes:
        built: time of building, as text that sorts by time.
        inputs: addresses of the artifacts that it was built from; an input need not be in the store any more.
        sound: whether it can be opened.
        part_of: the artifact that it is a part of, present or not; None if it is not a part.
        group: name, beside its stage, by which versions are counted: PIPELINE/STEP, with the seed of a training; "" if it was not recorded.
        split: the one of its source's splits that a graph has; "" if the source has only one, and for other stages.
        about: description for people: the PIPELINE/STEP that it was built for, and its scores.
    """

    address: Address
    built: str
    inputs: tuple[Address, ...] = ()
    sound: bool = True
    part_of: Address | None = None
    group: str = ""
    split: str = ""
    about: str = ""


def closure(starts: Iterable[Address], inputs: Mapping[Address, Collection[Address]]) -> set[Address]:
    """Returns the starts and everything that they refer to, transitively."""
    reached, waiting = set(), list(starts)
    while waiting:
        address = waiting.pop()
        if address not in reached:
            reached.add(address)
            waiting.extend(inputs.get(address, ()))
    return reached


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What goes and what stays.

    Attributes:
        nodes: everything that the store has, described with its split.
        going: the artifacts that go, readers before their inputs.
    """

    nodes: tuple[Node, ...]
    going: tuple[Node, ...]
    reasons: Mapping[Address, str]


def judge(nodes: Collection[Node], keep: int, leased: Collection[Address]) -> Verdict:
    """Returns which artifacts go; arguments are those of `reasons_to_keep`."""
    if keep < 0:
        raise InputError(f"keep = {keep} is negative", "give the number of versions to keep, 0 or more")
    reasons, splits = reasons_to_keep(nodes, keep, leased), splits_read(nodes)
    described = tuple(
        replace(node, about=f"{node.about}, split {splits[node.address]}")
        if node.about and node.address in splits
        else node
        for node in nodes
    )
    going = tuple(node for node in readers_first(described) if node.address not in reasons)
    return Verdict(nodes=described, going=going, reasons=reasons)


def reasons_to_keep(nodes: Collection[Node], keep: int, leased: Collection[Address]) -> dict[Address, str]:
    """Returns address -> reason for every artifact that must stay.

    Parts are not counted: they stay with the artifact that they belong to. If that is not built yet, it stands in the list in their place,
    as new as the newest of them: building it goes on from them.

    Args:
        keep: number of the newest sound versions of each group that stay, as in `find_garbage`.
    """
    unfinished = _unfinished(nodes)
    inputs = {node.address: node.inputs for node in (*nodes, *unfinished)}
    splits = splits_read(nodes)
    present = {node.address for node in nodes}
    reasons: dict[Address, str] = {address: "used by a running job" for address in leased if address in present}
    whole = [node for node in (*nodes, *unfinished) if node.sound and node.part_of is None]
    newest = sorted(whole, key=lambda node: (node.built, node.address), reverse=True)
    counted: Counter[tuple[str, str]] = Counter()
    for node in newest:
        split = splits.get(node.address, "")
        group = (node.address[0], f"{node.group}, split {split}" if split and node.group else node.group)
        counted[group] += 1
        if counted[group] <= keep:
            of = group[1] or f"stage {node.address[0]}"
            reasons.setdefault(node.address, f"one of the newest {keep} of {of}")
    going_on = closure((node.address for node in unfinished if node.address in {*reasons, *leased}), inputs)
    for address in closure([*reasons, *leased], inputs) & inputs.keys():
        why = "read by an unfinished build" if address in going_on else "read by an artifact that is kept"
        reasons.setdefault(address, why)
    return {address: why for address, why in reasons.items() if address in present}


def splits_read(nodes: Collection[Node]) -> dict[Address, str]:
    """Returns address -> split of every artifact that is, or was built from, a graph with one of its source's several splits."""
    inputs = {node.address: node.inputs for node in nodes}
    of_graph = {node.address: node.split for node in nodes if node.split}
    found = {
        node.address: {of_graph[each] for each in closure([node.address], inputs) & of_graph.keys()} for node in nodes
    }
    return {address: ", ".join(sorted(splits)) for address, splits in found.items() if splits}


def _unfinished(nodes: Collection[Node]) -> list[Node]:
    """Returns a node for each artifact that has parts in the store but is absent or damaged itself."""
    sound = {node.address for node in nodes if node.sound}
    parts: dict[Address, list[Node]] = {}
    for node in nodes:
        if node.part_of is not None and node.part_of not in sound:
            parts.setdefault(node.part_of, []).append(node)
    return [
        Node(
            address=address,
            built=max(each.built for each in mine),
            inputs=tuple(each.address for each in mine),
            group=max(each.group for each in mine),
        )
        for address, mine in parts.items()
    ]


def readers_first(nodes: Collection[Node]) -> Iterator[Node]:
    """Yields the nodes so that each comes before its inputs: an interrupted removal leaves no gap in a lineage.

    A version is a hash of those of its inputs, so no artifact refers to itself by any path.
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
