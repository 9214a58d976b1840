"""Names of relations: their parts, and which one is the reverse of which.

A source names a relation SOURCE/RELATION/DESTINATION, or by any text in a graph with one type of nodes. The reverse edges of a relation
that graphmill adds are called "reverse of" and the name; PyG's `ToUndirected` writes DESTINATION/rev_RELATION/SOURCE.
"""

from collections.abc import Sequence

from graphmill.kernels.errors import InputError, did_you_mean

REVERSE, PYG_REVERSE = "reverse of ", "rev_"


def middle_part(name: str) -> str:
    """Returns the middle part of a relation's name SOURCE/RELATION/DESTINATION, the name itself if it has no such parts."""
    reverse = REVERSE if name.startswith(REVERSE) else ""
    parts = name.removeprefix(REVERSE).split("/")
    return reverse + parts[1] if len(parts) == 3 else name


def forward_of(name: str) -> tuple[str, ...]:
    """Returns the names that the relation may have whose reverse has this name; none if the name is not that of a reverse."""
    if name.startswith(REVERSE):
        return (name.removeprefix(REVERSE),)
    source, middle, target = parts if len(parts := name.split("/")) == 3 else ("", name, "")
    bare = next((middle.removeprefix(each) for each in (REVERSE, PYG_REVERSE) if middle.startswith(each)), None)
    return () if bare is None else (f"{target}/{bare}/{source}",) if source else (bare,)


def reverse_pairs(names: Sequence[str]) -> dict[int, int]:
    """Returns number of a relation -> number of the relation of its reverse edges, for those whose names say so."""
    place = {name: number for number, name in enumerate(names)}
    return {place[own]: number for number, name in enumerate(names) for own in forward_of(name) if own in place}


def named_relations(asked: Sequence[str], names: Sequence[str], key: str) -> list[int]:
    """Returns the numbers of the relations that a key names, each by its whole name or its middle part.

    Args:
        asked: the names; none are all relations but reverse ones.

    Raises:
        InputError: the graph does not have a relation, or it is the reverse of another one.
    """
    backward = reverse_pairs(names)
    known = dict.fromkeys([*names, *map(middle_part, names)])
    for name in asked:
        if name not in known:
            has = f"its relations are: {', '.join(names)}" if names else f"its edges have no relations: leave {key} out"
            problem = f"{key} names the relation {name!r}, which the graph does not have{did_you_mean(name, known)}"
            raise InputError(problem, has)
    chosen = [number for number, name in enumerate(names) if {name, middle_part(name)} & {*asked} or not asked]
    for forward, number in backward.items():
        if asked and number in chosen:
            problem = f"{key} names {names[number]!r}, the reverse of {names[forward]!r}"
            raise InputError(problem, f"name {names[forward]!r}: its reverse follows it")
    return [number for number in chosen if number not in backward.values()]
