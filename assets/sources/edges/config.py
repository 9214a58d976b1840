"""The keys of a `[graph]` table with `source = "edges"`; assets/sources/edges/source.py reads the tables."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.assets.sources.edge_marks import node_time_problems
from graphmill.assets.sources.encoders.rules import Encode, rules_of, spelled
from graphmill.assets.sources.interface import FEATURES_ONLY, FEATURES_TOO, TableConfig
from graphmill.assets.sources.readers.part_files import expand
from graphmill.assets.sources.readers.row_order import stated_order
from graphmill.assets.sources.readers.text_layout import TextForm, text_problems
from graphmill.assets.sources.spooled import SpooledConfig
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.assets.tasks.labels import CLASSES, OF_LABEL, ON_EDGES, Kind
from graphmill.kernels.errors import InputError

MOST_FEATURES = 1 << 24
"""Features are columns of dense rows. Larger numbers are hashes or ids, which have to be numbered first."""

UNSAMPLED = ("/label_column", "/name_column")
"""Ends of the names of digests of columns that decide neither edges nor splits."""

LATER: Mapping[str, Any] = {**FEATURES_TOO, "hashed": "unless default"}
"""Metadata of keys that were added to a released table."""

SPLIT_KEYS = ("split_column",)
DRAWN_KEYS = ("label_column", "labels", "no_label", "seed", "train_ratio", "valid_ratio")
"""Keys that decide the training nodes, with a column of splits and without."""

HELD_OUT = ("valid_edges", "test_edges")
"""Keys of edge tables whose links are not trained on."""


def drawn_keys(kind: Kind) -> tuple[str, ...]:
    """Returns the keys that decide the training nodes of a drawn split."""
    return DRAWN_KEYS if kind == CLASSES else (*DRAWN_KEYS, "label_columns", "task")


NAMES = {"edges": ("src", "dst"), "nodes": ("id",), "feature_entries": ("node", "feature", "value")}
"""Names of the first columns of files without a line of names."""


OF_CLASSES = {"labels": "numbers", "no_label": ()}
"""Keys that say how a column of classes is written, with their defaults."""


def label_problems(keys: Any, kind: Kind) -> Iterator[KeyProblem]:
    """Yields keys of labels that exclude each other, or that another kind of task has.

    Args:
        keys: keys of node tables; values in a mapping are those of a file with mistakes.
    """

    def given(key: str) -> Any:
        return keys.get(key) if isinstance(keys, Mapping) else getattr(keys, key)

    if given("label_columns") is not None and given("label_column") is not None:
        yield KeyProblem("label_columns label_column", "label_columns beside label_column: give one of them")
    columns = given("label_columns")
    if columns in ((), [], ""):
        yield KeyProblem("label_columns", "label_columns names no column: name one, or leave the key out")
    named = [columns] if isinstance(columns, str) else [*(columns or ())]
    for name in dict.fromkeys(each for each in named if named.count(each) > 1):
        yield KeyProblem("label_columns", f"label_columns names {name!r} twice: name each column once")
    for role in ("id_column", "split_column", "name_column"):
        if given(role) in named:
            yield KeyProblem("label_columns", f"label_columns names {given(role)!r}, which is {role}: leave it out")
    if kind == CLASSES and given("label_columns") is not None:
        text = 'label_columns is for [task] kind = "multilabel" or "regression"'
        yield KeyProblem("label_columns", f"{text}: name the column of classes as label_column")
    for key, default in OF_CLASSES.items() if kind not in (CLASSES, *ON_EDGES) else ():
        if (value := given(key)) not in (None, default):
            value = list(value) if isinstance(value, tuple) else value
            text = f"{key} = {value!r} is for classes: of [task] kind = {kind!r} an empty field or NaN is unknown"
            yield KeyProblem(key, f"{text}; leave it out")


OF_EDGES = ("source_column", "target_column", "weight_column", "type_column", "time_column")
"""Keys that name a column of edge tables."""
OF_NODES = ("id_column", "label_column", "split_column", "name_column")
"""Keys that name a column of node tables."""


def shared_columns(keys: Any) -> Iterator[KeyProblem]:
    """Yields a problem for each key of an edge table that names a column which another key names, too."""
    named: dict[str, str] = {}
    for key in OF_EDGES:
        column = getattr(keys, key)
        if column is not None and (other := named.setdefault(column, key)) != key:
            text = f"{key} = '{column}' is also the {other}: name the column of each"
            yield KeyProblem(f"{key} {other}", text)


def given_splits(*tables: Any) -> tuple[LinkSplit, ...]:
    """Returns the splits of links that the keys of edge tables allow."""
    timed = any(each.time_column is not None for each in tables)
    return ("random", *(["time"] if timed else []), *(["given"] if any(each.split_column for each in tables) else []))  # pyright: ignore[reportReturnType]


def link_problems(
    given: Callable[[str], str | None], marks: LinkSplit | None, *, linked: bool, of: str = ""
) -> Iterator[KeyProblem]:
    """Yields keys of an edge table that split links, beside a task that does not read them.

    Args:
        given: function key -> its value, of `time_column` and, of links, `split_column`.
        marks: the split that the task reads.
        of: beginning of the keys' names in problems, "edges.NAME." of a table in its own section.
    """
    for key, split in (("time_column", "time"), *([("split_column", "given")] if linked or of else [])):
        if (column := given(key)) is not None and marks != split:
            how = f"set split = '{split}' in [task], with kind = 'links', or leave it out"
            how = f"set before = 'seed' in [sampling], or {how.removeprefix('set ')}" if split == "time" else how
            named = f"{'graph.' if of else ''}{of}{key}"
            yield KeyProblem(f"{of}{key}", f"{named} = {column!r} has no effect: {how}")


@dataclass(frozen=True, kw_only=True)
class EdgeTableKeys(SpooledConfig):
    """The keys of `[graph]` with `source = "edges"`."""

    # names this kind of source
    source: str = field(default="edges", metadata=FEATURES_TOO)
    # edge tables: a file, a pattern such as "edges-*.parquet", or a list of these; relative to the pipeline file
    edges: Path | tuple[Path, ...] = field(metadata={"hashed": False})
    # node tables, likewise; None takes the nodes that edges name
    nodes: Path | tuple[Path, ...] | None = field(default=None, metadata={"hashed": False})
    # of links: edge tables of links to validate and to test, with the columns of `edges`, for split = "given" of [task]
    valid_edges: Path | tuple[Path, ...] | None = field(default=None, metadata={"hashed": False})
    test_edges: Path | tuple[Path, ...] | None = field(default=None, metadata={"hashed": False})
    # columns of the edge tables
    source_column: str = "src"
    target_column: str = "dst"
    weight_column: str | None = None
    type_column: str | None = None
    # times of the edges, numbers or dates: for `before` of [sampling], and of links for split = "time" of [task]
    time_column: str | None = field(default=None, metadata={"hashed": "unless default"})
    # column of the node tables with the time of each seed, for `before` of [sampling]; empty for nodes of no part
    node_time_column: str | None = field(default=None, metadata={"hashed": "unless default"})
    # column of the node tables that holds the ids of the edge tables
    id_column: str = field(default="id", metadata=FEATURES_TOO)
    # "auto" takes the type in a Parquet file, and integers if a CSV column begins with them
    id_type: Literal["auto", "integer", "text"] = field(default="auto", metadata=FEATURES_TOO)
    # feature columns: one name (of a column of lists, or of numbers), a pattern such as "f*", or a list of names, side by side
    features: str | tuple[str, ...] | None = field(default=None, metadata=FEATURES_ONLY)
    # features that are mostly zero, in place of feature columns: tables with one row per node and feature that is not zero
    feature_entries: Path | tuple[Path, ...] | None = field(default=None, metadata={"hashed": False})
    # their columns: node, feature and, if there are values, value; None takes these names, and `value` if it exists
    entry_columns: tuple[str, ...] | None = field(default=None, metadata=FEATURES_ONLY)
    # number of features, if features are numbers; None = the largest + 1
    num_features: int | None = field(default=None, metadata=within(1, MOST_FEATURES, **FEATURES_ONLY))
    # `encode` of the feature table that is read; not a key of [graph]
    encode: Encode = field(default=None, metadata={"key": False, "hashed": False})
    # column of the classes; of labels of edges a column of the edge tables: the class of each edge, or its number, empty if unknown
    label_column: str | None = None
    # columns of several labels or of numbers, for [task] kind = "multilabel" and "regression": one name (of a column of lists, too), a
    # pattern such as "topic_*", or a list of names
    label_columns: str | tuple[str, ...] | None = field(default=None, metadata={"hashed": "unless default"})
    # labels are class numbers from 0, empty or -1 unknown; or class names, numbered in ascending order
    labels: Literal["numbers", "names"] = "numbers"
    # values of label_column that mean no label, in any case: ["unknown", "n/a"], or [255]
    no_label: tuple[str | int, ...] = field(default=(), metadata={"hashed": "unless default"})
    # holds train, valid, test, or nothing; a column of the node tables, of links one of the edge tables for split = "given" of [task]
    split_column: str | None = None
    # a text for each node, kept in nodes.parquet
    name_column: str | None = None
    # without node tables: the ids are 0 to num_nodes - 1, whether edges name them or not
    num_nodes: int | None = None
    # edges with an end that is missing, or that has no row in the node tables, are refused, or left out and counted
    dangling: Literal["refuse", "drop"] = field(default="refuse", metadata={"hashed": "unless default"})
    # separates the fields of text files; None finds it in the first line
    delimiter: str | None = field(default=None, metadata=FEATURES_TOO)
    # whether text files begin with names of columns, or a list of the keys whose files do; None: where the first line begins with no number
    header: bool | tuple[Literal["edges", "nodes", "feature_entries"], ...] | None = field(default=None, metadata=LATER)
    # beginning of the lines above a table that are left out, "" for none; None finds # and %
    comment: str | None = field(default=None, metadata=LATER)

    tasks = ("classes", "multilabel", "regression", *OF_LABEL)
    example: ClassVar[Mapping[str, Any]] = {"edges": "edges.parquet", "nodes": "nodes.parquet"}
    takes_edge_rows = True

    @property
    def weighted(self) -> bool:
        """Whether edges get weights."""
        return self.weight_column is not None

    @property
    def typed(self) -> bool:
        """Whether edges have relations: if a column of them is named."""
        return self.type_column is not None

    @property
    def never(self) -> frozenset[str]:
        """The attributes that a graph of these keys certainly lacks; nodes have no types."""
        return super().never | {"node_types"}

    @property
    def edge_roles(self) -> tuple[str, ...]:
        """The keys that name a column of the edge tables."""
        labelled = ("label_column",) if self.task in OF_LABEL else ()
        return OF_EDGES if self.links is None else (*OF_EDGES, "split_column", *labelled)

    @property
    def node_roles(self) -> tuple[str, ...]:
        """The keys that name a column of the node tables."""
        roles = (*OF_NODES, "node_time_column")
        return roles if self.links is None else tuple(key for key in roles if key not in self.edge_roles)

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """The splits of edges that the tables give."""
        found = given_splits(self)
        return found if "given" in found or not self.split_files else (*found, "given")

    @property
    def split_files(self) -> bool:
        """Whether files of their own hold the links to validate or to test."""
        return any(getattr(self, key) is not None for key in HELD_OUT)

    def part_of_files(self) -> dict[Path, int]:
        """Returns file -> 0 train, 1 valid, 2 test, of edge tables with files of their own for each part.

        Raises:
            InputError: a pattern names no file, or two parts have a file in common.
        """
        found: dict[Path, int] = {}
        for part, key in enumerate(("edges", *HELD_OUT)):
            for path in expand(self._named(key), key):
                if path in found:
                    raise InputError(f"{path}: {key} names a file of another part", "name each file once")
                found[path] = part
        return found

    @property
    def unlinked(self) -> Self:
        """The same tables for a task of nodes."""
        if self.links is None:
            return self
        given = dict.fromkeys((*HELD_OUT, "time_column", "split_column", "label_column"))
        return replace(self, task=CLASSES, links=None, times=False, **given)  # pyright: ignore[reportArgumentType]

    @property
    def untimed(self) -> Self:
        """The same tables for a sampling without times."""
        return replace(self, times=False, time_column=None, node_time_column=None)

    @property
    def node_timed(self) -> bool:
        """Whether nodes may have times, as of which they are seeds."""
        return self.node_time_column is not None

    @property
    def time_key(self) -> tuple[str, str | None]:
        """The key of the times of nodes, and the column that it names."""
        return "node_time_column", self.node_time_column

    @property
    def columns_from(self) -> Mapping[str, str]:
        """The columns of the edge tables, and those of the node tables if there are some."""
        found = {"in_degree": self.target_column, "out_degree": self.source_column}
        if self.nodes is not None:
            found |= {"node_id": self.id_column, "original_id": self.id_column, "name": self.name_column}
            if isinstance(column := self.unlinked.label_columns or self.unlinked.label_column, str):
                found |= {"labels": column, "class": column}
        return {name: column for name, column in found.items() if column is not None}

    def problems(self) -> Iterator[KeyProblem]:
        """Yields keys that need node tables or tables of entries, and those that exclude each other."""
        yield from super().problems()
        yield from self._entry_problems()
        if self.nodes is None:
            for key in ("features", "label_column", "label_columns", "split_column", "name_column", "node_time_column"):
                if key in (*self.node_roles, "features", "label_columns") and getattr(self, key) is not None:
                    text = f"{key} = {getattr(self, key)!r} needs node tables: give `nodes`, or leave it out"
                    yield KeyProblem(f"{key} nodes", text)
            if self.dangling == "drop" and self.num_nodes is None:
                text = 'dangling = "drop" needs nodes: without node tables each id that an edge names is a node'
                yield KeyProblem("dangling nodes", f"{text}; give `nodes` or num_nodes, or leave it out")
        elif self.num_nodes is not None:
            text = f"num_nodes = {self.num_nodes} beside node tables: leave it out, node tables have all nodes"
            yield KeyProblem("num_nodes nodes", text)
        if self.num_nodes is not None and (self.num_nodes < 1 or self.id_type == "text"):
            text = f"num_nodes = {self.num_nodes} with {self.id_type} ids: give a count of integer ids"
            yield KeyProblem("num_nodes id_type", text)
        yield from label_problems(self, self.task)
        yield from text_problems(self.delimiter, self.comment)
        yield from shared_columns(self)
        yield from node_time_problems(
            "node_time_column", self.node_time_column, times=self.times, linked=self.links is not None
        )
        yield from link_problems(partial(getattr, self), self.marks, linked=self.links is not None)
        if self.cut is not None and self.split_column is not None:
            yield KeyProblem(
                "split_column", "split_column has no effect with [task] split = 'time': leave one of them out"
            )
        for key in ("label_column", "label_columns") if self.links is not None else ():
            if getattr(self, key) is not None and key not in self.edge_roles:
                yield KeyProblem(key, f"{key} has no effect with [task] kind = {self.task!r}: leave it out")
        if self.task in OF_LABEL and self.label_column is None:
            text = f"[task] kind = {self.task!r} learns labels of edges: name their column, label_column in [graph]"
            yield KeyProblem("edges", text)
        for key in HELD_OUT if self.marks != "given" else ():
            if getattr(self, key) is not None:
                how = "set split = 'given' in [task], with kind = 'links', or leave it out"
                yield KeyProblem(key, f"{key} has no effect: {how}")
        if self.links is not None and self.split_files and self.split_column is not None:
            yield KeyProblem("split_column", "split_column beside files of each part: give one of them")

    def _entry_problems(self) -> Iterator[KeyProblem]:
        if self.feature_entries is None:
            for key in ("entry_columns", "num_features"):
                if getattr(self, key) is not None:
                    text = f"{key} = {getattr(self, key)!r} needs feature_entries: give the tables of entries"
                    yield KeyProblem(f"{key} feature_entries", text)
            return
        if self.features is not None:
            yield KeyProblem("features", f"features = {self.features!r} beside feature_entries: give one of them")
        columns = self.entry_columns
        if columns is not None and (len(columns) not in (2, 3) or len(set(columns)) != len(columns)):
            how = 'name node, feature and, if there are values, value: ["node", "feature"]'
            yield KeyProblem("entry_columns", f"entry_columns = {list(columns)}: {how}")

    @property
    def id_section(self) -> str:
        """The table of the pipeline file whose `id_type` may say that ids are text; "" if they cannot be."""
        return "[graph]" if self.num_nodes is None else ""

    def row_order(self, node_type: str | None) -> str:
        """Returns the order of the node tables, or without them that of the ids."""
        if self.nodes is not None:
            return stated_order(self.patterns("nodes"), "nodes")
        return super().row_order(node_type) if self.num_nodes is not None else "nodes in the order of their ids"

    def brings_split(self) -> bool:
        """Tells whether there is a column of splits."""
        return self.split_column is not None

    def feature_keys(self, table: TableConfig) -> dict[str, Any]:
        """Returns the keys that decide the rows; without node tables the edges decide the nodes."""
        found = super().feature_keys(table)
        for key in ("header", "comment"):
            if found[key] is None:
                del found[key]
        if table.file is not None:
            del found["features"]
        if self.feature_entries is None or table.file is not None:
            for key in ("entry_columns", "num_features"):
                del found[key]
        if self.nodes is None:
            found |= {key: getattr(self, key) for key in ("source_column", "target_column", "num_nodes")}
        if self.encode is not None:
            found |= {"encode": spelled(rules_of(self.encode))} | {key: getattr(self, key) for key in self.fit_keys}
        return found

    @property
    def fit_keys(self) -> tuple[str, ...]:
        """The keys that decide which rows encoders are fitted on; () without encoders."""
        if self.encode is None:
            return ()
        drawn = self.split_column is None or self.links is not None
        return drawn_keys(self.unlinked.task) if drawn else SPLIT_KEYS

    def sampled(self, raw: Mapping[str, str]) -> tuple[Self, Mapping[str, str]]:
        """Returns them without labels and names if a column has the splits; otherwise splits are drawn from the labels."""
        if self.split_column is None or self.task in OF_LABEL:  # the edges that have labels are split
            return self, raw
        unlabelled = replace(self, label_column=None, label_columns=None, labels="numbers", no_label=(), task=CLASSES)
        config = replace(unlabelled, name_column=None)
        return config, {name: digest for name, digest in raw.items() if not name.endswith(UNSAMPLED)}

    def for_table(self, table: TableConfig) -> Self:
        """Returns the configuration that reads a feature table from its columns.

        Raises:
            InputError: there are encoders and no columns of features.
        """
        found = self
        if table.columns is not None:
            found = replace(self, features=table.columns, feature_entries=None, entry_columns=None, num_features=None)
        if table.encode is not None and (found.nodes is None or found.features is None):
            raise InputError("encode without columns of features", "name them: `features` in [graph], or `columns`")
        return replace(found, encode=table.encode, encodes=table.encode is not None)

    def text_form(self, key: str) -> TextForm:
        """Returns the form, as configured, of the text files of `edges`, `nodes` or `feature_entries`."""
        header = self.header if self.header is None or isinstance(self.header, bool) else key in self.header
        return TextForm(self.delimiter, header, self.comment, NAMES[key])

    def patterns(self, key: str) -> tuple[Path, ...]:
        """Returns the patterns of `edges`, with those of links that are held out, `nodes` or `feature_entries`."""
        held_out = HELD_OUT if key == "edges" else ()
        return tuple(pattern for each in (key, *held_out) for pattern in self._named(each))

    def _named(self, key: str) -> tuple[Path, ...]:
        value = getattr(self, key)
        return () if value is None else (value,) if isinstance(value, Path) else tuple(value)
