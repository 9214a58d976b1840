"""The features stage: the rows of a feature table, from a source or from a file beside it."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Summary
from graphmill.assets.costs.needs import LIBRARIES, Need, Sizes, Speed, Term
from graphmill.assets.features.config import EDGES, FeaturesConfig, FeatureTables, features_config, step_name
from graphmill.assets.features.edges import EdgeSource, edge_blocks, edge_survey
from graphmill.assets.features.encode import ENCODERS_FILE
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.arrays.archive import SLICE_BYTES
from graphmill.assets.sources.arrays.mapped_arrays import file_block, open_ids
from graphmill.assets.sources.features.blocks import (
    FeatureBlock,
    blocks_type,
    blocks_width,
    checked_slices,
    columns_of_types,
    watches,
    write_blocks,
)
from graphmill.assets.sources.features.types import Rounding, rounded_words
from graphmill.assets.sources.interface import GraphConfig, OpenSource, TableConfig
from graphmill.assets.sources.readers.part_files import refuse_managed
from graphmill.assets.sources.readers.row_order import OwnIds, nodes_of_ids
from graphmill.assets.sources.stage import Sound, SourceStage
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.unread import has_edge_table, named_tables
from graphmill.assets.storage.files.arrays import open_array
from graphmill.assets.storage.files.digests import sha256_file
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.errors import InputError

EXACT, FEATURES_ALONE = "whole numbers are exact", "features are nothing else"


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the size of a feature table, and the number of nodes without a row."""
    numbers = artifacts[0].summary["numbers"]
    rows = f"**{numbers['num_rows']:,} rows of {numbers['num_features']:,} {numbers['feature_dtype']}**"
    without = numbers["num_without_features"]
    missing = f", {without:,} nodes without a row" if without else ", a row for every node"
    return f"{rows}, {format_bytes(numbers['feature_bytes'])}{missing}"


FEATURES_PAGE = Page(
    about="The feature rows of the nodes: one row per node that has features, in the order of the nodes. "
    "They are stored apart from the graph, so that features can change without sampling anything anew, and be read row by row from disk. "
    "Look at the size in MiB, which decides what fits into memory, and at the number of nodes without features.",
    docs="docs/stages/features.md",
    headline=_headline,
    first=("num_rows", "num_features", "feature_dtype", "feature_bytes", "num_without_features"),
    labels={
        "num_features": "values per row",
        "feature_bytes": "features (MiB)",
        "feature_dtype": "type of a value",
        "num_without_features": "nodes without a row",
    },
    columns={"rows": "the features of a node; bfloat16 is stored as uint16"},
)


def features_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the features stage; the graph is built in the same pass, after it."""
    if sizes.survey is None:
        return None
    table, survey = sizes.feature_bytes, sizes.survey
    slices = Term("rows on their way", min(2 * table, 2 * SLICE_BYTES))
    words = table // 512  # a digest of 8 bytes per page
    row_of = sizes.id_bytes * sizes.num_nodes * (sizes.num_rows < sizes.num_nodes)
    own = survey.features_memory or (Term("source", survey.source_bytes, survey.key, bound=True),)
    phase = (LIBRARIES, *own, slices, Term("digests of pages", words))
    return Need(name="features", phases=(phase,), stored=table + words + row_of, work=table)


class FeaturesStage(SourceStage):
    """Builds the artifact of a feature table; `FEATURES` is the one instance."""

    page = FEATURES_PAGE
    name = table = "features"
    code_version = 2  # 2: fields of CSV files without the blanks around them
    Table = TableConfig
    Semantic = FeaturesConfig
    Execution = Threads
    need = staticmethod(features_need)
    speed = Speed(per_second=230e6, number="feature_bytes")
    warnings = (EXACT, FEATURES_ALONE)
    says: Mapping[str, str] = {
        "values are finite": "No feature is NaN or infinite, in the source or in the stored type.",
        "rows are in the order of their nodes": "Each node with features has one row, and rows stand in the order of their "
        "nodes.",
        EXACT: "No whole number of a column is rounded by the stored type, or by float32 in which trainings compute. float32 "
        "tells whole numbers apart up to 2^24, and times, ids and cents are larger.",
        FEATURES_ALONE: "No column is a feature and a label, part of the split, id or weight as well. A pattern leaves such columns "
        "out; one that is named is a feature.",
    }

    def parse(self, raw: Mapping[str, Any], tables: Any, seed: int) -> tuple[Any, list[Any]]:
        """Checks `[features]`, whose tables are other feature tables and whose keys are those of the main one."""
        found, problems = raw[self.table], []
        if not isinstance(found, Mapping):
            return tables.parse(TableConfig, found, (self.table,))
        named = {}
        for name, keys in named_tables(found).items():
            named[name], wrong = tables.parse(TableConfig, keys, (self.table, name))
            problems += wrong
        edges, of_relations, wrong = self._edges(found, tables)
        problems += wrong
        own = {
            key: value
            for key, value in found.items()
            if key not in named and not (key == "edges" and has_edge_table(found))
        }
        main, wrong = tables.parse(TableConfig, own, (self.table,))
        problems += wrong
        tables_of = FeatureTables(main=main, named=named, alone=bool(own), edges=edges, of_relations=of_relations)
        return (None if problems else tables_of), problems

    def _edges(
        self, found: Mapping[str, Any], tables: Any
    ) -> tuple[TableConfig | None, dict[str, TableConfig], list[Any]]:
        """Checks `[features.edges]`, and `[features.edges.RELATION]`."""
        if not has_edge_table(found):
            return None, {}, []
        where, keys = (self.table, "edges"), found["edges"]
        apart = {name: value for name, value in keys.items() if isinstance(value, Mapping) and name != "encode"}
        own = {name: value for name, value in keys.items() if name not in apart}
        edges, problems = tables.parse(TableConfig, own, where)
        of_relations = {}
        for name, value in apart.items():
            of_relations[name], wrong = tables.parse(TableConfig, value, (*where, name))
            problems += wrong
        return edges, of_relations, problems

    def problems(self, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields the tables that the source cannot read."""
        graph, found = tables.get("graph"), tables[self.table]
        if graph is None:
            return
        for name, table in {"": found.main, **found.named}.items():
            try:
                features_config(graph, table)
            except InputError as error:
                yield name, f"{error.problem}; {error.remedy}"
        if found.edges is not None:
            try:
                features_config(graph, found.edges, of_edges=True, of_relations=found.of_relations)
            except InputError as error:
                yield "edges", f"{error.problem}; {error.remedy}"

    def configs(self, pipeline: Any) -> Mapping[str, FeaturesConfig]:
        """Returns the configs of the main table, unless a pipeline names and uses only other ones, and of the named ones."""
        tables: FeatureTables = pipeline.table(self.table) or FeatureTables()
        chosen = {each.feature_table for each in pipeline.train}
        main = tables.alone or not tables.named or "" in chosen
        names = [*([""] if main else []), *tables.named]
        found = {step_name(name): features_config(pipeline.graph, tables.find(name)) for name in names}
        if tables.edges is None:
            return found
        more: Any = {"of_edges": True, "of_relations": tables.of_relations}
        return found | {EDGES: features_config(pipeline.graph, tables.edges, **more)}

    def survey(self, semantic: FeaturesConfig) -> Survey:
        """Returns the survey of the source with this table, of rows of nodes or of edges."""
        return edge_survey(semantic.graph.survey(), semantic) if semantic.of_edges else super().survey(semantic)

    def source(self, semantic: FeaturesConfig) -> GraphConfig:
        """Returns the keys of `[graph]`."""
        return semantic.graph

    def feature_table(self, semantic: FeaturesConfig) -> TableConfig:
        """Returns the feature table."""
        return semantic.table

    def raw(self, semantic: FeaturesConfig) -> Mapping[str, str]:
        """Returns the digests of the content that decides the rows."""
        if semantic.of_relations:
            return {
                _name(name, each): sha256_file(each.file) for name, each in semantic.of_relations.items() if each.file
            }
        if semantic.of_edges and semantic.table.file is not None:
            return {"file": sha256_file(semantic.table.file)}
        return {**_file_digests(semantic.table), **self.source_digests(semantic)}

    def require_sound(self, opened: OpenSource, semantic: FeaturesConfig) -> Sound:
        """Reads all rows and checks each value; returns the checks that warn."""
        normalize, blocks = semantic.normalize, _blocks(opened, semantic)
        stored = blocks_type(blocks, semantic.dtype, normalize)
        watched = watches(blocks, stored)
        for block, watch in watched:
            for _ in checked_slices(block, stored, normalize, watch):
                pass
        if semantic.of_edges:
            return Sound({}, _warnings(blocks, [watch for _, watch in watched]))
        widths = tuple(columns_of_types(blocks, opened.node_types))
        return Sound({"type_widths": widths}, _warnings(blocks, [watch for _, watch in watched]))

    def build_from(self, opened: OpenSource, building: Building[FeaturesConfig, Threads]) -> Summary:
        """Writes and describes the rows."""
        semantic, writer = building.semantic, building.writer
        normalize, blocks = semantic.normalize, _blocks(opened, semantic)
        owner = "edge" if semantic.of_edges else "node"
        num_nodes = cast("EdgeSource", opened).num_edge_rows if semantic.of_edges else opened.num_nodes
        beyond, watched = write_blocks(writer, num_nodes, blocks, semantic.dtype, normalize, building.progress)
        _write_encoders(writer, opened, blocks)
        rows = open_array(writer.path("rows.npy"))
        numbers = {
            f"num_{owner}s": num_nodes,
            "num_rows": len(rows),
            "num_features": rows.shape[1],
            "feature_dtype": blocks_type(blocks, semantic.dtype, normalize),
            "feature_bytes": rows.nbytes,
            "num_without_features": num_nodes - len(rows),
        }
        numbers |= {"beyond_float32": beyond} if beyond else {}
        if len(opened.node_types) > 1 and not semantic.of_edges:
            numbers["type_columns"] = columns_of_types(blocks, opened.node_types)
        checks = [*_checks(writer, num_nodes, len(rows), rows.shape[1], owner), *_warnings(blocks, watched)]
        return Summary(numbers=numbers, checks=checks)


FEATURES = FeaturesStage()


def _blocks(opened: OpenSource, semantic: FeaturesConfig) -> Sequence[FeatureBlock]:
    """Returns the rows of the table, from its file or from the source; raises InputError if they have no columns."""
    if semantic.of_edges:
        found = edge_blocks(opened, semantic)
        if not blocks_width(found):
            raise InputError(f"{found[0].where}: the rows of edges have 0 columns", "give at least one column")
        return found
    table = semantic.table
    found = _file_blocks(opened, semantic.graph, table) if table.file else opened.blocks(table)
    if not blocks_width(found):
        problem = f"{found[0].where}: the features have 0 columns, so a model would know nothing of a node"
        raise InputError(problem, "give at least one column; a graph without features gets a column of ones")
    return found


def _name(relation: str, table: TableConfig) -> str:
    """Returns the name of the digest of a relation's file."""
    return f"rows of {relation}" + (f", tensor {table.tensor}" if table.tensor else "")


def _write_encoders(writer: Writer, opened: OpenSource, blocks: Sequence[FeatureBlock]) -> None:
    """Writes `encoders.json`, a list of encoded columns for each node type, "nodes" in a graph without types; nothing without encoders."""
    firsts = dict(zip(np.cumsum([0, *opened.node_types.values()]).tolist(), opened.node_types, strict=False))
    found = {firsts.get(block.first, "nodes"): [*block.encoders] for block in blocks if block.encoders}
    if found:
        writer.path(ENCODERS_FILE).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _file_digests(table: TableConfig) -> dict[str, str]:
    """Returns the digest of the file of a table, and a word if its rows are matched by ids; none without a file."""
    if table.file is None:
        return {}
    refuse_managed([table.file])
    found = {"file": sha256_file(table.file)}
    by_id = open_ids(table.file, table.tensor) is not None
    return found | ({"rows": hashlib.sha256(b"by id").hexdigest()} if by_id else {})


def _file_blocks(opened: OpenSource, graph: GraphConfig, table: TableConfig) -> list[FeatureBlock]:
    """Returns the rows of a file that lies beside the source: by ids if the file has them, else by position.

    Raises:
        InputError: the ids are not those of the nodes, or nothing states the order of the nodes.
    """
    assert table.file is not None
    types, first, count = opened.node_types, 0, opened.num_nodes
    if table.node_type is not None:
        if table.node_type not in types:
            known = ", ".join(types) or "none: its nodes have no types"
            raise InputError(f"the source has no node type '{table.node_type}'", f"it has {known}")
        first = sum(each for _, each in list(types.items())[: list(types).index(table.node_type)])
        count = types[table.node_type]
    if (ids := open_ids(table.file, table.tensor)) is None:
        graph.row_order(table.node_type)
        rows = None if opened.node_of_row is None else opened.node_of_row[first : first + count]
    else:
        numbers = np.asarray(ids).astype(np.int64)
        own = isinstance(opened, OwnIds)
        found = opened.nodes_of(numbers, table.node_type) if own else (numbers, (numbers < 0) | (numbers >= count))
        rows = nodes_of_ids(*found, first, count, str(table.file))
    return [file_block(table.file, table.tensor, first, count, rows)]


def _checks(writer: Writer, num_nodes: int, num_rows: int, width: int, owner: str) -> Iterator[Check]:
    values = num_rows * width
    yield Check(
        name="values are finite",
        passed=True,  # the first row that is not ended the build
        detail=f"each of {values:,} values ({num_rows:,} rows of {width:,}) was tested as it was written, and none is NaN or infinite",
        numbers={"values tested": values, "values not finite": 0},
    )
    path = writer.path("row_of.npy")
    if not path.exists():
        passed, misplaced = num_rows == num_nodes, abs(num_rows - num_nodes)
        detail = f"{num_rows:,} rows for {num_nodes:,} {owner}s, row i for {owner} i"
    else:
        row_of = open_array(path)
        found, expected = row_of[row_of >= 0], np.arange(num_rows)
        passed = len(row_of) == num_nodes and np.array_equal(found, expected)
        misplaced = int(np.count_nonzero(found != expected)) if len(found) == num_rows else abs(len(found) - num_rows)
        without = f"{num_nodes - num_rows:,} of {num_nodes:,} {owner}s without features"
        detail = f"{num_rows:,} rows, {misplaced:,} out of the order of their {owner}s, {without}"
    yield Check(
        name="rows are in the order of their nodes",
        passed=passed,
        detail=detail,
        numbers={"rows out of order": misplaced, "allowed out of order": 0, "rows": num_rows},
    )


def _warnings(blocks: Sequence[FeatureBlock], watched: Sequence[Rounding]) -> list[Check]:
    """Returns the checks of what features may say without meaning it."""
    rounded, count = rounded_words(watched)
    twice = [phrase for block in blocks for phrase in block.named_twice]
    alone = f"{'; '.join(twice)}: a model reads it as a feature. Leave it out of the features, unless that is meant"
    return [
        Check(
            name=EXACT,
            passed=not rounded,
            detail=rounded or "0 values are rounded: the stored type has all whole numbers",
            numbers={"rounded values": count, "allowed rounded": 0},
            blocking=False,
        ),
        Check(
            name=FEATURES_ALONE,
            passed=not twice,
            detail=alone if twice else "0 of them are named by another key, too",
            numbers={"named by another key": len(twice), "allowed named": 0},
            blocking=False,
        ),
    ]
