"""The modules, classes and packages of the installed Python packages: a real graph with types that every machine has.

    module imports module          as in `source = "python-environment"`
    module contains class          of the module's top level
    class inherits class           wherever the base is found among the classes, through aliases and `from ... import *`
    package contains module        a folder of modules, and its `__init__.py` as a module
    package contains package

A label is the distribution that installed a module; classes and packages have none. The features of modules and of classes count
identifiers, each hashed into columns of their own number; packages have no features.

Peak memory: about 8 kB per module for 128 and 64 columns (the sparse rows of all modules and classes as JSON objects), plus one syntax tree
per process, plus `memory_limit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graphmill.assets.building.keys import within
from graphmill.assets.sources.arrays.mapped_arrays import array_relation
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.interface import FEATURES_ONLY, FEATURES_TOO, TableConfig
from graphmill.assets.sources.python_environment.parsing import parse_modules
from graphmill.assets.sources.python_environment.source import (
    USUAL_IMPORTS,
    Module,
    PythonEnvironmentConfig,
    feature_slices,
    find_modules,
    import_edges,
    labels_of,
)
from graphmill.assets.sources.spooled import SpooledConfig, spooled_survey
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.typed_graph import Relation, TypedGraph, TypedSource
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress

RELATIONS = (
    "module/imports/module",
    "module/contains/class",
    "class/inherits/class",
    "package/contains/module",
    "package/contains/package",
)
USUAL_CLASSES = 2
"""Classes of a module, and bases of a class; for estimates."""


@dataclass(frozen=True, kw_only=True)
class TypedEnvironmentConfig(PythonEnvironmentConfig, SpooledConfig):
    """`[graph]` with `source = "typed-python-environment"`."""

    # names this kind of source
    source: str = field(default="typed-python-environment", metadata=FEATURES_TOO)
    # number of feature columns of a class; `features` is that of a module
    class_features: int = field(default=64, metadata=within(1, 2**20, **FEATURES_ONLY))
    # type of reverse edges: the "same" as the edge's, or one of its "own"
    reverse_types: Literal["same", "own"] = "own"

    @property
    def typed(self) -> bool:
        """Whether edges have relations: they do."""
        return True

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[TypedSource]:
        """Parses all modules in `execution.threads` processes."""
        modules = find_modules(self.path)
        widths = self.features, self.class_features
        tasks = [(str(self.path / m.relative_path), m.name, m.is_package, *widths) for m in modules]
        environment = Environment(self, modules, parse_modules(tasks, execution.threads, progress))
        yield TypedSource(environment.graph(), self, folder, environment.blocks)

    def survey(self) -> Survey:
        """Describes the installed modules; they are not parsed, so classes and edges are an estimate."""
        modules = find_modules(self.path)
        packages, distributions = len(packages_of(modules)), len({module.distribution for module in modules})
        classes = USUAL_CLASSES * len(modules)
        return spooled_survey(
            self,
            RELATIONS,
            len(modules) + classes + packages,
            (USUAL_IMPORTS + 1) * len(modules) + 2 * classes + packages,
            max(self.features, self.class_features),
            "uint8" if self.normalize == "none" else "float32",
            title=f"{self.source}: {self.path}",
            contents=[f"{len(modules):,} modules of {distributions} distributions, in {packages:,} packages"],
            num_without_features=packages,
            notes=[
                f"classes and edges are estimated at {USUAL_CLASSES} classes and {USUAL_IMPORTS} imports a module; parsing tells"
            ],
        )


class Environment:
    """What the modules of a folder are made of: `modules.describe` of each, with classes."""

    def __init__(self, config: TypedEnvironmentConfig, modules: Sequence[Module], parsed: Sequence[Mapping[str, Any]]):
        self.config, self.modules, self.parsed = config, modules, parsed
        self.packages = {name: node for node, name in enumerate(packages_of(modules))}
        self.ids = {module.name: node for node, module in enumerate(modules)}

    @cached_property
    def classes(self) -> list[tuple[int, Sequence[Any]]]:
        """The module of each class, and its [name, bases, columns, values]."""
        return [(node, each) for node, row in enumerate(self.parsed) for each in row["classes"]]

    def graph(self) -> TypedGraph:
        """Returns everything but the features; raises InputError if no distribution is large enough for a class of labels."""
        labels, class_names = labels_of(self.modules, self.config)
        counts = {"module": len(self.modules), "class": len(self.classes), "package": len(self.packages)}
        imports, outside = import_edges([row["imports"] for row in self.parsed], self.ids)
        inherits, unknown = self.inherits()
        contains = [(node, number) for number, (node, _) in enumerate(self.classes)]
        edges = (imports, pairs(contains), inherits, *self.contained())
        problems = Counter(row["problem"] for row in self.parsed)
        return TypedGraph(
            where=str(self.config.path),
            node_types=counts,
            relations=[_relation(*each) for each in zip(RELATIONS, edges, strict=True)],
            blocks=(),
            labels=np.concatenate([labels, np.full(counts["class"] + counts["package"], -1, np.int32)]),
            splits=None,
            class_names=class_names,
            node_names=[
                *self.ids,
                *(f"{self.modules[node].name}.{each[0]}" for node, each in self.classes),
                *self.packages,
            ],
            numbers={
                "num_distributions": len({module.distribution for module in self.modules}),
                "num_imports_outside": outside,
                "num_bases_outside": unknown,
                "num_unparseable_modules": problems["syntax"],
                "num_unreadable_modules": problems["unreadable"],
            },
        )

    def inherits(self) -> tuple[tuple[Array, Array], int]:
        """Returns the classes and their bases, i64[E] each, and the number of bases that are not among the classes."""
        bases = BaseClasses(self.ids, self.parsed, {(node, each[0]): c for c, (node, each) in enumerate(self.classes)})
        found = [(c, bases.find(node, base)) for c, (node, each) in enumerate(self.classes) for base in each[1]]
        known = [(c, base) for c, base in found if base is not None]
        return pairs(known), len(found) - len(known)

    def contained(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Returns the packages of the modules, and the packages of the packages: i64[E] packages and what each contains."""
        parents = [module.name if module.is_package else parent_of(module.name) for module in self.modules]
        modules = [(self.packages[parent], node) for node, parent in enumerate(parents) if parent]
        inner = [(parent_of(name), node) for name, node in self.packages.items()]
        return pairs(modules), pairs([(self.packages[parent], node) for parent, node in inner if parent])

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the counts of identifiers of modules u8[M, F] and of classes u8[C, K]."""
        modules = [(row["columns"], row["values"]) for row in self.parsed]
        classes = [(each[2], each[3]) for _, each in self.classes]
        block = self._block(modules, self.config.features, 0)
        return [block, self._block(classes, self.config.class_features, len(modules))] if classes else [block]

    def _block(self, rows: Sequence[tuple[list[int], list[int]]], width: int, first: int) -> FeatureBlock:
        return FeatureBlock(
            where=str(self.config.path),
            num_rows=len(rows),
            width=width,
            dtype=np.dtype(np.uint8),
            slices=lambda: feature_slices(rows, width),
            first=first,
        )


def packages_of(modules: Sequence[Module]) -> list[str]:
    """Returns the names of the packages, sorted: folders with an `__init__.py`, and all folders above a module."""
    found: set[str] = set()
    for module in modules:
        name = module.name if module.is_package else parent_of(module.name)
        while name and name not in found:
            found.add(name)
            name = parent_of(name)
    return sorted(found)


def parent_of(name: str) -> str:
    """Returns the dotted name without its last word, "" for one word."""
    return name.rpartition(".")[0]


def pairs(found: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """Returns the first and the second of each pair, i64[E]."""
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _relation(name: str, ends: tuple[Array, Array]) -> Relation:
    source, word, target = name.split("/")
    return array_relation(np.stack(ends), (source, word, target), name)


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
