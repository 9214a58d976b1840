"""The sources of graphs by name: those of graphmill, and those of installed packages.

A package brings a source by an entry point of the group `graphmill.sources`, which names its class (docs/own-sources.md). Those of
graphmill are entries of the same form. A class is imported when its source is first needed: reading a pipeline file imports its own source.
"""

import dataclasses
import hashlib
import sys
import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.storage.files.digests import sha256_file
from graphmill.kernels.errors import InputError, did_you_mean

GROUP = "graphmill.sources"
SOURCES: Mapping[str, str] = {
    "asset": "graphmill.assets.sources.edges.asset:AssetConfig",
    "citation": "graphmill.assets.sources.generated.generators:CitationConfig",
    "dgl": "graphmill.assets.sources.dgl.source:DglConfig",
    "edges": "graphmill.assets.sources.edges.source:EdgesConfig",
    "events": "graphmill.assets.sources.generated.events:EventsConfig",
    "npz": "graphmill.assets.sources.npz.source:NpzConfig",
    "ogb": "graphmill.assets.sources.ogb.source:OgbConfig",
    "pyg": "graphmill.assets.sources.pyg.source:PygConfig",
    "python-environment": "graphmill.assets.sources.python_environment.source:PythonEnvironmentConfig",
    "ratings": "graphmill.assets.sources.generated.ratings:RatingsConfig",
    "rmat": "graphmill.assets.sources.generated.generators:RmatConfig",
    "sbm": "graphmill.assets.sources.generated.generators:SbmConfig",
    "tables": "graphmill.assets.sources.tables.source:TypedTablesConfig",
    "typed-python-environment": "graphmill.assets.sources.python_environment.typed:TypedEnvironmentConfig",
    "typed_citation": "graphmill.assets.sources.generated.typed_citation:TypedCitationConfig",
}
"""Source of graphmill -> its class of `[graph]`."""


def source_names() -> list[str]:
    """Returns the names of all sources, sorted."""
    return sorted({each.name for each in _entries()})


def config_class(source: str) -> type[GraphConfig]:
    """Returns the class of a source: `config_class("npz")` has the keys of `[graph]` with `source = "npz"`.

    Raises:
        InputError: the source is unknown or has several classes, or the package that brings it is not sound.
    """
    found = [each for each in _entries() if each.name == source]
    if not found:
        hint = did_you_mean(source, names := source_names(), "'")
        raise InputError(f"source = '{source}' is not known{hint}", f"give one of: {', '.join(names)}")
    if len(found) > 1:
        brought = " and by ".join(_bringer(each) for each in found)
        others = " or ".join(each.dist.name for each in found if each.dist is not None)
        raise InputError(f"source = '{source}' is brought by {brought}", f"uninstall {others}")
    return found[0].load() if found[0].dist is None else _of_package(found[0])


def sound_classes() -> Iterator[type[GraphConfig]]:
    """Yields the classes of all sources but those of packages that are not sound."""
    for name in source_names():
        try:
            yield config_class(name)
        except InputError:
            continue


def code_digest(source: str) -> dict[str, str]:
    """Returns the digest of a package's version and of the module of its class, by a name; none for a source of graphmill."""
    (entry,) = [each for each in _entries() if each.name == source]
    if entry.dist is None:
        return {}
    file = sys.modules[config_class(source).__module__].__file__
    code = f"{entry.dist.name} {entry.dist.version} {sha256_file(Path(file)) if file else ''}"
    return {"package": hashlib.sha256(code.encode()).hexdigest()}


def _entries() -> tuple[EntryPoint, ...]:
    return _found(tuple(sys.path))


@lru_cache(maxsize=1)
def _found(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Returns the entries of graphmill and of the packages on Python's path."""
    own = (EntryPoint(name, value, GROUP) for name, value in SOURCES.items())
    return (*own, *entry_points(group=GROUP))


def _bringer(entry: EntryPoint) -> str:
    return "graphmill" if entry.dist is None else f"the package {entry.dist.name} {entry.dist.version}"


def _of_package(entry: EntryPoint) -> type[GraphConfig]:
    """Imports the class of a package's source.

    Raises:
        InputError: the import fails, or the entry point names something else than the class of a source.
    """
    assert entry.dist is not None, "a source of graphmill"
    where, name = f"source = '{entry.name}' of {_bringer(entry)}", entry.dist.name
    try:
        found = entry.load()
    except Exception as error:
        problem = f"{where}: importing {entry.value} failed: {type(error).__name__}: {error}"
        raise InputError(problem, f"correct the package, or uninstall it: pip uninstall {name}") from error
    if wrong := _why_no_source(found, entry.name):
        raise InputError(f"{where}: {entry.value} {wrong}", f"correct {name}: docs/own-sources.md has an example")
    return found


def _why_no_source(found: object, name: str) -> str:
    """Returns why an object is not the class of a source; "" if it is one."""
    if not (isinstance(found, type) and issubclass(found, GraphConfig)):
        return "is not a subclass of GraphConfig"
    if "__dataclass_fields__" not in vars(found):
        return "is not a dataclass: write @dataclass(frozen=True, kw_only=True) above it"
    if {each.name: each.default for each in dataclasses.fields(found)}["source"] != name:
        return f"has another name: write source: str = field(default='{name}', metadata=FEATURES_TOO)"
    if lacking := [each for each in dir(found) if getattr(getattr(found, each), "__isabstractmethod__", False)]:
        return f"has no method {' and no method '.join(lacking)}"
    try:
        typing.get_type_hints(found)
    except Exception as error:
        return f"has keys whose types cannot be read: {type(error).__name__}: {error}"
    return ""
