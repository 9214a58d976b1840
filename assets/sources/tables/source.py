"""Graphs of several node types and relations, in a table for each.

    [graph.nodes.NAME]   one row per node: id_column; optionally feature columns, label_column, split_column, name_column
    [graph.edges.NAME]   one row per edge: source_column, target_column; optionally weight_column

Node types are ranges of ids in the order of the pipeline file, relations are edge types in their order (assets/sources/typed_graph.py). Ids
are those of a type: within it nodes stand in ascending order of their ids (assets/sources/edges/numbering.py). A relation's ends are looked
up among the ids of its two node types, batch by batch: integers by bisection, others by a join on disk. docs/own-data.md has the layouts.

Peak memory, N nodes of all types, the widest features F of w bytes:

    memory_limit + 512 MiB + 100 N + 2 x 131,072 x (F w + 64) + the text of ids that are not integers and of names

None of it grows with the edges; the terms are those of assets/sources/edges/source.py. Disk while building, with M edges: 24 to 75 M bytes
for the sort and, while a relation is read whose ids are not integers, a copy of its columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.sources.edges.mistakes import told_at_once
from graphmill.assets.sources.edges.survey import describe_table
from graphmill.assets.sources.encoders.columns import sentinel_words
from graphmill.assets.sources.encoders.rules import require_used, rule_digests, rules_of
from graphmill.assets.sources.encoders.training_rows import training_nodes
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.interface import RawGraph, TableConfig
from graphmill.assets.sources.readers.duck import Duck, scratch_duck
from graphmill.assets.sources.tables.config import TypedTableKeys
from graphmill.assets.sources.tables.mistakes import find_mistakes, opened_tables, type_widths
from graphmill.assets.sources.tables.relation import ENDS
from graphmill.assets.sources.targets import joined_labels
from graphmill.assets.sources.typed_graph import Relation, TypedGraph, TypedSource, first_ids, survey_typed
from graphmill.kernels.errors import Attempts, InputError
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress
    from graphmill.assets.sources.survey import Survey


class TypedTablesConfig(TypedTableKeys):
    """`[graph]` with `source = "tables"`."""

    def raw(self, table: TableConfig | None) -> Mapping[str, str]:
        """Returns a digest of each table file's data: of the columns that are read if it is Parquet, else of the whole file.

        A feature table reads its columns and the ids of all nodes.
        """
        found: dict[str, str] = {}
        config = self if table is None else self.for_table(table)
        with self._told_at_once(), Duck(None, self.duck_bytes, 1) as duck:
            source = TypedTablesSource(config, duck)
            if table is None:
                for each in (*source.types.values(), *source.relations):
                    found |= each.digests()
                return found
            for each in source.types.values():
                # The type of the ids decides their order.
                found[f"ids/{each.name}"] = hashlib.sha256(each.kind.encode()).hexdigest()
                found |= each.feature_digests(config.fit_keys, with_rows=table.file is None)
                found |= rule_digests(config.rules(each.name)) if table.file is None else {}
        return found

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[TypedTablesSource]:
        """Opens the tables; their rows are read when they are first needed."""
        encode = next((each.encode for each in tables if each.encode is not None), self.encode)
        config = replace(self, encodes=self.encodes or encode is not None)
        told = replace(config, encode=encode)._told_at_once()
        with told, Duck(folder, self.duck_bytes, execution.threads) as duck:
            yield TypedTablesSource(config, duck)

    def survey(self) -> Survey:
        """Describes the tables from their headers and counts; ids, labels and edges are not read."""
        # The graph alone does not know the encoders of its feature tables.
        config = replace(self, encode="auto") if self.encodes and self.encode is None else self
        with self._told_at_once(), scratch_duck(self.duck_bytes, "inspect") as duck:
            source = TypedTablesSource(config, duck)
            node_types = {name: each.count() for name, each in source.types.items()}
            blocks: list[FeatureBlock] = []
            attempts = Attempts()
            for name, first in first_ids(node_types).items():
                blocks += attempts(source.types[name].surveyed, first, config.rules(name)) or []
            attempts(_require_used, config, source)
            attempts.settle()
            found = TypedGraph(
                where=_title(self),
                node_types=node_types,
                relations=source.edges(),
                blocks=blocks,
                labels=np.zeros(0, np.int32),
                splits=None,
                unread=source.unread(),
            )
            surveyed = survey_typed(found, self, {}, _contents(source, node_types))
            surveyed = replace(surveyed, notes=[*surveyed.notes, *source.sentinels()])
            # The widths of encoded types are bounds.
            return replace(surveyed, type_widths=()) if config.fit_keys else surveyed

    def width_bounds(self) -> Mapping[str, tuple[float, float]]:
        """Returns node type -> fewest and most columns of its features, as far as headers tell."""
        return type_widths(self)

    def _told_at_once(self) -> AbstractContextManager[None]:
        return told_at_once(lambda: find_mistakes(self))


class TypedTablesSource:
    """The tables of node types and relations; see `OpenSource`.

    Raises:
        InputError: all files that cannot be opened, and all columns that are missing or of a wrong type.
    """

    def __init__(self, config: TypedTableKeys, duck: Duck):
        self.config, self.duck, attempts = config, duck, Attempts()
        self.types, self.relations = opened_tables(config, duck, attempts)
        for each in (*self.types.values(), *self.relations):
            for _, check in each.column_checks():
                attempts(check)
        for each in self.relations:
            for role, name in zip(ENDS, each.ends, strict=True):
                if name in self.types:
                    attempts(each.require_kind, role, self.types[name])
        attempts.settle()

    @cached_property
    def node_types(self) -> dict[str, int]:
        """Name -> number of nodes, in the order of their ids."""
        return {name: each.numbering.num_nodes for name, each in self.types.items()}

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return sum(self.node_types.values())

    @cached_property
    def node_of_row(self) -> Array | None:
        """i64[N] node ids of the rows of all node tables, in the order of the types; None if all are in order."""
        if all(each.numbering.node_of_row is None for each in self.types.values()):
            return None
        parts = []
        for name, first in first_ids(self.node_types).items():
            rows = self.types[name].numbering.node_of_row
            parts.append((np.arange(self.node_types[name]) if rows is None else rows) + first)
        return np.concatenate(parts)

    @property
    def num_edge_rows(self) -> int:
        """Number of rows of the edge tables of all relations."""
        return sum(count for _, count in self.edge_relations)

    @property
    def edge_relations(self) -> Sequence[tuple[str, int]]:
        """Names and numbers of rows of the edge tables of all relations, in their order."""
        return [("/".join(relation.kind), relation.num_edges) for relation in self.edges()]

    def edge_blocks(self) -> Sequence[FeatureBlock]:
        """Returns nothing: columns of edge tables are not read as rows of edges."""
        return ()

    def nodes_of(self, ids: Array, node_type: str | None) -> tuple[Array, Array]:
        """Returns the nodes of ids within their type; see `OwnIds`."""
        if node_type is None and len(self.types) > 1:
            raise InputError("ids beside features are those of one node type", "set node_type in the [features] table")
        return self.types[node_type or next(iter(self.types))].numbering.of_numbers(ids)

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns a block for each node type with feature columns."""
        config, found, nodes = self.config.for_table(table), [], None
        if config.fit_keys:
            _require_used(config, self)
            facts = [each.facts(named=False) for each in self.types.values()]
            labels = joined_labels(config.task, [each.labels for each in facts])
            nodes = training_nodes(labels, _splits(facts, self.node_types), config)
        for name, first in first_ids(self.node_types).items():
            rows = self.types[name].numbering.node_of_row
            found += self.types[name].blocks(first, None if rows is None else rows + first, config.rules(name), nodes)
        return found

    def graph(self, progress: Progress) -> RawGraph:
        """Numbers the nodes, reads the node tables except features, and spools the edges."""
        config, facts = self.config, [each.facts() for each in self.types.values()]
        names = [each.class_names for each in facts if each.class_names] + [
            each.classes for each in self.relations if each.classes
        ]
        found = TypedGraph(
            where=_title(config),
            node_types=self.node_types,
            relations=self.edges(),
            blocks=(),
            labels=joined_labels(config.task, [each.labels for each in facts]),
            class_names=names[0] if names else (),
            splits=_splits(facts, self.node_types),
            node_names=_names(facts),
            node_times=_times(facts),
            original_ids=self._originals(),
            unread=self.unread(),
        )
        if not any(relation.num_edges for relation in found.relations):
            paths = ", ".join(str(each.table.paths[0]) for each in self.relations)
            raise InputError(f"{paths}: the edge tables have no rows", "give a graph with at least one edge")
        raw = TypedSource(found, config, self.duck.scratch, self.blocks).graph(progress)
        dropping = [each for each in self.relations if each.dangling.drop]
        told = [line for each in dropping for line in each.dangling.remarks(each.key)]
        dropped = {"num_dropped_edges": sum(each.dangling.count for each in dropping)} if dropping else {}
        return replace(raw, numbers={**raw.numbers, **dropped}, remarks=[*raw.remarks, *told])

    def edges(self) -> list[Relation]:
        """Returns the relations, whose edges are read when they are asked for."""
        how = {"weighted": self.config.weighted, "keeps": self.config.duplicates == "keep"}
        return [each.relation(*(self.types[name] for name in each.ends), **how) for each in self.relations]

    def unread(self) -> list[str]:
        """Returns phrases about the columns that no key names."""
        return [phrase for each in (*self.types.values(), *self.relations) for phrase in each.unread()]

    def sentinels(self) -> list[str]:
        """Returns sentences about numbers of feature columns that may mean a missing value."""
        found: list[str] = []
        for name, each in self.types.items():
            if each.table is not None:
                found += sentinel_words(each.table, each.feature_names, self.config.rules(name))
        return found

    def _originals(self) -> Any:
        """Returns the N ids of the tables, as text if one type's are text; None for one type whose ids are 0 to N-1."""
        import polars

        found = {name: each.originals() for name, each in self.types.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        whole = {name: np.arange(self.node_types[name]) if ids is None else ids for name, ids in found.items()}
        if all(isinstance(ids, np.ndarray) for ids in whole.values()):
            return np.concatenate([*whole.values()])
        return polars.concat([polars.Series("id", ids).cast(polars.String) for ids in whole.values()])


def _require_used(config: TypedTableKeys, source: TypedTablesSource) -> None:
    """Raises InputError if `encode` of a node type, or of the feature table, names no feature column."""
    names = {name: each.feature_names for name, each in source.types.items()}
    attempts = Attempts()
    for name, keys in config.nodes.items():
        attempts(require_used, rules_of(keys.encode), names[name], f"[graph.nodes.{name}]")
    attempts(require_used, rules_of(config.encode), [each for found in names.values() for each in found], "[features]")
    attempts.settle()


def _title(config: TypedTableKeys) -> str:
    return f"{', '.join(config.nodes)}; {', '.join(config.edges)}"


def _splits(facts: Sequence[RawGraph], node_types: Mapping[str, int]) -> tuple[Array, Array, Array] | None:
    """Returns the parts of all types that have splits, by node ids; None without any."""
    parts: list[list[Array]] = [[], [], []]
    for each, first in zip(facts, first_ids(dict(node_types)).values(), strict=True):
        for part, ids in zip(parts, each.splits or (), strict=False):
            part.append(ids.astype(np.int64) + first)
    return (np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])) if parts[0] else None


def _names(facts: Sequence[RawGraph]) -> Any:
    """Returns a Polars series of the names of all nodes, null for types without names; None if no type has them."""
    import polars

    if all(each.node_names is None for each in facts):
        return None
    named = [[None] * each.num_nodes if each.node_names is None else each.node_names for each in facts]
    return polars.concat([polars.Series("name", names, dtype=polars.String) for names in named])


def _times(facts: Sequence[RawGraph]) -> Array | None:
    """Returns f64[N], the times of the nodes of all types, NaN for types without times; None if no type has them."""
    if all(each.node_times is None for each in facts):
        return None
    timed = [np.full(each.num_nodes, np.nan) if each.node_times is None else each.node_times for each in facts]
    return np.concatenate(timed)


def _contents(source: TypedTablesSource, node_types: Mapping[str, int]) -> list[str]:
    lines: list[str] = []
    for name, each in source.types.items():
        count = f"{each.key}: {node_types[name]:,} nodes, the ids 0 to {node_types[name] - 1:,}"
        lines += [count] if each.table is None else describe_table(each.key, each.table)
        rules = source.config.rules(name)
        if rules:
            lines.append(f"  {each.encoded(rules).described}")
        else:
            lines += [f"  features: {block.width:,} {block.dtype}" for block in each.surveyed(0, rules)]
        lines += [f"  labels: column '{each.keys.label_column}'"] if each.keys.label_column is not None else []
        columns = list(each.labelling) if each.keys.label_columns is not None else []
        lines += [f"  labels: {len(columns)} columns, {', '.join(columns[:8])}"] if columns else []
    for each in source.relations:
        lines += describe_table(each.key, each.table)
        lines.append(f"  from {each.keys.source_type} to {each.keys.target_type}")
    return lines
