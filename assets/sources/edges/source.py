"""Graphs in tables: edges, and optionally nodes, in Parquet or CSV files of any size.

    edge tables      one row per edge: source_column, target_column; optionally weight_column, type_column
    node tables      one row per node: id_column; optionally feature columns or one column of lists, label_column,
                     split_column, name_column. Without node tables the nodes are those that edges name

Ids are integers or of any other type with an order (assets/sources/edges/numbering.py). docs/own-data.md has the exact
layouts and a pipeline file for each.

Peak memory, N nodes, F features of w bytes:

    memory_limit + 512 MiB + 100 N + 2 x 131,072 x (F w + 64) + the text of ids that are no integers and of names

DuckDB takes 6/10 of memory_limit while tables are read; it spills into the staging folder. The edges then lie on disk
and are sorted in half of memory_limit (assets/graph/edge_sort.py says when a node of very high degree needs more). 512 MiB
are Python and its libraries, 100 N the id map, labels, degrees and the node table. Disk while building, with M edges:
24 to 75 M bytes for the sort (undirected and with attributes: the larger), and as much as the tables where ids are
no integers; beside the artifact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assets.sources.edges.config import Config
from assets.sources.edges.edge_tables import attribute_expressions, spool_edges, type_names
from assets.sources.edges.node_tables import read_nodes, write_node_features
from assets.sources.edges.numbering import Numbering, id_kind, number_by_edges, number_by_nodes, stage
from assets.sources.readers.duck import Duck, quoted
from assets.sources.readers.table_files import TableFiles, expand
from assets.sources.registry import RawGraph
from assets.sources.spool import EdgeSpool
from assets.sources.spooled import check_split
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.sources.survey import Survey
    from assets.storage.writer import Writer


def raw(config: Config) -> dict[str, str]:
    """Returns the content digest of every table file, in the order in which they are read.

    Raises:
        InputError: a pattern names no file, or a file cannot be read.
    """
    from assets.storage.digests import sha256_file

    return {
        f"{key}/{number:06d}": sha256_file(path)
        for key in ("edges", "nodes")
        for number, path in enumerate(expand(config.files(key), key))
    }


def load(config: Config, writer: Writer, execution: Any, progress: Progress) -> RawGraph:
    """Numbers the nodes, writes their features, and spools the edges.

    Raises:
        InputError: what is wrong in the tables, with file, row or column.
    """
    folder = writer.scratch()
    with Duck(folder, config.memory_bytes * 6 // 10, execution.threads) as duck:
        edges = TableFiles(duck, config.files("edges"), "edges", config.delimiter)
        nodes = TableFiles(duck, config.files("nodes"), "nodes", config.delimiter) if config.nodes is not None else None
        kind = agree_on_ids(config, edges, nodes)
        relations = type_names(edges, config.type_column) if config.type_column else []
        columns = config.columns(relations, weights=config.weight_column is not None)
        staged = stage_edges(duck, edges, config, relations, kind) if kind != "integer" else None
        numbering, originals = _number(duck, edges, nodes, config, kind)
        table = read_nodes(nodes, config, numbering)
        if table.splits is not None and nodes is not None:
            check_split(table.splits, table.labels, f"{nodes.paths[0]}: column '{config.split_column}'")
        write_node_features(nodes, config, numbering, writer, progress)
        spool = EdgeSpool(folder, numbering.num_nodes, columns, undirected=config.undirected)
        spool_edges(duck, edges, config, relations, numbering, staged, spool, progress)
    if spool.num_edges == 0:
        raise InputError(f"{edges.paths[0]}: the edge tables have no rows", "give a graph with at least one edge")
    return RawGraph(
        num_nodes=numbering.num_nodes,
        spool=spool,
        memory_bytes=config.memory_bytes // 2,
        labels=table.labels,
        class_names=table.class_names,
        splits=table.splits,
        node_names=table.names,
        original_ids=originals,
        numbers={"edge_types": config.stored_types(relations)} if relations else {},
    )


def agree_on_ids(config: Config, edges: TableFiles, nodes: TableFiles | None) -> str:
    """Returns "integer" or the SQL type of all three id columns.

    Raises:
        InputError: Parquet columns have different types.
    """
    found = {
        (edges, name): id_kind(edges, role, name, config.id_type)
        for role, name in (("source_column", config.source_column), ("target_column", config.target_column))
    }
    if nodes is not None:
        found[(nodes, config.id_column)] = id_kind(nodes, "id_column", config.id_column, config.id_type)
    typed = {kind: (table, name) for (table, name), kind in found.items() if not table.is_csv}
    if len(typed) > 1:
        shown = ", ".join(f"'{name}' of {table.paths[0].name} is {kind}" for kind, (table, name) in typed.items())
        raise InputError(f"ids have different types: {shown}", 'write them with one type, or set id_type = "text"')
    if typed:
        return next(iter(typed))  # a CSV file has no types of its own
    return "integer" if set(found.values()) == {"integer"} else "VARCHAR"


def stage_edges(duck: Duck, edges: TableFiles, config: Config, relations: list[str], kind: str) -> list[int]:
    """Copies the edges into DuckDB's table `staged`, to be joined with the ids; returns the rows of each file."""
    ends = [f"CAST({quoted(name)} AS {kind})" for name in (config.source_column, config.target_column)]
    extra = attribute_expressions(edges, config, relations)
    types = {"src": kind, "dst": kind} | {name: sql_type for name, (_, sql_type) in extra.items()}
    return stage(duck, edges, "staged", types, ends + [expression for expression, _ in extra.values()])


def _number(
    duck: Duck, edges: TableFiles, nodes: TableFiles | None, config: Config, kind: str
) -> tuple[Numbering, Any]:
    if nodes is not None:
        return number_by_nodes(duck, nodes, config.id_column, kind)
    if config.num_nodes is not None:
        if kind != "integer":
            raise InputError(f"num_nodes = {config.num_nodes}, but ids are {kind}", "leave num_nodes out")
        return Numbering(num_nodes=config.num_nodes), None
    return number_by_edges(duck, edges, (config.source_column, config.target_column), kind)


def survey(config: Config) -> Survey:
    """Describes the tables from their headers and counts; without node tables it counts the distinct ids."""
    from assets.sources.edges.survey import survey_tables

    return survey_tables(config)
