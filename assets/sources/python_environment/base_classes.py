"""Finds the class that a base in a class statement means, as an import would bind the name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class BaseClasses:
    """The classes that names mean, module by module.

    Args:
        ids: dotted name of a module -> its number.
        parsed: by module number, "aliases" and "stars" of `modules.describe`.
        classes: (module number, name) -> class number.
    """

    def __init__(
        self, ids: Mapping[str, int], parsed: Sequence[Mapping[str, Any]], classes: Mapping[tuple[int, str], int]
    ):
        self.ids, self.parsed, self.classes = ids, parsed, classes
        self.known: dict[tuple[int, str], int | None] = {}

    def find(self, module: int, name: str) -> int | None:
        """Returns the class that a dotted name means in a module; None if it is not among the classes, as built-in ones are.

        A class of the module itself comes first, then what an import binds to the first word, then the modules of `import *`, in order.
        """
        if (module, name) not in self.known:
            self.known[module, name] = self._search(module, name)
        return self.known[module, name]

    def _search(self, module: int, name: str) -> int | None:
        seen, left = set(), [(module, name)]
        while left:
            place = left.pop()
            if place in seen:  # imports may go in circles
                continue
            seen.add(place)
            own = self.classes.get(place)
            if own is not None:
                return own
            left += reversed([*self._imported(*place)])
        return None

    def _imported(self, module: int, name: str) -> Iterator[tuple[int, str]]:
        """Yields the modules, and the names in them, that a name may come from by the imports of a module."""
        first, dot, rest = name.partition(".")
        row = self.parsed[module]
        targets = (
            [row["aliases"][first] + dot + rest]
            if first in row["aliases"]
            else [f"{star}.{name}" for star in row["stars"]]
        )
        for target in targets:
            prefix = target
            while prefix and prefix not in self.ids:
                prefix = prefix.rpartition(".")[0]
            inside = target[len(prefix) + 1 :]
            # An alias for a part of itself makes names that grow without end: what is left to look up has no more dots than before.
            if prefix and inside and inside.count(".") <= name.count("."):
                yield self.ids[prefix], inside
