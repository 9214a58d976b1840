"""What every graph source shares: its configuration, what it returns, and the list of sources.

A source is a module with five names:

- `Config`: a frozen dataclass, a subclass of `GraphConfig`, whose fields are the keys of the flat `[graph]` table;
- `raw(config)`: content digests of what the graph is made from outside, `{name: sha256}`; a generator has none;
- `raw_features(config, table)`: the same of what one feature table is made from;
- `opened(config, tables, folder, execution, progress)`: a context manager that opens what is outside, once for the graph and for the
  feature tables that are wanted, and yields an `OpenSource`;
- `survey(config)`: what `graphmill inspect` prints, from headers and counts; nothing is built.

The modules are imported when their source is asked for, so reading a pipeline file costs only what it names.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.sources.feature_blocks import FeatureBlock
    from assets.sources.spool import EdgeSpool

SOURCES: Mapping[str, str] = {
    "citation": "assets.sources.generators.citation:CitationConfig",
    "dgl": "assets.sources.dgl.source:DglConfig",
    "edges": "assets.sources.edges.source:EdgesConfig",
    "npz": "assets.sources.npz.source:NpzConfig",
    "ogb": "assets.sources.ogb.source:OgbConfig",
    "python-environment": "assets.sources.python_environment.source:PythonEnvironmentConfig",
    "rmat": "assets.sources.generators.rmat:RmatConfig",
    "sbm": "assets.sources.generators.sbm:SbmConfig",
}
"""Source name -> the module that reads it, and its class of `[graph]`."""

GENERATORS = ("citation", "rmat", "sbm")
"""Sources that read nothing from outside."""


Split = TypeVar("Split", int, str)

FEATURES_ONLY: Mapping[str, Any] = {"hashed": False, "features": True}
"""Metadata of a key that decides feature rows and nothing of the graph."""

FEATURES_TOO: Mapping[str, Any] = {"features": True}
"""Metadata of a key that decides the graph and feature rows."""


@dataclass(frozen=True, kw_only=True)
class GraphConfig:
    """The keys of `[graph]` that every source has; a source's own `Config` adds its keys.

    A `Path` says where to read, not what is read: it stays out of the artifact's version, which the content digests of
    `raw` enter instead. A field with `metadata={"key": False}` is no key of `[graph]`. Most keys decide the graph. One with
    `metadata=FEATURES_ONLY` decides feature rows and nothing of the graph, one with `metadata=FEATURES_TOO` decides both.

    Raises:
        InputError: a value is outside its range.
    """

    # names the kind of source, see assets.sources.registry.SOURCES
    source: str = field(metadata=FEATURES_TOO)
    # the seed of the pipeline, for splits and generators; not a key of [graph]
    seed: int = field(default=0, metadata={"key": False})
    # adds the reverse of every edge
    undirected: bool = True
    # "merge" stores an edge that occurs several times once
    duplicates: Literal["merge", "keep"] = "merge"
    # a model adds its own self term, so the graph holds no self-loops unless they are asked for
    self_loops: Literal["drop", "keep"] = "drop"
    # "row" divides each feature row by its sum of absolute values; the features are then float32, or as [features] says
    normalize: Literal["none", "row"] = field(default="none", metadata=FEATURES_ONLY)
    # shares of the labelled nodes of each class in the random split; the rest is for testing. Unused where the source
    # has splits
    train_ratio: float = 0.6
    valid_ratio: float = 0.2

    def __post_init__(self) -> None:
        """Checks the shared keys."""
        if self.seed < 0 or self.seed >= 2**64:
            raise InputError(f"seed = {self.seed} is outside [0, 2^64)", "give a non-negative integer")
        require_choice("duplicates", self.duplicates, ("merge", "keep"))
        require_choice("self_loops", self.self_loops, ("drop", "keep"))
        require_choice("normalize", self.normalize, ("none", "row"))
        train, valid = self.train_ratio, self.valid_ratio
        if not (train > 0 and valid >= 0 and train + valid <= 1):
            raise InputError(
                f"train_ratio = {train} and valid_ratio = {valid} do not split the nodes",
                "give train_ratio > 0, valid_ratio >= 0 and a sum of at most 1",
            )

    @property
    def weighted(self) -> bool:
        """Whether edges get weights."""
        return False

    def brings_split(self) -> bool:
        """Tells whether the source has a split of its own, as far as it can be told without reading it; otherwise one is drawn."""
        return False

    def without_unused(self) -> GraphConfig:
        """Returns the configuration in which keys that decide nothing have their defaults, so that they re-version nothing."""
        if not self.brings_split():
            return self
        unused = ("seed", "train_ratio", "valid_ratio")
        return replace(self, **{each.name: each.default for each in fields(self) if each.name in unused})  # pyright: ignore[reportArgumentType]

    def by_split(self) -> tuple[GraphConfig, ...]:
        """Returns a configuration for each split that is asked for. A source whose files hold several splits has a key `split`; a list
        there asks for one graph per split."""
        chosen = getattr(self, "split", None)
        return tuple(replace(self, split=each) for each in chosen) if isinstance(chosen, tuple) else (self,)  # pyright: ignore[reportCallIssue]

    def feature_keys(self, table: TableConfig) -> dict[str, Any]:
        """Returns key -> value of everything in `[graph]` that decides the rows of a feature table.

        Args:
            table: the feature table.
        """
        return {each.name: getattr(self, each.name) for each in fields(self) if each.metadata.get("features")}

    def sampled(self, raw: Mapping[str, str]) -> tuple[GraphConfig, Mapping[str, str]]:
        """Returns configuration and raw digests without what decides neither edges nor splits.

        Args:
            raw: the digests of what the graph is made from.
        """
        return self, raw

    def for_table(self, table: TableConfig) -> GraphConfig:
        """Returns the configuration that reads a feature table: with its columns, where it names columns.

        Raises:
            InputError: the source has no columns that can be named.
        """
        if table.columns is not None:
            raise InputError(
                f"columns = {table.columns!r}, but source = '{self.source}' has one feature table", "leave columns out"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """The keys of `[features]` and of each `[features.NAME]`: one feature table of the graph's nodes.

    Raises:
        InputError: keys contradict one another.
    """

    # type of the stored values; "as stored" keeps that of the source where it is float16, float32, float64, int8 or uint8
    dtype: Literal["as stored", "float16", "bfloat16", "float32"] = "as stored"
    # columns of the node tables (source = "edges") or name in ndata (source = "dgl"), in place of those that [graph] names
    columns: str | tuple[str, ...] | None = None
    # a .npy or .safetensors file with the rows, in place of the source's; in the order of the node tables, or of the node ids
    file: Path | None = None
    # the tensor of a .safetensors file that holds several
    tensor: str | None = None
    # the node type whose rows the file has; the nodes of other types have no features
    node_type: str | None = None

    def __post_init__(self) -> None:
        """Checks the choice, and what needs a file."""
        require_choice("dtype", self.dtype, ("as stored", "float16", "bfloat16", "float32"))
        if self.file is None:
            for key in ("tensor", "node_type"):
                if getattr(self, key) is not None:
                    raise InputError(f"{key} = {getattr(self, key)!r} needs a file", "give `file`, or leave it out")
        elif self.columns is not None:
            raise InputError(f"columns = {self.columns!r} beside a file", "give one of them")


class OpenSource(Protocol):
    """A source whose files are open. What the graph and its feature tables both need is read once.

    Attributes:
        num_nodes: number of nodes N.
        node_types: name -> number of nodes, in the order of their ids; empty where nodes have no types.
        node_of_row: i64[N] node ids of the rows of the node tables, None where they are in order.
    """

    @property
    def num_nodes(self) -> int: ...  # noqa: D102
    @property
    def node_types(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def node_of_row(self) -> Array | None: ...  # noqa: D102

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the rows of a feature table that the source itself has; none where it has no features.

        Raises:
            InputError: what is wrong with them, here or when their slices are read.
        """
        ...

    def graph(self, progress: Progress) -> RawGraph:
        """Reads everything but features.

        Raises:
            InputError: what is wrong with it.
        """
        ...


@dataclass(kw_only=True)
class RawGraph:
    """A source's graph before it is compressed, without its features.

    Attributes:
        num_nodes: number of nodes N.
        src, dst: ids[M], the edges as the source has them, src -> dst, in any order; empty where `spool` holds them.
        spool: the edges of a source that may not fit in memory, with their attributes.
        memory_bytes: working memory for sorting the spool.
        labels: i32[N], -1 for unknown.
        class_names: C names, label order.
        splits: train, valid and test node ids, or None: stratified at random from the seed.
        node_names: N names, or None.
        original_ids: N ids as the source wrote them (a sequence or Polars series), or None where they are 0 to N-1.
        node_type_ptr: i64[T+1] where nodes have types: ranges of ids; else None.
        numbers: numbers that the source puts into the summary (files skipped, edges outside the graph).
    """

    num_nodes: int
    labels: Array
    class_names: Sequence[str]
    src: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    dst: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    spool: EdgeSpool | None = None
    memory_bytes: int = 0
    splits: tuple[Array, Array, Array] | None = None
    node_names: Sequence[str] | None = None
    original_ids: Any = None
    node_type_ptr: Array | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)


def require_choice(key: str, value: Any, choices: Sequence[str]) -> None:
    """Raises InputError unless `value` is one of `choices`, with the nearest one."""
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise InputError(f"{key} = '{value}' is not known{hint}", f"give one of: {', '.join(choices)}")


def require_splits(split: int | str | tuple[int | str, ...] | None) -> None:
    """Raises InputError unless the key `split` is one split or a list of distinct ones; numbers of splits count from 0."""
    chosen = split if isinstance(split, tuple) else (split,)
    if not chosen:
        raise InputError("split = [] names no split", "give a list such as [0, 1, 2], or leave the key out")
    negative = [each for each in chosen if isinstance(each, int) and each < 0]
    if negative:
        raise InputError(f"split = {negative[0]} is negative", "count from 0")
    if len(set(chosen)) != len(chosen):
        raise InputError(f"split = {list(chosen)} names a split twice", "name each split once")


def one_split(split: Split | tuple[Split, ...] | None) -> Split | None:
    """Returns the key `split` of a configuration that is built: lists are taken apart before (`GraphConfig.by_split`)."""
    assert not isinstance(split, tuple), "a graph has one split"
    return split


def source_module(source: str) -> ModuleType:
    """Imports the module of a source.

    Raises:
        InputError: the source is not known.
    """
    require_choice("source", source, tuple(SOURCES))
    return importlib.import_module(SOURCES[source].partition(":")[0])


def config_class(source: str) -> type[GraphConfig]:
    """Returns the configuration class of a source: `config_class("npz")` has the keys of `[graph]` with `source =
    "npz"`.

    Raises:
        InputError: the source is not known.
    """
    return getattr(source_module(source), SOURCES[source].partition(":")[2])
