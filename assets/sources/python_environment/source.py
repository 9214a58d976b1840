"""The modules of the installed Python packages: a real graph that every machine has.

A node is a module, an edge goes from the importing module to the imported one, a label is the distribution that
installed the module. The features count the identifiers of the module outside its import statements, hashed into
columns; a count is stored as its bit length (0, 1, 2, 2 or more, ...), an integer logarithm that is the same
everywhere. A module without a parseable source is a node without features and imports.

Peak memory: about 2 kB per module for 128 columns (the sparse rows of all modules as JSON objects), plus one syntax tree per process.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphmill.assets.building.keys import within
from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.interface import (
    FEATURES_ONLY,
    FEATURES_TOO,
    GraphConfig,
    OpenSource,
    RawGraph,
    TableConfig,
)
from graphmill.assets.sources.python_environment.parsing import parse_modules
from graphmill.assets.sources.survey import Survey, in_memory_bytes
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, id_dtype

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress


def installed_packages() -> Path:
    """Returns the folder of this interpreter's installed packages."""
    return Path(sysconfig.get_paths()["purelib"])


@dataclass(frozen=True, kw_only=True)
class PythonEnvironmentConfig(GraphConfig):
    """`[graph]` with `source = "python-environment"`."""

    # names this kind of source
    source: str = field(default="python-environment", metadata=FEATURES_TOO)
    # the folder of installed packages; without it, this interpreter's own
    path: Path = field(default_factory=installed_packages)
    # number of feature columns, into which identifiers are hashed
    features: int = field(default=128, metadata=within(1, 2**20, **FEATURES_ONLY))
    # a distribution with fewer modules is not a class: its modules have label -1
    min_class: int = field(default=20, metadata=within(1))

    inspected = False

    def raw(self, table: TableConfig | None) -> Mapping[str, str]:
        """Returns one digest over the grammar's version and (distribution, version, relative path, file digest) of every module, whose
        text decides both its imports and its features.
        """
        digest = hashlib.sha256(f"python {sys.version_info[0]}.{sys.version_info[1]}\n".encode())
        for module in find_modules(self.path):
            try:
                file_digest = hashlib.sha256((self.path / module.relative_path).read_bytes()).hexdigest()
            except OSError:
                file_digest = ""
            line = "\0".join((module.distribution, module.version, module.relative_path, file_digest))
            digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
        return {"modules": digest.hexdigest()}

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[OpenSource]:
        """Lists all modules; they are parsed in `execution.threads` processes when they are first needed."""
        yield ModulesSource(self, execution.threads, progress)

    def survey(self) -> Survey:
        """Describes the installed modules; they are not parsed, so the edges are an estimate."""
        modules = find_modules(self.path)
        distributions = len({module.distribution for module in modules})
        num_edges = USUAL_IMPORTS * len(modules) * (2 if self.undirected else 1)
        return Survey(
            title=f"python-environment: {self.path}",
            contents=[f"{len(modules):,} modules of {distributions} distributions"],
            num_nodes=len(modules),
            num_edges=num_edges,
            num_features=self.features,
            dtype="uint8" if self.normalize == "none" else "float32",
            memory_bytes=in_memory_bytes(num_edges, len(modules), num_edges),
            notes=[f"edges are estimated at {USUAL_IMPORTS} imports a module; parsing tells"],
        )


USUAL_IMPORTS = 8
"""Imports of a module from the same environment, rounded up; for estimates."""


class Module(NamedTuple):
    """A module of an installed distribution."""

    distribution: str
    version: str
    relative_path: str
    name: str
    is_package: bool


class ModulesSource:
    """The modules of a folder; see `OpenSource`."""

    node_of_row = None

    def __init__(self, config: PythonEnvironmentConfig, threads: int, progress: Progress):
        self.config, self.threads, self.progress = config, threads, progress
        self.modules = find_modules(config.path)
        self.num_nodes = len(self.modules)
        self.node_types: Mapping[str, int] = {}

    @cached_property
    def parsed(self) -> Sequence[Mapping[str, Any]]:
        """The result of parsing each module: imports, feature columns, problems."""
        config = self.config
        tasks = [(str(config.path / m.relative_path), m.name, m.is_package, config.features) for m in self.modules]
        return parse_modules(tasks, self.threads, self.progress)

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the counts of identifiers, u8[N, F]."""
        config = self.config
        block = FeatureBlock(
            where=str(config.path),
            num_rows=self.num_nodes,
            width=config.features,
            dtype=np.dtype(np.uint8),
            slices=lambda: feature_slices([(row["columns"], row["values"]) for row in self.parsed], config.features),
            place=lambda row, column: f"{config.path}: {self.modules[row].relative_path} column {column}",
        )
        return [block]

    def graph(self, progress: Progress) -> RawGraph:
        """Returns the import graph."""
        config, modules = self.config, self.modules
        ids = {module.name: node for node, module in enumerate(modules)}
        (src, dst), outside = import_edges([row["imports"] for row in self.parsed], ids)
        if len(src) == 0:
            problem = f"{config.path}: the {len(modules)} modules do not import each other"
            raise InputError(problem, "give another `path`")
        labels, class_names = labels_of(modules, config)
        problems = Counter(row["problem"] for row in self.parsed)
        return RawGraph(
            num_nodes=len(modules),
            src=src,
            dst=dst,
            labels=labels,
            class_names=class_names,
            node_names=[module.name for module in modules],
            numbers={
                "num_distributions": len({module.distribution for module in modules}),
                "num_imports_outside": outside,
                "num_unparseable_modules": problems["syntax"],
                "num_unreadable_modules": problems["unreadable"],
            },
        )


def find_modules(folder: Path) -> list[Module]:
    """Lists the importable source modules of every installed distribution, in order of distribution and path.

    A name that two distributions install belongs to the first. Files that no import can reach (scripts, templates), and the path hooks of
    editable installs, which hold absolute paths of this machine, do not count.

    Raises:
        InputError: the folder is missing or holds no modules.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", "correct `path` in [graph], or leave it out")
    found: list[Module] = []
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        metadata = distribution.metadata  # parsed again at every access
        name = re.sub(r"[-_.]+", "-", metadata["Name"] or "unknown").lower()
        version = metadata["Version"] or ""
        for file in distribution.files or ():
            if dotted := _dotted(str(file)):
                found.append(Module(name, version, str(file), *dotted))
    first: dict[str, Module] = {}
    for module in sorted(found):
        first.setdefault(module.name, module)
    modules = [module for module in first.values() if (folder / module.relative_path).is_file()]
    if not modules:
        raise InputError(f"{folder}: holds no modules of installed distributions", "give a site-packages folder")
    return modules


def _dotted(relative_path: str) -> tuple[str, bool] | None:
    """Returns (dotted name, is package) of an importable file below the folder, else None."""
    if not relative_path.endswith(".py") or relative_path.startswith("__editable__"):
        return None
    parts = relative_path[: -len(".py")].split("/")
    is_package = parts[-1] == "__init__" and len(parts) > 1
    if is_package:
        parts.pop()
    return (".".join(parts), is_package) if all(part.isidentifier() for part in parts) else None


def import_edges(imports: Sequence[Sequence[str]], ids: Mapping[str, int]) -> tuple[tuple[Array, Array], int]:
    """Returns src and dst of the import edges as ids[E], each once, and the number of imports that leave the graph."""
    src: list[int] = []
    dst: list[int] = []
    outside = 0
    for importer, names in enumerate(imports):
        targets: set[int] = set()
        for name in names:
            target = ids.get(name)
            while target is None and name:
                name = name.rpartition(".")[0]
                target = ids.get(name)
            if target is None:
                outside += 1
            else:
                targets.add(target)
        src += [importer] * len(targets)
        dst += sorted(targets)
    kind = id_dtype(len(ids))
    return (np.array(src, kind), np.array(dst, kind)), outside


def labels_of(modules: Sequence[Module], config: PythonEnvironmentConfig) -> tuple[Array, tuple[str, ...]]:
    """Returns i32[N] labels, and the class names in order: the distributions of at least `min_class` modules."""
    sizes = Counter(module.distribution for module in modules)
    names = tuple(sorted(name for name, size in sizes.items() if size >= config.min_class))
    if not names:
        largest, size = sizes.most_common(1)[0]
        problem = (
            f"min_class = {config.min_class}: no distribution has so many modules; the largest is {largest} with {size}"
        )
        raise InputError(problem, f"give a smaller `min_class`, at most {size}")
    label_of = {name: label for label, name in enumerate(names)}
    return np.array([label_of.get(module.distribution, -1) for module in modules], np.int32), names


def feature_slices(rows: Sequence[tuple[list[int], list[int]]], width: int) -> Iterator[tuple[int, Array]]:
    """Yields (first row, u8[n, width]) from the columns and values of sparse rows."""
    for low, high in row_ranges(len(rows), width):
        out = np.zeros((high - low, width), np.uint8)
        for place, (columns, values) in enumerate(rows[low:high]):
            out[place, columns] = values
        yield low, out
