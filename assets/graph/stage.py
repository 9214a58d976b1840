"""The graph stage: its inputs, and the order in which an artifact is built from a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Progress, Silent, Summary
from graphmill.assets.costs.needs import Speed
from graphmill.assets.graph.checks import SHARED, describe, label_checks, node_checks, require_numbers, topology_checks
from graphmill.assets.graph.costs import graph_need
from graphmill.assets.graph.links import (
    HELD_OUT,
    ODD,
    SAYS,
    held_out_check,
    link_numbers,
    odd_links,
    save_links,
    take_links,
)
from graphmill.assets.graph.read import SAMPLING
from graphmill.assets.graph.remarks import ABOUT_CLASSES, REMARKS, degrees, remarks, watch_directions
from graphmill.assets.graph.times import (
    EARLY,
    LATER,
    TIMES,
    asks_times,
    later_check,
    require_times,
    spooled,
    times_found,
)
from graphmill.assets.graph.times import SAYS as TIMES_SAY
from graphmill.assets.sources.interface import GraphConfig, OpenSource, RawGraph
from graphmill.assets.sources.registry import config_class, sound_classes, source_names
from graphmill.assets.sources.splits import by_time, checked, stratified
from graphmill.assets.sources.stage import Sound, SourceStage
from graphmill.assets.sources.targets import require_known
from graphmill.assets.sources.task_table import TaskTable, sound_task
from graphmill.assets.sources.unread import asked_by_features, encodes
from graphmill.assets.storage.files.digests import sha256_file
from graphmill.assets.storage.files.frames import write_frames
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.tasks.labels import CLASSES, ON_EDGES, column_words
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Topology

if TYPE_CHECKING:
    import polars

CANDIDATES = "candidates"
"""Name of the file of candidates among the content that is read."""
WEIGHTS = "weights are finite"
"""Name of the check that only graphs with weights have."""
OF_SPLIT = {"split_column", *TIMES, "valid_edges", "test_edges"}
"""Keys of [graph] whose meaning depends on the split of links."""
OF_KIND = {"label_column", "label_columns", "labels", "no_label", *OF_SPLIT}
"""Keys of [graph] whose meaning depends on the kind of `[task]`."""


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the size of a graph, its split, and the share of edges that join nodes of one class."""
    numbers = artifacts[0].summary["numbers"]
    if "num_links" in numbers:
        split = " / ".join(f"{numbers[f'num_{part}_links']:,}" for part in ("train", "valid", "test"))
        size = f"**{numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges**"
        return f"{size}, {numbers['num_links']:,} links: {split} to train, validate and test"
    split = " / ".join(f"{numbers[f'num_{part}']:,}" for part in ("train", "valid", "test"))
    same = numbers["homophily_ratio"]
    alike = f", {100 * same:.1f} % of the edges inside a class" if same >= 0 else ""
    size = f"**{numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges**"
    columns = column_words(artifacts[0].config.get("task", CLASSES), numbers["num_classes"])
    return f"{size}, {columns}{alike}, {split} nodes to train, validate and test"


GRAPH_PAGE = Page(
    about="The nodes and edges of the graph, sorted by target, with labels and the split into training, validation and test nodes. "
    "All that samples or trains reads this one artifact, so the source is parsed once. "
    "Look at the numbers of nodes and edges, at the balance of the classes, and at the checks where the source is your own.",
    docs="docs/stages/graph.md",
    headline=_headline,
    first=(
        "num_nodes",
        "num_edges",
        "num_links",
        "num_train_links",
        "num_valid_links",
        "num_test_links",
        "num_classes",
        "num_train",
        "num_valid",
        "num_test",
        "homophily_ratio",
    ),
    labels={
        "num_train": "training nodes",
        "num_valid": "validation nodes",
        "num_test": "test nodes",
        "num_isolated": "nodes without edges",
        "num_labelled": "labelled nodes",
        "num_links": "links: edges that are predicted",
        "num_train_links": "training links",
        "num_valid_links": "validation links",
        "num_test_links": "test links",
        "num_given_candidates": "candidates that links are ranked among",
        "num_uniform_candidates": "candidates that are drawn for each end of a link",
        "reverse_of": "relation of the reverse edges of each relation, -1 for none",
        "predicted": "relations whose edges are predicted",
        "num_duplicates": "duplicate edges in the source",
        "num_self_loops": "self loops in the source",
        "num_ids_of_both_ends": "ids in both columns of the edge tables",
        "num_dropped_edges": "edges left out, with an end without a node",
        "num_gap_links": "links between the parts of a split by time, left out",
        "homophily_ratio": "edges inside a class (%)",
    },
    columns={
        "in_degree": "edges that end in the node",
        "out_degree": "edges that begin in the node",
        "labels": "class of the node, -1 where it is not known; of other tasks its labels or numbers",
        "node_id": "number of the node, from 0: its place in every array",
        "original_id": "what the source calls the node",
        "name": "text of the node, where the source has one",
        "class": "name of the class, empty where it is not known",
    },
    file="nodes.parquet",
)


class GraphStage(SourceStage):
    """Builds the graph artifact; `GRAPH` is the one instance."""

    page = GRAPH_PAGE
    name = table = "graph"
    code_version = 3  # 2: features are an artifact of their own; 3: fields of CSV files without the blanks around them
    Semantic = GraphConfig
    Execution = Threads
    need = staticmethod(graph_need)
    speed = Speed(per_second=5e6, number="num_edges")
    says: Mapping[str, str] = {
        "has edges": "At least one edge is left after self-loops and duplicates were treated as [graph] says.",
        "indptr is monotone": "The starts of the rows never fall, begin at 0 and end at the number of edges.",
        "ids are in range": "Every neighbour id names a node of the graph.",
        "rows are sorted": "The neighbours of each node are ascending, strictly so where duplicates are merged.",
        "labels are in range": "Every label is -1 (unknown) or names a class; of several labels each is 0 or 1, and a target is finite.",
        "splits are disjoint": "No node is in two of training, validation and test, twice in one of them, or there without a "
        "label.",
        SHARED: "Labels are classes: there are at least ten labelled nodes for each. Numbers, dates and ids have a value of their own for "
        "nearly every node.",
        **REMARKS,
        **SAYS,
        WEIGHTS: "No edge weight is NaN or infinite, sums of merged duplicates included.",
        **TIMES_SAY,
    }
    checks = tuple(name for name in says if name not in (WEIGHTS, EARLY, LATER))
    warnings = (SHARED, *REMARKS, ODD, EARLY, LATER)

    aspects = (SAMPLING,)

    def aspect(self, name: str, semantic: GraphConfig, raw: Mapping[str, str]) -> tuple[Any, Mapping[str, str]]:
        """Returns the part that sampling depends on: edges, ids and splits, and labels only if splits are drawn from them."""
        if semantic.links is not None:
            plain = replace(semantic.links, candidates=None, source_candidates=False, uniform_candidates=0)
            semantic = replace(semantic, links=plain)
        return semantic.sampled({each: digest for each, digest in raw.items() if each != CANDIDATES})

    def parse(self, raw: Mapping[str, Any], tables: Any, seed: int) -> tuple[Any, list[Any]]:
        """Checks the table by the schema of its source; the pipeline's seed is the seed of splits and generators."""
        graph, choices = raw.get("graph"), ", ".join(source_names())
        _, mistakes = tables.parse(TaskTable, raw.get("task", {}), ("task",))
        task = sound_task(raw.get("task", {}), tables)
        if not isinstance(graph, Mapping):
            return None, [
                tables.problem(("graph",), f"the file lacks the table [graph] with source = one of {choices}")
            ]
        if "source" not in graph:
            return None, [tables.problem(("graph",), f"[graph] lacks the key source, one of {choices}")]
        try:
            schema = config_class(graph["source"])
        except InputError as error:
            wrong = [tables.problem(("graph", "source"), f"{error.problem}; {error.remedy}")]
            return None, wrong if graph["source"] in source_names() else wrong + _unknown_everywhere(graph, tables)
        kind = CLASSES if task is None else task.kind
        given = {"seed": seed, "task": kind, "links": task if kind in ON_EDGES else None, "times": asks_times(raw)}
        given["cut"] = task if task is not None and kind not in ON_EDGES and task.split == "time" else None
        config, problems = tables.parse(schema, graph, ("graph",), given)
        # What depends on a key of [task] that is wrong is not known.
        wrong = {str(each.path[-1]) for each in mistakes if each.path}
        unknown = OF_KIND if task is None else OF_SPLIT if "split" in wrong else set[str]()
        problems = [each for each in problems if not {*map(str, each.path)} & unknown]
        problems = [*mistakes, *problems]
        if config is None:
            return None, problems
        asked = asked_by_features(raw.get("features"))
        if config.cut is not None and (asked["encodes"] or encodes(graph)):
            text = "encode is fitted on the training nodes of a drawn or given split, and [task] split = 'time' cuts another one"
            problems.append(tables.problem(("task", "split"), f"{text}: leave one of them out"))
        config = replace(config.without_unused(), **asked)
        apart = config.by_split()
        return apart[0] if len(apart) == 1 else config, problems

    def wanted(self, pipeline: Any) -> GraphConfig:
        """Returns the config of the graph, which every pipeline has."""
        return pipeline.graph

    def source(self, semantic: GraphConfig) -> GraphConfig:
        """Returns the keys of `[graph]`."""
        return semantic

    def expected_checks(self, semantic: GraphConfig) -> tuple[str, ...]:
        """Returns the names of the checks; weights are tested if the configuration asks the source for them, classes if nodes have some."""
        left = () if semantic.task == CLASSES else (SHARED, *ABOUT_CLASSES)
        left = left if semantic.task in ON_EDGES else (*left, HELD_OUT, ODD)
        checks = tuple(name for name in self.checks if name not in left)
        checks = (*checks, EARLY) if semantic.times and semantic.links is None else checks
        checks = (*checks, LATER) if semantic.untold_times else checks
        return (*checks, WEIGHTS) if semantic.weighted else checks

    def columns_from(self, semantic: GraphConfig) -> Mapping[str, str]:
        """Returns column of the nodes -> column of the source."""
        return semantic.columns_from

    def raw(self, semantic: GraphConfig) -> Mapping[str, str]:
        """Returns the digests of the content that the source reads."""
        file = None if semantic.links is None else semantic.links.candidates
        return {**self.source_digests(semantic), **({} if file is None else {CANDIDATES: sha256_file(file)})}

    def external(self, semantic: GraphConfig) -> str:
        """Returns "raw"; "" for a generated graph without a file of candidates."""
        beside = semantic.links is not None and semantic.links.candidates is not None
        return "raw" if beside else super().external(semantic)

    def require_sound(self, opened: OpenSource, semantic: GraphConfig) -> Sound:
        """Reads everything except features and checks ids, labels and split, without compressing edges."""
        raw = opened.graph(Silent())
        require_numbers(raw.numbers, semantic.source)
        links = take_links(raw, semantic)[0] if semantic.links is not None else None
        parts = _split(raw, semantic)
        require_times(raw, np.concatenate(parts))
        _, early = times_found(raw, semantic, np.concatenate(parts), links)
        found = degrees(raw, semantic)
        if not found[0].any():
            raise InputError("all edges are self-loops, which are dropped", 'set self_loops = "keep" in [graph]')
        raw.directions = watch_directions(raw, semantic)
        train, valid, test = map(len, parts)
        counts = {"num_train": train, "num_valid": valid, "num_test": test, "num_classes": len(raw.class_names)}
        counts["num_dropped_edges"] = raw.numbers.get("num_dropped_edges", 0)
        shared = label_checks(raw.labels, len(raw.class_names))
        shared += [] if links is None else [odd_links(links, found[0] + found[1])]
        return Sound(counts, self._expected(semantic, [*shared, *early, *remarks(raw, semantic, parts, *found)]))

    def _expected(self, semantic: GraphConfig, checks: Sequence[Check]) -> list[Check]:
        """Returns the checks that are about the task: links are no classes."""
        return [each for each in checks if each.name in self.expected_checks(semantic) or each.name == WEIGHTS]

    def build_from(self, opened: OpenSource, building: Building[GraphConfig, Threads]) -> Summary:
        """Reads the source, compresses the edges, splits, tests and describes the graph."""
        semantic, writer, progress = building.semantic, building.writer, building.progress
        raw = opened.graph(progress)
        require_numbers(raw.numbers, semantic.source)
        found = take_links(raw, semantic) if semantic.links is not None else None
        parts = _split(raw, semantic)
        seeds = np.concatenate(parts)
        require_times(raw, seeds)
        raw.directions = watch_directions(raw, semantic)
        later = [later_check(raw, seeds)] if semantic.untold_times else []
        timed, early = times_found(raw, semantic, seeds, None if found is None else found[0])
        topology, dropped = _compress(raw, semantic, building.execution, writer, progress)
        for name, array in (
            ("in_degree", topology.in_degree), ("out_degree", topology.out_degree), ("labels", raw.labels),
            ("train_ids", parts[0]), ("valid_ids", parts[1]), ("test_ids", parts[2]),
            ("node_type_ptr", raw.node_type_ptr), ("node_times", raw.node_times if semantic.times else None),
        ):  # fmt: skip
            if array is not None:
                writer.save(name, array)
        _write_nodes(raw, writer)
        numbers = describe(topology, raw.labels, raw.class_names, parts) | dropped | dict(raw.numbers)
        checks = topology_checks(topology, merged=semantic.duplicates == "merge")
        checks += node_checks(raw.labels, len(raw.class_names), parts)
        checks += remarks(raw, semantic, parts, topology.in_degree, topology.out_degree)
        numbers, checks = numbers | timed, [*checks, *early, *later]
        if found is not None:
            links, held_out = found
            save_links(links, writer)
            numbers |= link_numbers(links, len(raw.class_names))
            degree = topology.in_degree.astype(np.int64) + topology.out_degree
            checks += [held_out_check(topology, held_out), odd_links(links, degree)]
        return Summary(
            numbers=numbers,
            checks=self._expected(semantic, checks),
            figures=_draw(topology, numbers, raw.labels, writer),
            unread=raw.unread,
        )


GRAPH = GraphStage()

NODE_ROWS = 1 << 18
"""Rows of a row group of nodes.parquet."""


def _split(raw: RawGraph, config: GraphConfig) -> tuple[Array, Array, Array]:
    """Returns the split by time if it is asked for, else that of the source, or a stratified one."""
    drawn = config.seed, config.train_ratio, config.valid_ratio
    if config.cut is not None:
        parts = by_time(raw.labels, raw.node_times, *drawn, config.cut.gap)
    else:
        parts = stratified(raw.labels, *drawn) if raw.splits is None else checked(raw.splits, raw.labels)
    require_known(raw.labels, parts, raw.class_names, "labels")
    return parts


def _compress(
    raw: RawGraph, config: GraphConfig, execution: Threads, writer: Writer, progress: Progress
) -> tuple[Topology, dict[str, int]]:
    """Writes the topology except its degrees; returns it and the counts of the edges. Releases the raw edges."""
    from graphmill.assets.graph.edge_sort import EdgePolicy, sort_edges
    from graphmill.kernels.graph.csc import build_csc

    if config.times and raw.spool is None:
        raw.spool = spooled(raw, config, writer.scratch())
    if raw.spool is not None:
        merge, drop = config.duplicates == "merge", config.self_loops == "drop"
        policy = EdgePolicy(undirected=config.undirected, merge=merge, drop_loops=drop)
        return sort_edges(raw.spool, policy, raw.memory_bytes, execution.threads, writer, progress)
    progress.start("compress edges", len(raw.src), "edges")
    csc = build_csc(
        raw.src,
        raw.dst,
        raw.num_nodes,
        undirected=config.undirected,
        duplicates=config.duplicates,
        self_loops=config.self_loops,
        threads=execution.threads,
    )
    progress.advance(len(raw.src))
    progress.done()
    raw.src = raw.dst = np.zeros(0, raw.src.dtype)
    topology = Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)
    writer.save("indptr", csc.indptr)
    writer.save("indices", csc.indices)
    return topology, {"num_duplicates": csc.num_duplicates, "num_self_loops": csc.num_self_loops}


def _write_nodes(raw: RawGraph, writer: Writer) -> None:
    """Writes nodes.parquet, a range of nodes at a time: the original id, name and class of each dense node id."""
    ranges = [(low, min(raw.num_nodes, low + NODE_ROWS)) for low in range(0, max(1, raw.num_nodes), NODE_ROWS)]
    write_frames(writer.path("nodes.parquet"), (_node_frame(raw, low, high) for low, high in ranges), NODE_ROWS)


def _node_frame(raw: RawGraph, low: int, high: int) -> polars.DataFrame:
    import polars

    ids = np.arange(low, high, dtype=np.int64)
    names = [None] * len(ids) if raw.node_names is None else list(raw.node_names[low:high])
    classes = polars.Series(list(raw.class_names), dtype=polars.String)
    place = polars.Series(raw.labels[low:high] if raw.labels.ndim == 1 else np.full(len(ids), -1)).cast(polars.Int64)
    original = ids if raw.original_ids is None else raw.original_ids[low:high]
    return polars.DataFrame({"node_id": ids, "original_id": original}).with_columns(
        polars.Series("name", names, dtype=polars.String), classes.gather(place.set(place < 0, None)).alias("class")
    )


def _draw(topology: Topology, numbers: Mapping[str, Any], labels: Array, writer: Writer) -> dict[str, str]:
    from graphmill.assets.figures.graph import class_balance, degree_histogram

    degree_histogram(writer.path("degree.png"), topology.in_degree, topology.out_degree)
    figures = {"degrees": "degree.png"}
    if numbers["num_classes"] and numbers["num_labelled"] and labels.dtype.kind == "i":
        unknown = numbers["num_nodes"] - numbers["num_labelled"]
        counts = np.array(numbers["class_counts"], np.int64)
        class_balance(writer.path("classes.png"), numbers["class_names"], counts, unknown)
        figures["classes"] = "classes.png"
    return figures


def _unknown_everywhere(graph: Mapping[str, Any], tables: Any) -> list[Any]:
    """Returns the mistakes of a `[graph]` with an unknown source: keys that no source has, and wrong values of common keys."""
    shared = {field.name for field in fields(GraphConfig)}
    known = shared.union(*({field.name for field in fields(each)} for each in sound_classes()))
    strange = [
        tables.problem(("graph", key), f"[graph] has no key {key}, whatever the source")
        for key in graph
        if key not in known
    ]
    common = {key: value for key, value in graph.items() if key in shared}
    return strange + tables.parse(GraphConfig, common, ("graph",), {"seed": 0})[1]
