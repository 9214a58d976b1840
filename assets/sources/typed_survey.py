"""Surveys of the sources whose reader returns a `TypedGraph`: OGB folders and DGL files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from assets.sizes import format_bytes
from assets.sources.feature_blocks import blocks_type
from assets.sources.features import array_type
from assets.sources.spool import record_dtype
from assets.sources.spooled import SpooledConfig, attribute_bytes, peak_bytes
from assets.sources.survey import Survey
from assets.sources.typed_graph import TypedGraph


def survey_typed(graph: TypedGraph, config: SpooledConfig, files: Mapping[str, Path]) -> Survey:
    """Returns the survey of a reader's graph and of its artifacts."""
    num_nodes = sum(graph.node_types.values())
    num_edges = sum(relation.num_edges or 0 for relation in graph.relations)
    typed = len(graph.node_types) > 1 or len(graph.relations) > 1
    names = [relation.name for relation in graph.relations] if typed else []
    columns = config.columns(names, weights=graph.weights)
    stored = num_edges * (2 if config.undirected else 1)
    block = graph.blocks[0] if graph.blocks else None
    width = block.width if block else 1
    stored_type = blocks_type(graph.blocks, "as stored", config.normalize)
    missing = num_nodes - sum(each.num_rows for each in graph.blocks) if graph.blocks else 0
    record = record_dtype(num_nodes, columns).itemsize
    return Survey(
        title=f"{config.source}: {graph.where}",
        contents=_contents(graph, files),
        num_nodes=num_nodes,
        num_edges=stored,
        num_features=width,
        dtype=stored_type,
        num_without_features=missing,
        edge_bytes=attribute_bytes(columns),
        memory_bytes=peak_bytes(config.memory_limit, num_nodes, width * array_type(stored_type).itemsize),
        scratch_bytes=(num_edges + stored) * record,
    )


def _contents(graph: TypedGraph, files: Mapping[str, Path]) -> list[str]:
    lines = [f"{len(files)} files, {format_bytes(sum(path.stat().st_size for path in files.values()))}"]
    for name, count in graph.node_types.items():
        lines.append(f"nodes of type '{name}': {count:,}")
    for relation in graph.relations:
        lines.append(f"edges {relation.source}/{relation.name}/{relation.target}: {relation.num_edges or 0:,}")
    for block in graph.blocks:
        lines.append(f"features: {block.num_rows:,} x {block.width} {block.dtype}")
    known = int(np.count_nonzero(graph.labels >= 0))
    lines.append(f"labels: {known:,} of {len(graph.labels):,} nodes, {int(graph.labels.max(initial=-1)) + 1} classes")
    if graph.splits is None:
        lines.append("split: none; a stratified one would be drawn from the pipeline's seed")
    else:
        train, valid, test = (f"{len(part):,}" for part in graph.splits)
        lines.append(f"split: {train} train, {valid} valid, {test} test")
    return lines
