"""The interface of graph sources: their keys, and what they give.

A source is one class: a frozen dataclass, a subclass of `GraphConfig`, whose fields are the keys of `[graph]` and whose methods read the
graph. assets/sources/registry.py finds the class by its name, those of installed packages too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.sources.encoders.rules import Encode, encode_problems
from graphmill.assets.sources.splits import split_key_problems
from graphmill.assets.sources.task_table import LINK_SPLITS, LinkSplit, TaskTable
from graphmill.assets.storage.files.digests import sha256_file
from graphmill.assets.storage.names.upstream import wrong_asset_key
from graphmill.assets.tasks.labels import CLASSES, LINKS, OF_LABEL, Kind
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.sources.candidates import Given
    from graphmill.assets.sources.directions import Directions
    from graphmill.assets.sources.edge_marks import EdgeMarks
    from graphmill.assets.sources.features.blocks import FeatureBlock
    from graphmill.assets.sources.spool import EdgeSpool
    from graphmill.assets.sources.survey import Survey


FEATURES_ONLY: Mapping[str, Any] = {"hashed": False, "features": True}
"""Metadata of a key that decides only feature rows."""

FEATURES_TOO: Mapping[str, Any] = {"features": True}
"""Metadata of a key that decides the graph and feature rows."""


@dataclass(frozen=True, kw_only=True)
class GraphConfig(Checked):
    """The keys of `[graph]` that every source has, and the methods of a source; a subclass adds its keys and reads the graph.

    A `Path` names a place, not its content: it stays out of the artifact's version, which the content digests of `raw` enter instead. A
    field with `metadata={"key": False}` is not a key of `[graph]`. Most keys decide the graph. One with `metadata=FEATURES_ONLY` decides
    only feature rows, one with `metadata=FEATURES_TOO` decides both.

    Attributes:
        generated: whether everything comes from the keys, and nothing from outside.
        inspected: whether `graphmill inspect` looks for mistakes in the content.
        example: keys of `[graph]` in a pipeline file that `graphmill new` writes.
        tasks: the kinds of tasks whose labels the source gives.
        gives_candidates: whether the source may have candidates that links are ranked among.
        takes_edge_rows: whether edges get ids, by which rows of edges are found.
        has_edge_rows: whether the source may have rows of edges of its own.
    """

    # names the kind of source, see graphmill.assets.sources.registry
    source: str = field(metadata=FEATURES_TOO)
    # the seed of the pipeline, for splits and generators; not a key of [graph]
    seed: int = field(default=0, metadata=within(0, 2**64 - 1, key=False))
    # adds the reverse of every edge
    undirected: bool = True
    # "merge" stores an edge that occurs several times once
    duplicates: Literal["merge", "keep"] = "merge"
    # what a model learns of a node, from [task]; not a key of [graph]
    task: Kind = field(default=CLASSES, metadata={"key": False, "hashed": "unless default"})
    # the table [task] if edges are predicted; not a key of [graph]
    links: TaskTable | None = field(default=None, metadata={"key": False, "hashed": "unless default"})
    # the table [task] if nodes are split by their times; not a key of [graph]
    cut: TaskTable | None = field(default=None, metadata={"key": False, "hashed": "unless default"})
    # whether edges and seeds have times, for `before` of [sampling]; not a key of [graph]
    times: bool = field(default=False, metadata={"key": False, "hashed": "unless default"})
    # columns that the feature tables of the pipeline read beside those that [graph] names; not a key of [graph]
    feature_columns: tuple[str, ...] = field(default=(), metadata={"key": False, "hashed": False})
    # whether a feature table of the pipeline has the key encode, which `for_table` reads; not a key of [graph]
    encodes: bool = field(default=False, metadata={"key": False, "hashed": False})
    # whether the pipeline has rows of edges ([features.edges]), which are found by edge ids; not a key of [graph]
    edge_rows: bool = field(default=False, metadata={"key": False, "hashed": "unless default"})
    # a model adds its own self term, so the graph holds no self-loops unless the key says "keep"
    self_loops: Literal["drop", "keep"] = "drop"
    # "row" divides each feature row by its sum of absolute values; the features are then float32, or the type that [features] names
    normalize: Literal["none", "row"] = field(default="none", metadata=FEATURES_ONLY)
    # shares of the labelled nodes of each class in the random split; the rest is for testing. Unused if the source has splits
    train_ratio: float = 0.6
    valid_ratio: float = 0.2
    # keys of assets of your own Dagster project that come first, such as "shop/edges"
    after: tuple[str, ...] = field(default=(), metadata={"hashed": False})

    remedy = ""
    generated: ClassVar[bool] = False
    inspected: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {}
    tasks: ClassVar[tuple[Kind, ...]] = ("classes",)
    gives_candidates: ClassVar[bool] = False
    takes_edge_rows: ClassVar[bool] = False
    has_edge_rows: ClassVar[bool] = False

    def files(self) -> Mapping[str, Path]:
        """Returns name -> file that the source reads; the names do not say where the files are."""
        return {}

    def raw(self, table: TableConfig | None) -> Mapping[str, str]:
        """Returns name -> SHA-256 of the external content that the graph is made from, or a feature table if one is given.

        Raises:
            InputError: a file is missing or unreadable.
        """
        return {name: sha256_file(path) for name, path in self.files().items()}

    @abstractmethod
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> AbstractContextManager[OpenSource]:
        """Opens the external content, once for the graph and the wanted feature tables.

        Args:
            execution: number of threads, `execution.threads`; no byte depends on it.

        Raises:
            InputError: the content is missing or not sound.
        """

    @abstractmethod
    def survey(self) -> Survey:
        """Returns the survey that `graphmill inspect` prints, from headers and counts; nothing is built.

        Raises:
            InputError: the content is missing or unreadable.
        """

    def edge_matrix(self) -> tuple[int, int, Any]:
        """Returns number, columns and type of the source's own rows of edges, for a source that may have some (`has_edge_rows`)."""
        raise NotImplementedError

    def problems(self) -> Iterator[KeyProblem]:
        """Yields shares that do not split the nodes, and the problems of the key `split`, see `by_split`."""
        train, valid = self.train_ratio, self.valid_ratio
        if not (train > 0 and valid >= 0 and train + valid <= 1):
            text = f"train_ratio = {train} and valid_ratio = {valid} do not split the nodes"
            yield KeyProblem(
                "train_ratio valid_ratio", f"{text}: give train_ratio > 0, valid_ratio >= 0 and a sum of at most 1"
            )
        if self.links is not None and self.links.split not in self.link_splits:
            text = f"split = {self.links.split!r}, but [graph] gives the edges no {LINK_SPLITS[self.links.split]}"
            yield KeyProblem("source", f"[task] {text} (docs/own-data.md#links), or draw the split: split = 'random'")
        if self.links is not None and self.links.source_candidates and not self.gives_candidates:
            how = "name a file of candidates, or leave it out"
            yield KeyProblem(
                "source", f"[task] source_candidates = true, but source = {self.source!r} has no candidates: {how}"
            )
        if self.task not in (*self.tasks, LINKS):
            text = (
                f"kind = {self.task!r}, but source = {self.source!r} gives labels for {' and '.join(self.tasks)} alone"
            )
            yield KeyProblem("source", f"[task] {text}: take another source (docs/own-data.md), or another kind")
        seeds_lack = "nodes" if self.links is None and not self.node_timed else ""
        if self.times and (lacking := "edges" if "time" not in self.link_splits else seeds_lack):
            text = f"[sampling] before = 'seed', but [graph] gives the {lacking} no times (docs/own-data.md#times)"
            yield KeyProblem("source", f"{text}: name them, or leave `before` out")
        elif self.times and self.links is not None and self.links.split == "given":
            text = "[sampling] before = 'seed' asks for times of edges, and [task] split = 'given' for their parts"
            yield KeyProblem("source", f"{text}: set split = 'time' or 'random'")
        if self.cut is not None and not self.times:
            text = "[task] split = 'time' of nodes reads the times of seeds, which [sampling] before = 'seed' asks for"
            yield KeyProblem("source", f"{text}: set it, or leave split out")
        yield from split_key_problems(getattr(self, "split", None))
        yield from _after_problems(self.after)

    @property
    def node_timed(self) -> bool:
        """Whether nodes may have times, as of which they are seeds."""
        return False

    @property
    def untold_times(self) -> bool:
        """Whether the source tells times of edges and seeds that [sampling] does not ask for."""
        return False

    @property
    def marks(self) -> LinkSplit | None:
        """What the edges bring: "time", for the split of links or for `before` of [sampling], or "given"; None if they bring nothing."""
        if self.times:
            return "time"
        return None if self.links is None or self.links.split == "random" else self.links.split

    @property
    def marked(self) -> bool:
        """Whether edges bring something for the task: what splits them, or labels."""
        return (self.links is not None and self.marks is not None) or self.task in OF_LABEL

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """The splits of edges that a graph of these keys may have: drawn, by the times of edges, or as the source gives them."""
        return ("random",)

    @property
    def loaded(self) -> Mapping[str, Path]:
        """Key of each asset of the user's own project whose table is read -> the file that keeps the table."""
        return {}

    @property
    def weighted(self) -> bool:
        """Whether edges get weights."""
        return False

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that edges get, as far as the keys tell: of weights, edge_types, edge_ids."""
        return ("weights",) if self.weighted else ()

    @property
    def never(self) -> frozenset[str]:
        """The attributes that a graph of these keys certainly lacks: of weights, edge_types, node_types, featureless (node types)."""
        return frozenset(("weights", "edge_types", "node_types"))

    @property
    def columns_from(self) -> Mapping[str, str]:
        """Column of the graph's table of nodes -> column of the source that decides it, for a source of tables."""
        return {}

    def width_bounds(self) -> Mapping[str, tuple[float, float]]:
        """Returns node type -> fewest and most columns of its features, also of data with mistakes; empty if only `survey` tells widths."""
        return {}

    def counts_reverses(self, num_types: int) -> bool:
        """Tells whether edges that the source has in both directions count twice, since reverse ones are added and do not merge with them.

        Args:
            num_types: number of relations, 0 for a graph without.
        """
        return self.undirected and self.duplicates == "keep"

    def brings_split(self) -> bool:
        """Tells whether the source has a split of its own, as far as that is known without reading it; otherwise one is drawn."""
        return False

    def without_unused(self) -> GraphConfig:
        """Returns the configuration with defaults for unused keys, so that these change no version."""
        unused = ("seed", "train_ratio", "valid_ratio") if self.brings_split() and self.cut is None else ()
        if self.links is not None:  # whose split has ratios of its own
            drawn = self.generated or self.links.split != "given"
            unused = ("train_ratio", "valid_ratio", *(() if drawn else ("seed",)))
        return replace(self, **{each.name: each.default for each in fields(self) if each.name in unused})  # pyright: ignore[reportArgumentType]

    def by_split(self) -> tuple[GraphConfig, ...]:
        """Returns a configuration for each split of the key `split`, which sources with several splits have; a list means a graph each."""
        chosen = getattr(self, "split", None)
        return tuple(replace(self, split=each) for each in chosen) if isinstance(chosen, tuple) else (self,)  # pyright: ignore[reportCallIssue]

    def row_order(self, node_type: str | None) -> str:
        """Returns the order of the rows of an array that lies beside the source, in words.

        Args:
            node_type: the type of the nodes that the rows are about; None for all nodes.

        Raises:
            InputError: nothing states it.
        """
        return "row i is node i"

    def feature_keys(self, table: TableConfig) -> dict[str, Any]:
        """Returns key -> value of all keys of `[graph]` that decide the rows of a feature table."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.metadata.get("features")}

    def sampled(self, raw: Mapping[str, str]) -> tuple[GraphConfig, Mapping[str, str]]:
        """Returns the configuration and raw digests that decide edges and splits."""
        return self, raw

    def for_table(self, table: TableConfig) -> GraphConfig:
        """Returns the configuration that reads a feature table: with its columns, if it names columns.

        Raises:
            InputError: the source has no named columns.
        """
        if table.columns is not None:
            problem = f"columns = {table.columns!r}, but source = '{self.source}' has one feature table"
            raise InputError(problem, "leave columns out")
        if table.encode is not None:
            problem = f"encode, but the features of source = '{self.source}' are arrays without names of columns"
            raise InputError(problem, 'leave encode out, or give tables: source = "edges" or "tables"')
        return self


@dataclass(frozen=True, kw_only=True)
class TableConfig(Checked):
    """The keys of `[features]` and of each `[features.NAME]`: one feature table of the graph's nodes."""

    # type of the stored values; "as stored" keeps that of the source if it is float16, float32, float64, int8 or uint8
    dtype: Literal["as stored", "float16", "bfloat16", "float32"] = "as stored"
    # columns of the node tables (source = "edges") or name of data (source = "dgl", "pyg"), in place of those that [graph] names
    columns: str | tuple[str, ...] | None = None
    # "auto", or column or pattern -> encoder, by its name or as a table with options: {"city" = "onehot"}
    encode: Encode = None
    # a .npy or .safetensors file with the rows, in place of the source's; in the order of the node tables, or of the node ids
    file: Path | None = None
    # the tensor of a .safetensors file that holds several
    tensor: str | None = None
    # the node type whose rows the file has; the nodes of other types have no features
    node_type: str | None = None
    # keys of assets of your own Dagster project that come before these features
    after: tuple[str, ...] = ()

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields keys that need a file, or exclude one, and mistakes in `encode`."""
        yield from _after_problems(self.after)
        yield from encode_problems(self.encode)
        if self.file is None:
            for key in ("tensor", "node_type"):
                if getattr(self, key) is not None:
                    yield KeyProblem(key, f"{key} = {getattr(self, key)!r} needs a file: give `file`, or leave it out")
        elif self.columns is not None:
            yield KeyProblem("columns file", f"columns = {self.columns!r} beside a file: give one of them")
        if self.file is not None and self.encode is not None:
            yield KeyProblem("encode file", "encode beside a file, whose columns have no names: give one of them")


class OpenSource(Protocol):
    """A source whose files are open. Data that both the graph and its feature tables need are read once.

    Attributes:
        node_types: name -> number of nodes, in the order of their ids; empty if nodes have no types.
        node_of_row: i64[N] node ids of the rows of the node tables, None if they are in order.
    """

    @property
    def num_nodes(self) -> int: ...  # noqa: D102
    @property
    def node_types(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def node_of_row(self) -> Array | None: ...  # noqa: D102

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the rows of a feature table that the source itself has; none if it has no features.

        Raises:
            InputError: the rows are not sound, here or when their slices are read.
        """
        ...

    def graph(self, progress: Progress) -> RawGraph:
        """Reads everything except features; raises InputError if the graph is not sound."""
        ...


@dataclass(kw_only=True)
class RawGraph:
    """A source's graph before it is compressed, without its features.

    Attributes:
        src, dst: ids[M], the edges as the source has them, src -> dst, in any order; empty if `spool` holds them.
        spool: the edges of a source that may not fit in memory, with their attributes.
        memory_bytes: working memory for sorting the spool.
        labels: labels of N nodes of the task's kind (assets/tasks/labels.py).
        class_names: names of the classes, labels or targets, in their order.
        splits: train, valid and test node ids, or None: stratified at random from the seed.
        original_ids: N ids as the source wrote them (a sequence or Polars series), or None if they are 0 to N-1.
        node_type_ptr: i64[T+1] ranges of ids of the node types; None if nodes have no types.
        numbers: numbers that the source puts into the summary (files skipped, edges outside the graph).
        unread: phrases about the contents that neither the graph nor a feature table of the pipeline reads.
        remarks: sentences about what the content looks like where that is something else than the keys say.
        edge_marks: what splits the edges; None unless [task] asks for a split by time or a given one, or [sampling] for times.
        node_times: f64[N], the time of each node as a seed, NaN where it is not known; None unless [sampling] asks for times.
        candidates: what links are ranked among in addition to all nodes, if [task] asks for that of the source.
        directions: samples of the edges of each relation; None if it does not matter whether they come in both directions.
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
    unread: Sequence[str] = ()
    remarks: Sequence[str] = ()
    directions: Directions | None = None
    edge_marks: EdgeMarks | None = None
    node_times: Array | None = None
    candidates: Sequence[Given] = ()


def _after_problems(after: tuple[str, ...]) -> Iterator[KeyProblem]:
    """Yields the texts that are no asset keys."""
    for wrong in filter(None, map(wrong_asset_key, after)):
        yield KeyProblem("after", f"after: {wrong}")
