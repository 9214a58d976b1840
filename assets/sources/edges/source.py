"""Graphs in tables: edges, and optionally nodes, in Parquet or CSV files of any size.

    edge tables      one row per edge: source_column, target_column; optionally weight_column, type_column
    node tables      one row per node: id_column; optionally feature columns or one column of lists, label_column or
                     label_columns, split_column, name_column. Without node tables the nodes are those that edges name
    entries          one row per node and feature that is not zero, in place of feature columns (assets/sources/edges/entries.py)

Ids are integers or of any other type with an order (assets/sources/edges/numbering.py). docs/own-data.md has the exact
layouts and a pipeline file for each.

Peak memory, N nodes, F features of w bytes:

    memory_limit + 512 MiB + 100 N + 2 x 131,072 x (F w + 64) + the text of ids that are not integers and of names

DuckDB takes 6/10 of memory_limit while tables are read; it spills into the staging folder. Edges of plain text go past
it (assets/sources/readers/plain_text.py). The edges then lie on disk and are sorted in half of memory_limit
(assets/graph/edge_sort.py says when a node of very high degree needs more). 512 MiB are Python and its libraries, 100 N
the id map, labels, degrees and the node table. Disk while building, with M edges: 24 to 75 M bytes for the sort
(undirected and with attributes: the larger), and as much as the tables if ids are not integers; beside the artifact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.assets.sources.edges.config import EdgeTableKeys
from graphmill.assets.sources.edges.edge_columns import Marking, type_names
from graphmill.assets.sources.edges.edge_tables import spool_edges, stage_edges
from graphmill.assets.sources.edges.entries import KEY, FeatureEntries, entry_columns
from graphmill.assets.sources.edges.mistakes import find_mistakes, told_at_once
from graphmill.assets.sources.edges.node_tables import label_columns, label_roles, read_nodes
from graphmill.assets.sources.edges.numbering import (
    Numbering,
    id_kind,
    locate,
    number_by_edges,
    number_by_nodes,
    original_ids,
    refuse_lost_rows,
)
from graphmill.assets.sources.edges.open_table import named_columns, open_table, unread_columns
from graphmill.assets.sources.edges.remarks import edge_remarks
from graphmill.assets.sources.edges.survey import looks_like_other_ends, looks_like_triples, survey_tables
from graphmill.assets.sources.encoders.columns import encoded_columns
from graphmill.assets.sources.encoders.rules import rule_digests, rules_of
from graphmill.assets.sources.encoders.training_rows import TrainingNodes, training_nodes, training_rows
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.interface import RawGraph, TableConfig
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.file_digests import left_out_digest, table_digests
from graphmill.assets.sources.readers.table_features import feature_columns, table_block
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.splits import checked
from graphmill.assets.sources.spool import EdgeSpool
from graphmill.assets.tasks.labels import CLASSES, OF_LABEL
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.sources.survey import Survey


class EdgesConfig(EdgeTableKeys):
    """`[graph]` with `source = "edges"`."""

    def raw(self, table: TableConfig | None) -> Mapping[str, str]:
        """Returns a digest of each table file's data: of the columns that are read if it is Parquet, else of the whole file.

        A feature table reads its columns and the ids of the nodes.
        """
        with self._told_at_once(), Duck(None, self.duck_bytes, 1) as duck:
            if table is not None:
                return _raw_features(self.for_table(table), table, duck)
            labels = _label_roles(self, duck)
            found = _digests(self, duck, "edges", self.edge_roles)
            if self.split_files:
                parts = str(sorted(self.part_of_files().values()))
                found["edges/parts"] = hashlib.sha256(parts.encode()).hexdigest()
            return found | _digests(self, duck, "nodes", self.node_roles, labels=labels, apart=True)

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[TablesSource]:
        """Opens the tables; their rows are read when they are first needed."""
        with self._told_at_once(), Duck(folder, self.duck_bytes, execution.threads) as duck:
            yield TablesSource(self, duck)

    def survey(self) -> Survey:
        """Describes the tables from their headers and counts; without node tables it counts the distinct ids."""
        with self._told_at_once():
            return survey_tables(self)

    def _told_at_once(self) -> AbstractContextManager[None]:
        return told_at_once(lambda: find_mistakes(self, TablesSource))


def _raw_features(config: EdgeTableKeys, table: TableConfig, duck: Duck) -> dict[str, str]:
    edges, nodes = _tables(config, duck)
    # The type of the ids decides their order.
    found = {"ids": hashlib.sha256(agree_on_ids(config, edges, nodes).encode()).hexdigest()}
    if config.feature_entries is not None and table.file is None:
        entries = open_table(config, duck, KEY)
        found |= _digests(config, duck, KEY, (), entry_columns(entries, config))
    if nodes is None:
        ends = ("source_column", "target_column")
        return found | ({} if config.num_nodes else _digests(config, duck, "edges", ends))
    read = config.features if table.file is None else None
    if read is None:
        return found | _digests(config, duck, "nodes", ("id_column",))
    names = feature_columns(nodes, read)
    roles = ("id_column", *(key for key in config.node_roles if key in config.fit_keys))
    labels = _label_roles(config, duck) if "label_columns" in config.fit_keys else {}
    found |= rule_digests(rules_of(config.encode))
    return found | left_out_digest(nodes, read, "nodes") | _digests(config, duck, "nodes", roles, names, labels)


def _label_roles(config: EdgeTableKeys, duck: Duck) -> dict[str, str]:
    if config.unlinked.task == CLASSES or config.nodes is None:
        return {}
    return label_roles(label_columns(open_table(config, duck, "nodes"), config, config.task))


def _tables(config: EdgeTableKeys, duck: Duck) -> tuple[TableFiles, TableFiles | None]:
    return open_table(config, duck, "edges"), None if config.nodes is None else open_table(config, duck, "nodes")


def _digests(
    config: EdgeTableKeys,
    duck: Duck,
    key: str,
    roles: Sequence[str],
    names: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    *,
    apart: bool = False,
) -> dict[str, str]:
    """Returns the digests of the files of `key`, see `table_digests`.

    Args:
        roles: keys of the configuration that name columns.
        names: columns without a role.
        labels: role -> column of several labels or of numbers.
    """
    chosen = named_columns(config, roles) | dict(labels or {})
    return table_digests(duck, config.patterns(key), key, config.text_form(key), chosen, names, apart=apart)


class TablesSource:
    """Edge and node tables; see `OpenSource`."""

    def __init__(self, config: EdgeTableKeys, duck: Duck):
        self.config, self.duck = config, duck
        self.node_types: Mapping[str, int] = {}
        self.edges, self.nodes = _tables(config, duck)

    @cached_property
    def numbering(self) -> Numbering:
        """The map from ids of the tables to node ids."""
        config, kind = self.config, self._kind
        if self.nodes is not None:
            return number_by_nodes(self.nodes, config.id_column, kind, config.id_type)
        if config.num_nodes is not None:
            if kind != "integer":
                raise InputError(f"num_nodes = {config.num_nodes}, but ids are {kind}", "leave num_nodes out")
            return Numbering(num_nodes=config.num_nodes)
        if kind != "integer":
            _ = self._staged
        return number_by_edges(self.edges, (config.source_column, config.target_column), kind)

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return self.numbering.num_nodes

    @property
    def node_of_row(self) -> Array | None:
        """Node ids of the rows of the node tables."""
        return self.numbering.node_of_row

    @property
    def num_edge_rows(self) -> int:
        """Number of rows of the edge tables."""
        return sum(self.edges.counts())

    @property
    def edge_relations(self) -> Sequence[tuple[str, int]]:
        """None: edges of several relations, if there are any, are mixed."""
        return ()

    def edge_blocks(self) -> Sequence[FeatureBlock]:
        """Returns nothing: columns of edge tables are not read as rows of edges."""
        return ()

    def nodes_of(self, ids: Array, node_type: str | None) -> tuple[Array, Array]:
        """Returns the nodes of ids; see `OwnIds`."""
        return self.numbering.of_numbers(ids)

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the feature columns of the node tables, or the entries."""
        config = self.config.for_table(table)
        if config.feature_entries is not None:
            return (self._entries,)
        features, num_nodes = config.features, self.num_nodes
        if self.nodes is None or features is None:
            return ()
        if config.encode is not None:
            columns = encoded_columns(self.nodes, features, config.encode)
            training = training_rows(self._training_nodes(config), 0, num_nodes, self.node_of_row)
            return (columns.block(0, num_nodes, self.node_of_row, training),)
        names = feature_columns(self.nodes, features)
        return (table_block(self.nodes, names, 0, num_nodes, self.node_of_row, features),)

    def _training_nodes(self, config: EdgeTableKeys) -> TrainingNodes | None:
        found = read_nodes(self.nodes, replace(config.unlinked, name_column=None), self.numbering, config.unlinked.task)
        return training_nodes(found.labels, found.splits, config)

    def graph(self, progress: Progress) -> RawGraph:
        """Numbers the nodes, reads the node tables except features, and spools the edges."""
        config, numbering = self.config, self.numbering
        staged = None if self._kind == "integer" else self._staged
        if numbering.staged:
            refuse_lost_rows(self.edges, (config.source_column, config.target_column), numbering.staged)
            if self.nodes is not None:
                refuse_lost_rows(self.nodes, (config.id_column,), numbering.staged)
        raw = read_nodes(self.nodes, config.unlinked, numbering, config.unlinked.task)
        if raw.splits is not None and self.nodes is not None:
            checked(raw.splits, raw.labels, f"{self.nodes.paths[0]}: column '{config.split_column}'")
        columns = config.columns(self._relations)
        watched = config.counts_reverses(len(self._relations))
        spool = EdgeSpool(
            self.duck.scratch,
            numbering.num_nodes,
            columns,
            undirected=config.undirected,
            watched=watched,
            marked=config.marked,
            labelled=config.task in OF_LABEL,
        )
        dangling = spool_edges(self.edges, config, self._relations, numbering, staged, spool, progress, self._marking)
        if spool.num_edges == 0:
            problem = "no edge has two ends with a node" if dangling.count else "the edge tables have no rows"
            raise InputError(f"{self.edges.paths[0]}: {problem}", "give a graph with at least one edge")
        keeps = config.duplicates == "keep"
        repeated = edge_remarks(self.edges, config.weight_column, spool.largest_weight, keeps=keeps)
        numbers = {"edge_types": config.stored_types(self._relations)} if self._relations else {}
        shared = {} if numbering.num_shared is None else {"num_ids_of_both_ends": numbering.num_shared}
        dropped = {"num_dropped_edges": dangling.count} if dangling.drop else {}
        return replace(
            raw,
            spool=spool,
            memory_bytes=config.memory_bytes // 2,
            original_ids=original_ids(self.duck, numbering, self._kind),
            numbers=numbers | shared | dropped,
            class_names=self._marking.classes or raw.class_names,
            edge_marks=spool.marks(lambda row: self.edges.place(*locate(self.edges.counts(), row))),
            unread=unread_columns(config, self.edges, self.nodes),
            remarks=[*dangling.remarks("edges"), *self._remarks(), *repeated],
        )

    def _remarks(self) -> list[str]:
        """Returns sentences about columns that are read as ends and look like something else."""
        if self.nodes is not None or self.config.num_nodes is not None:
            return []  # relations are not among the nodes, which is refused
        ends = self.config.source_column, self.config.target_column
        read = named_columns(self.config, ("weight_column", "type_column")).values()
        said = looks_like_triples(self.edges, *ends), looks_like_other_ends(self.edges, *ends, read)
        return [each for each in said if each]

    @cached_property
    def _entries(self) -> FeatureBlock:
        table = open_table(self.config, self.duck, KEY)
        return FeatureEntries(table, self.config, self.numbering, self._kind).block()

    @cached_property
    def _kind(self) -> str:
        return agree_on_ids(self.config, self.edges, self.nodes)

    @cached_property
    def _relations(self) -> list[str]:
        return type_names(self.edges, self.config.type_column) if self.config.type_column else []

    @cached_property
    def _marking(self) -> Marking:
        config, classes = self.config, list[str]()
        if config.task in OF_LABEL and (column := config.label_column) is not None:
            classes = type_names(self.edges, column, "label_column") if config.task == "edge_classes" else [column]
        return Marking(config.marks, config.task, classes)

    @cached_property
    def _staged(self) -> list[int]:
        """Number of rows of each file of DuckDB's table `staged`, which holds the edges to be joined with ids that are not integers."""
        edges, config, kind = self.edges, self.config, self._kind
        strict = config.id_type == "auto"
        sections = (config.id_section, config.id_section)
        kinds, stricts = (kind, kind), (strict, strict)
        return stage_edges(edges, config, self._relations, kinds, stricts, sections, self._marking)


def agree_on_ids(config: EdgeTableKeys, edges: TableFiles, nodes: TableFiles | None) -> str:
    """Returns "integer" or the SQL type of all three id columns; raises InputError if Parquet columns have different types."""
    found = {
        (edges, name): id_kind(edges, role, name, config.id_type)
        for role, name in (("source_column", config.source_column), ("target_column", config.target_column))
    }
    if nodes is not None:
        found[(nodes, config.id_column)] = id_kind(nodes, "id_column", config.id_column, config.id_type)
    typed = {kind: (table, name) for (table, name), kind in found.items() if not table.is_csv}
    if len(typed) > 1:
        shown = ", ".join(f"'{name}' of {table.paths[0].name} is {kind}" for kind, (table, name) in typed.items())
        problem = f"ids have different types: {shown}"
        raise InputError(problem, 'write them with one type, or set id_type = "text" in [graph]')
    if typed:
        return next(iter(typed))  # a CSV file has no types of its own
    return "integer" if set(found.values()) == {"integer"} else "VARCHAR"
