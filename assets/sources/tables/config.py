"""The keys of a `[graph]` table with `source = "tables"`; assets/sources/tables/source.py reads the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.sources.edge_marks import node_time_problems
from graphmill.assets.sources.edges.config import (
    OF_EDGES,
    OF_NODES,
    SPLIT_KEYS,
    UNSAMPLED,
    drawn_keys,
    given_splits,
    label_problems,
    link_problems,
    shared_columns,
)
from graphmill.assets.sources.encoders.rules import Encode, Rules, encode_problems, rules_of, spelled
from graphmill.assets.sources.interface import FEATURES_TOO, TableConfig
from graphmill.assets.sources.readers.row_order import stated_order
from graphmill.assets.sources.readers.text_layout import TextForm, text_problems
from graphmill.assets.sources.spooled import SpooledConfig
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.assets.tasks.labels import CLASSES, OF_LABEL
from graphmill.kernels.errors import InputError, did_you_mean

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Names of node types and relations, which are joined by / in the names of edge types."""

OF_TABLE = ("features", "label_column", "label_columns", "split_column", "name_column", "time_column")
"""Keys of a node type that name columns of its table."""

OF_NODE_TYPE = (*OF_NODES, "time_column")
"""Keys of a node type that name one column of its table."""

OF_RELATION = (*OF_EDGES, "split_column", "label_column")
"""Keys of a relation that name columns of its table."""

OF_SPLIT = ("split_column", "label_column", "label_columns", "labels", "no_label")
"""Keys of a node type that decide its training nodes."""

ID_KEYS = ("num_nodes", "id_column", "id_type", "delimiter", "header", "comment")
"""Keys of a node type that decide the number and the order of its nodes."""


def _given(table: NodeTable | RelationTable | Mapping[str, Any], key: str) -> Any:
    """Returns the value of a key of a table, which is what the file says if it has mistakes; None without one."""
    if isinstance(table, Mapping):
        return value if isinstance(value := table.get(key), str) else None
    return getattr(table, key)


@dataclass(frozen=True, kw_only=True)
class TableKeys(Checked):
    """Keys of the table of a node type and of that of a relation."""

    # Tables: a file, a folder, a pattern or a list of these, relative to the pipeline file.
    path: Path | tuple[Path, ...] | None
    # Separates the fields of text files; None finds it in the first line.
    delimiter: str | None = None
    # Whether text files begin with names of columns; None: if the first line does not begin with a number.
    header: bool | None = None
    # Beginning of the lines above a table that are left out, "" for none; None finds # and %.
    comment: str | None = None

    names: ClassVar[tuple[str, ...]]
    """Names of the first columns of a text file without names."""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields wrong forms of text."""
        yield from text_problems(self.delimiter, self.comment)

    @property
    def files(self) -> tuple[Path, ...]:
        """The patterns of the tables; empty without a table."""
        return () if self.path is None else (self.path,) if isinstance(self.path, Path) else self.path

    def form(self, section: str) -> TextForm:
        """Returns the form of its text files; `section` is nodes.NAME or edges.NAME."""
        return TextForm(self.delimiter, self.header, self.comment, self.names, f"[graph.{section}]")


@dataclass(frozen=True, kw_only=True)
class NodeTable(TableKeys):
    """`[graph.nodes.NAME]`: the nodes of one type."""

    # Tables with a row per node.
    path: Path | tuple[Path, ...] | None = field(default=None, metadata={"hashed": False})
    # In place of a table: the ids are 0 to num_nodes - 1.
    num_nodes: int | None = field(default=None, metadata=within(1, 2**40))
    # Column of the ids, which are unique within the type.
    id_column: str = "id"
    # "auto" takes the type in a Parquet file, and integers if a CSV column begins with them.
    id_type: Literal["auto", "integer", "text"] = "auto"
    # Feature columns: one name (of a column of lists, or of numbers), a pattern such as "f*", or a list of names, side by side.
    features: str | tuple[str, ...] | None = field(default=None, metadata={"hashed": False})
    # "auto", or column or pattern -> encoder, before those of `encode` in [features].
    encode: Encode = field(default=None, metadata={"hashed": False})
    # Column of the classes; one node type of a graph has it.
    label_column: str | None = None
    # Columns of several labels or of numbers, for [task] kind = "multilabel" and "regression": one name (of a column of lists, too), a
    # pattern such as "topic_*", or a list of names.
    label_columns: str | tuple[str, ...] | None = field(default=None, metadata={"hashed": "unless default"})
    # Labels are class numbers from 0, empty or -1 unknown; or class names, numbered in ascending order.
    labels: Literal["numbers", "names"] = "numbers"
    # Values of label_column that mean no label, in any case: ["unknown", "n/a"], or [255].
    no_label: tuple[str | int, ...] = field(default=(), metadata={"hashed": "unless default"})
    # Holds train, valid, test, or nothing.
    split_column: str | None = None
    # A text for each node, kept in nodes.parquet.
    name_column: str | None = None
    # Time of each seed, for `before` of [sampling]; empty for nodes of no part.
    time_column: str | None = field(default=None, metadata={"hashed": "unless default"})

    names = ("id",)

    @property
    def time_key(self) -> tuple[str, str | None]:
        """The key of the times of nodes, and the column that it names."""
        return "time_column", self.time_column

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the lack of nodes, keys that need a table, and wrong forms of text."""
        if self.path is None and self.num_nodes is None:
            yield KeyProblem("path", "has no nodes: give `path`, its tables, or num_nodes = N for the ids 0 to N - 1")
        elif self.path is not None and self.num_nodes is not None:
            text = f"num_nodes = {self.num_nodes} beside path: leave it out, the tables have all nodes"
            yield KeyProblem("num_nodes path", text)
        for key in OF_TABLE if self.path is None else ():
            if getattr(self, key) is not None:
                yield KeyProblem(key, f"{key} = {getattr(self, key)!r} needs a table: give `path`, or leave it out")
        yield from encode_problems(self.encode)
        if self.encode is not None and self.features is None:
            yield KeyProblem("encode", "encode needs `features`, the names of the columns")
        if self.path is None and self.id_type == "text":
            yield KeyProblem("id_type", f"id_type = 'text' with num_nodes = {self.num_nodes}: leave it out")
        yield from super().problems()


@dataclass(frozen=True, kw_only=True)
class RelationTable(TableKeys):
    """`[graph.edges.NAME]`: the edges of one relation."""

    # Tables with a row per edge.
    path: Path | tuple[Path, ...] = field(metadata={"hashed": False})
    # Node types of the two ends.
    source_type: str
    target_type: str
    # Columns with the ids of the two ends.
    source_column: str = "src"
    target_column: str = "dst"
    # Column of the weights; if only other relations have one, the weights are 1.
    weight_column: str | None = None

    # Edges with an end that is missing, or that has no row in the table of its node type, are refused, or left out and counted.
    dangling: Literal["refuse", "drop"] = field(default="refuse", metadata={"hashed": "unless default"})
    # Column of relations, for a table of several: each value is one, called NAME.VALUE.
    type_column: str | None = field(default=None, metadata={"hashed": "unless default"})
    # Times of the edges, numbers or dates: for `before` of [sampling], and of links for split = "time" of [task].
    time_column: str | None = field(default=None, metadata={"hashed": "unless default"})
    # Of links: train, valid, test, or nothing, for split = "given" of [task].
    split_column: str | None = field(default=None, metadata={"hashed": "unless default"})
    # Of [task] kind = "edge_classes" and "edge_regression": the class of each edge, as number or name, or its number; empty if unknown.
    label_column: str | None = field(default=None, metadata={"hashed": "unless default"})

    names = ("src", "dst")

    def problems(self) -> Iterator[KeyProblem]:
        """Yields columns that two keys name, and wrong forms of text."""
        yield from super().problems()
        yield from shared_columns(self)


@dataclass(frozen=True, kw_only=True)
class TypedTableKeys(SpooledConfig):
    """The keys of `[graph]` with `source = "tables"`."""

    # Names this kind of source.
    source: str = field(default="tables", metadata=FEATURES_TOO)
    # [graph.nodes.NAME]: the node types, in the order of their ids.
    nodes: Mapping[str, NodeTable]
    # [graph.edges.NAME]: the relations, in the order of their edge types.
    edges: Mapping[str, RelationTable]
    # `encode` of the feature table that is read; not a key of [graph].
    encode: Encode = field(default=None, metadata={"key": False, "hashed": False})
    # Names of node types and of relations in their order, which a mapping is hashed without; not a key of [graph].
    order: tuple[tuple[str, ...], ...] = field(init=False, metadata={"key": False})

    tasks = ("classes", "multilabel", "regression", *OF_LABEL)
    takes_edge_rows = True

    def __post_init__(self) -> None:
        """Takes the order of the mappings, and checks them."""
        object.__setattr__(self, "order", (tuple(self.nodes), tuple(self.edges)))
        super().__post_init__()

    def problems(self) -> Iterator[KeyProblem]:
        """Yields names with other characters, relations of unknown node types, and several types with labels."""
        yield from super().problems()
        for key, named in (("nodes", self.nodes), ("edges", self.edges)):
            if not named:
                yield KeyProblem(key, f"{key} names no table: write [graph.{key}.NAME]")
            for name in named:
                if not NAME.fullmatch(name):
                    text = f"graph.{key}.{name}: a name has letters, digits, - and _, and begins with a letter or digit"
                    yield KeyProblem(key, text)
        for name, relation in self.edges.items():
            for role in ("source_type", "target_type"):
                given = _given(relation, role)
                if given is not None and given not in self.nodes:
                    text = f'graph.edges.{name}.{role} = "{given}" is not a node type{did_you_mean(given, self.nodes)}'
                    known = ", ".join(self.nodes) or "none"
                    yield KeyProblem(f"edges.{name}.{role}", f"{text}; the node types are: {known}")
        keys = ("label_column", "label_columns")
        labelled = [name for name, table in self.nodes.items() if any(_given(table, key) is not None for key in keys)]
        for name, table in self.nodes.items():
            for key, text in label_problems(table, self.task):
                places = " ".join(f"nodes.{name}.{each}" for each in key.split())
                yield KeyProblem(places, f"graph.nodes.{name}.{text}")
        for name, relation in self.edges.items():
            linked = self.links is not None
            yield from link_problems(partial(_given, relation), self.marks, linked=linked, of=f"edges.{name}.")
        unread, asked = (*keys, "split_column"), f"kind = {self.task!r}"
        if self.links is None:
            unread, asked = unread[-1:] if self.cut is not None else (), "split = 'time'"
        for name, table in self.nodes.items():
            for key in unread:
                if _given(table, key) is not None:
                    text = f"graph.nodes.{name}.{key} has no effect with [task] {asked}: leave it out"
                    yield KeyProblem(f"nodes.{name}.{key}", text)
        for name, table in self.nodes.items():
            yield from node_time_problems(
                f"nodes.{name}.time_column",
                _given(table, "time_column"),
                times=self.times,
                linked=self.links is not None,
            )
        for name, relation in self.edges.items() if self.times and "time" in self.link_splits else ():
            if _given(relation, "time_column") is None:
                text = f"graph.edges.{name} has no time_column, and `before` of [sampling] needs the times of all edges"
                yield KeyProblem(f"edges.{name}", f"{text}: name it")
        yield from self._edge_label_problems()
        for name in labelled[1:]:
            text = f"graph.nodes.{name}.label_column: the node type {labelled[0]} has labels already, and classes would mix"
            yield KeyProblem(f"nodes.{name}.label_column", f"{text}: keep those of one type")

    def _edge_label_problems(self) -> Iterator[KeyProblem]:
        """Yields labels of edges beside another task, of several relations, or of none if the task learns them."""
        labelled = [name for name, relation in self.edges.items() if _given(relation, "label_column") is not None]
        if self.task in OF_LABEL and not labelled:
            text = f"[task] kind = {self.task!r} learns labels of edges: name their column, label_column in one [graph.edges.NAME]"
            yield KeyProblem("edges", text)
        for name in labelled if self.task not in OF_LABEL else labelled[1:]:
            how = "set kind = 'edge_classes' or 'edge_regression' in [task], or leave it out"
            if self.task in OF_LABEL:
                how = f"the relation {labelled[0]} has labels already, and they would mix: keep those of one relation"
            yield KeyProblem(f"edges.{name}.label_column", f"graph.edges.{name}.label_column has no effect: {how}")

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """The splits of edges that the tables of relations give."""
        return given_splits(*(each for each in self.edges.values() if isinstance(each, RelationTable)))

    @property
    def node_timed(self) -> bool:
        """Whether nodes may have times, as of which they are seeds."""
        return any(_given(each, "time_column") is not None for each in self.nodes.values())

    @property
    def weighted(self) -> bool:
        """Whether edges get weights."""
        return any(relation.weight_column is not None for relation in self.edges.values())

    @property
    def typed(self) -> bool:
        """Whether edges have relations: unless there is one node type and one relation."""
        several = len(self.edges) > 1 or any(each.type_column is not None for each in self.edges.values())
        return len(self.nodes) > 1 or several

    @property
    def never(self) -> frozenset[str]:
        """The attributes that a graph of these tables certainly lacks."""
        featured = self.typed and all(table.features is not None for table in self.nodes.values())
        return super().never | ({"featureless"} if featured else set())

    def row_order(self, node_type: str | None) -> str:
        """Returns the order of the tables of a node type, or of all types in turn."""
        if node_type is None:
            return "; ".join(f"{name}: {self.row_order(name)}" for name in self.nodes)
        files = self.nodes[node_type].files if node_type in self.nodes else ()
        return stated_order(files, f"nodes.{node_type}") if files else super().row_order(node_type)

    def brings_split(self) -> bool:
        """Tells whether a node type has a column of splits."""
        return any(table.split_column is not None for table in self.nodes.values())

    def feature_keys(self, table: TableConfig) -> dict[str, Any]:
        """Returns the keys that decide the rows: those of the ids of all node types, in their order, and of the features."""
        keys = ID_KEYS if table.file is not None else (*ID_KEYS, "features")
        nodes = {name: {key: getattr(each, key) for key in keys} for name, each in self.nodes.items()}
        found = super().feature_keys(table) | {"nodes": nodes, "node_types": self.order[0]}
        if table.file is not None or not self.fit_keys:
            return found
        of_types = [key for key in self.fit_keys if key in OF_SPLIT]
        for name, each in self.nodes.items():
            nodes[name] |= {"encode": spelled(self.rules(name))} | {key: getattr(each, key) for key in of_types}
        return found | {key: getattr(self, key) for key in self.fit_keys if key not in OF_SPLIT}

    def for_table(self, table: TableConfig) -> Self:
        """Returns the configuration that reads a feature table by its encoders.

        Raises:
            InputError: the table names columns, or has encoders, and no node type has features.
        """
        super().for_table(replace(table, encode=None))
        if table.encode is not None and all(each.features is None for each in self.nodes.values()):
            raise InputError("encode, but no node type has features", "name columns: `features` in [graph.nodes.NAME]")
        return replace(self, encode=table.encode, encodes=table.encode is not None)

    def rules(self, name: str) -> Rules:
        """Returns the encoders of a node type: its own before those of the feature table."""
        own = self.nodes[name]
        return () if own.features is None else [*rules_of(own.encode), *rules_of(self.encode)]

    @property
    def fit_keys(self) -> tuple[str, ...]:
        """The keys that decide which rows encoders are fitted on; () without encoders."""
        encoded = any(self.rules(name) for name in self.nodes)
        if not encoded or self.brings_split():
            return SPLIT_KEYS if encoded else ()
        return drawn_keys(self.task)

    def sampled(self, raw: Mapping[str, str]) -> tuple[Self, Mapping[str, str]]:
        """Returns them without labels and names if a column has the splits; otherwise splits are drawn from the labels."""
        if not self.brings_split():
            return self, raw
        unlabelled = {
            "label_column": None,
            "label_columns": None,
            "labels": "numbers",
            "no_label": (),
            "name_column": None,
        }
        nodes = {name: replace(table, **unlabelled) for name, table in self.nodes.items()}  # pyright: ignore[reportArgumentType]
        left = {name: digest for name, digest in raw.items() if not name.endswith(UNSAMPLED)}
        return replace(self, nodes=nodes, task=CLASSES), left
