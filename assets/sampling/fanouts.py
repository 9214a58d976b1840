"""Entries of `fanouts`: a number of neighbours for a layer, or a table of relation -> number.

A relation is named as the graph stores it ("author/writes/paper"), or by its middle part ("writes"), which means all relations with this
middle part; the reverse of "author/writes/paper" has the middle part "reverse of writes". A full name counts before a middle part. "*" is
the number of each relation that no name means: 0 if the table has no "*".
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.tasks.relations import middle_part
from graphmill.kernels.errors import InputError, did_you_mean
from graphmill.kernels.sampling.relations import MOST_EDGES, MOST_RELATIONS, Fanout, most_of_row

Entry = int | Mapping[str, int]
"""Fan-out of a layer as a pipeline file has it."""
OTHERS = "*"
PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""Names that a key of TOML may have without quotes."""


def by_relation(fanouts: Sequence[Entry]) -> bool:
    """Returns whether a layer has numbers per relation."""
    return any(isinstance(entry, Mapping) for entry in fanouts)


def fanout_problems(fanouts: Sequence[Entry], key: str) -> Iterator[KeyProblem]:
    """Yields the problem of a list of fan-outs, under the key that it stands in."""
    numbers = [entry for entry in fanouts if not isinstance(entry, Mapping)]
    if not fanouts or not all(0 < fanout <= MOST_EDGES or fanout == -1 for fanout in numbers):
        problem = (
            f"fanouts = {spelled(fanouts)} is not a list of numbers from 1 to {MOST_EDGES:,}, or -1 for all neighbours"
        )
        yield KeyProblem(key, problem)
    for entry in fanouts:
        if not isinstance(entry, Mapping):
            continue
        if not all(-1 <= number <= MOST_EDGES for number in entry.values()):
            problem = (
                f"fanouts = {spelled(fanouts)}: a relation has a number of 0 or more, or -1 for all its neighbours"
            )
            yield KeyProblem(key, problem)
        elif not any(entry.values()):
            yield KeyProblem(key, f"fanouts = {spelled(fanouts)}: {spelled([entry])[1:-1]} draws no neighbours")


def spelled(fanouts: Sequence[Entry]) -> str:
    """Returns a list of fan-outs as a pipeline file has it."""
    return f"[{', '.join(map(entry_text, fanouts))}]"


def entry_text(entry: Entry) -> str:
    """Returns the fan-out of a layer as a pipeline file has it, relations in the order of their names."""
    if not isinstance(entry, Mapping):
        return str(entry)
    pairs = (f"{_key(name)} = {entry[name]}" for name in sorted(entry, key=lambda name: (name == OTHERS, name)))
    return f"{{ {', '.join(pairs)} }}" if entry else "{}"


def _key(name: str) -> str:
    return name if PLAIN.fullmatch(name) else f'"{name}"'


def relations_of(graph: Artifact) -> tuple[str, ...]:
    """Returns the names of the relations of a graph artifact, in the order of their numbers; none if its edges have no types."""
    return tuple(graph.summary["numbers"].get("edge_types", ()))


def resolved(fanouts: Sequence[Entry], relations: Sequence[str]) -> tuple[Fanout, ...]:
    """Returns the fan-outs with numbers per relation in the order of the relations.

    Raises:
        InputError: a table names a relation that the graph does not have, or the graph has no relations.
    """
    return tuple(_numbers(entry, relations) if isinstance(entry, Mapping) else entry for entry in fanouts)


def _numbers(entry: Mapping[str, int], relations: Sequence[str]) -> tuple[int, ...]:
    if not relations:
        problem = f"[sampling] fanouts has {entry_text(entry)}, and the edges of the graph have no relations"
        raise InputError(problem, "give one number per layer, or give the source edge types (docs/own-data.md)")
    middles = [middle_part(name) for name in relations]
    known = dict.fromkeys([*relations, *middles, OTHERS])
    for name in entry:
        if name not in known:
            problem = f"[sampling] fanouts names the relation {name!r}, which the graph does not have"
            raise InputError(f"{problem}{did_you_mean(name, known)}", f"its relations are: {', '.join(relations)}")
    others = entry.get(OTHERS, 0)
    return tuple(entry.get(name, entry.get(middle, others)) for name, middle in zip(relations, middles, strict=True))


def most_drawn(entry: Entry, relations: Sequence[str] | None = None) -> int:
    """Returns the most neighbours that a node draws in a layer, -1 if only the graph bounds them.

    Args:
        relations: names of the relations; None if they are not known, and any number of them may have each name.
    """
    if not isinstance(entry, Mapping):
        return entry
    if relations:
        return most_of_row(_numbers(entry, relations))
    once = [number for name, number in entry.items() if name.count("/") == 2]
    often = [number for name, number in entry.items() if name.count("/") != 2]
    return most_of_row((*once, *([max(often)] * MOST_RELATIONS if often and -1 not in often else often)))


def least_drawn(entry: Entry) -> int:
    """Returns a number of neighbours that a node with enough of them draws at least; -1 for all."""
    return most_of_row(tuple(entry.values())) if isinstance(entry, Mapping) else entry
