"""Finds the class that a base in a class statement means, as an import would bind the name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST_HOPS = 32


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

    def find(self, module: int, name: str, hops: int = MOST_HOPS) -> int | None:
        """Returns the class that a dotted name means in a module; None if it is not among the classes, as built-in ones are.

        A class of the module itself comes first, then what an import binds to the first word, then the modules of `import *`.

        Args:
            module: number of the module.
            name: the dotted name.
            hops: number of imports that may be followed.
        """
        if (module, name) not in self.known:
            self.known[module, name] = None  # for a name that leads back to itself
            self.known[module, name] = self._look(module, name, hops - 1) if hops else None
        return self.known[module, name]

    def _look(self, module: int, name: str, hops: int) -> int | None:
        own = self.classes.get((module, name))
        if own is not None:
            return own
        first, dot, rest = name.partition(".")
        row = self.parsed[module]
        if first in row["aliases"]:
            return self._absolute(row["aliases"][first] + dot + rest, name.count("."), hops)
        found = (self._absolute(f"{star}.{name}", name.count("."), hops) for star in row["stars"])
        return next((each for each in found if each is not None), None)

    def _absolute(self, name: str, dots: int, hops: int) -> int | None:
        """Returns the class of a name that begins with a module, of which at most `dots` dots may be left to look up in that module.

        More would be an alias for a part of itself, whose names grow without end.
        """
        prefix = name
        while prefix and prefix not in self.ids:
            prefix = prefix.rpartition(".")[0]
        rest = name[len(prefix) + 1 :]
        return self.find(self.ids[prefix], rest, hops) if prefix and rest and rest.count(".") <= dots else None
