"""The partitions stage: assigns nodes to parts and measures the quality of the parts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Stage, Summary
from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Speed, Term
from graphmill.assets.graph.read import SAMPLING, Graph, open_graph
from graphmill.assets.partitions.config import PartitionsConfig, PartitionsTable, partitions_config
from graphmill.assets.partitions.empty import EVERY_PART, SAYS, empty_check
from graphmill.assets.partitions.method import choose_method, contracted_terms, metis_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.chunks.by_part import count_nodes
from graphmill.kernels.ranges import NODES_AT_ONCE, node_ranges
from graphmill.kernels.types import Array

EVERY_NODE, EVERY_EDGE = "every node is in one part", "edges between parts add up to the graph's"


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the share of the edges that are cut, beside that of random parts, and the replication."""
    numbers = artifacts[0].summary["numbers"]
    random = numbers.get("edge_cut_random")
    beside = "" if random is None else f" ({100 * random:.0f} % at random)"
    return (
        f"**{100 * numbers['edge_cut']:.1f} % of the edges cut**{beside}; {numbers['num_parts']:,} parts by {numbers['method']}"
        f"{' (auto)' if 'method_chosen' in numbers else ''}, "
        f"{numbers['replication']:.2f} copies per node"
    )


PARTITIONS_PAGE = Page(
    about="The nodes in parts, one per device or rank. Edges between parts mean rows that have to cross, so the fewer the better; parts of "
    "unequal size mean devices that wait. Look at the cut and the replication beside those of parts at random, and at the balance: the "
    "largest part over the mean, in nodes, edges and training nodes.",
    docs="docs/stages/partitions.md",
    headline=_headline,
    first=("edge_cut", "replication", "balance_nodes", "balance_edges", "balance_train_nodes", "num_parts", "method"),
    labels={
        "edge_cut": "share of the edges between parts",
        "replication": "copies per node: nodes and in-neighbours of all parts",
        "balance_nodes": "largest part over the mean, nodes",
        "balance_edges": "largest part over the mean, in-edges",
        "balance_train_nodes": "largest part over the mean, training nodes",
        "edge_cut_random": "share of the edges between parts, at random",
        "replication_random": "copies per node, at random",
        "beside_random": "the method beside parts at random",
        "method_chosen": 'why "auto" chose the method',
    },
    columns={"part_of": "part of node i, in row i"},
)


METHOD = "[partitions] method"

TIMES = {"metis": 30, "metis-balanced": 30, "metis-contracted": 4}
"""Method -> how many times as long it takes for an edge as the stream does (docs/log.md)."""


def partitions_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the partitions stage by method; METIS works on a copy of the graph, in a process of its own."""
    nodes, graph = sizes.num_nodes, (sizes.num_nodes, sizes.num_edges, _undirected(sizes))
    method = "range" if semantic.parts == 1 else choose_method(semantic.method, *graph).method  # one part needs none
    counted = (12 + sizes.id_bytes) * nodes + 40 * min(nodes, NODES_AT_ONCE)
    drawn = Term("parts, random ones beside them, and nodes by part", counted)
    phases = [(LIBRARIES, drawn), (DRAWING, Term("parts", 8 * nodes))]
    scratch = 24 * nodes if method in ("ldg", "metis-contracted") else 0
    if method == "metis-contracted":
        clusters, metis, files = contracted_terms(*graph, semantic.parts, semantic.contract_to)
        scratch = max(scratch, files)
        phases += [
            (LIBRARIES, Term("clusters", clusters, METHOD, bound=True)),
            (LIBRARIES, Term("METIS", metis, "[partitions] contract_to", bound=True)),
        ]
    if method in ("ldg", "metis-contracted"):
        phases.append((LIBRARIES, Term("parts of two passes, and training nodes", 9 * nodes, METHOD)))
    if method in ("metis", "metis-balanced"):
        phases.append((LIBRARIES, Term("METIS", metis_bytes(*graph), METHOD, bound=True)))
    work = sizes.num_edges * TIMES.get(method, 1)
    return Need(name="partitions", phases=tuple(phases), stored=4 * nodes, scratch=scratch, work=work)


def _undirected(sizes: Sizes) -> bool:
    """Returns whether the graph has the reverse of each edge."""
    if "graph" in sizes.artifacts:
        return bool(sizes.artifacts["graph"].config.get("undirected", False))
    return bool(getattr(sizes.configs.get("graph"), "undirected", False))


class PartitionsStage(Stage):
    """Builds the partitions artifact; `PARTITIONS` is the one instance."""

    page = PARTITIONS_PAGE
    name = table = "partitions"
    code_version = 2
    Table = PartitionsTable
    config_of = staticmethod(partitions_config)
    Semantic = PartitionsConfig
    Execution = Threads
    need = staticmethod(partitions_need)
    reads_stages = ("graph",)
    speed = Speed(per_second=5.8e6)
    reads_aspects: Mapping[str, str] = {"graph": SAMPLING}
    warnings = (EVERY_PART,)
    says: Mapping[str, str] = {
        EVERY_NODE: "Each node has a part from 0 to the number of parts less 1.",
        EVERY_EDGE: "The matrix of edges between parts, inside parts included, has as many edges as the graph.",
        EVERY_PART: SAYS[EVERY_PART],
    }

    def build(self, building: Building[PartitionsConfig, Threads]) -> Summary:
        """Assigns and measures."""
        from graphmill.assets.figures.parts import part_figure
        from graphmill.assets.partitions.assign import assign, random_parts

        inputs, semantic, writer, progress = building.inputs, building.semantic, building.writer, building.progress
        graph, undirected = open_graph(inputs["graph"]), bool(inputs["graph"].config.get("undirected"))
        semantic, why = _chosen(graph, undirected, semantic)
        if why:
            progress.tell(f'partitions: method = "auto" is "{semantic.method}": {why}')
        means = writer.path("parts.png").parent, progress, building.execution.threads
        part_of = assign(graph, semantic, *means, undirected=undirected)
        writer.save("part_of", part_of)
        measured, cut = quality(graph, part_of, semantic.parts)
        numbers: dict[str, Any] = dict(measured)
        writer.save("cut", cut)
        if semantic.method != "random":
            drawn = random_parts(graph.topology.num_nodes, semantic.parts, semantic.seed)
            numbers |= beside_random(semantic.method, numbers, quality(graph, drawn, semantic.parts)[0])
        numbers |= {"num_nodes": graph.topology.num_nodes, "num_parts": semantic.parts, "method": semantic.method}
        numbers |= {"method_chosen": why} if why else {}
        held = count_nodes(part_of, semantic.parts)
        part_figure(writer.path("parts.png"), held, cut)
        wrong = sum(
            int(np.count_nonzero((part_of[low:high] < 0) | (part_of[low:high] >= semantic.parts)))
            for low, high in node_ranges(len(part_of))
        )
        checks = [
            Check(
                name=EVERY_NODE,
                passed=wrong == 0 and len(part_of) == graph.topology.num_nodes,
                detail=f"{len(part_of):,} nodes have a part, {wrong:,} of them none that exists",
                numbers={"nodes with a part": len(part_of), "nodes": graph.topology.num_nodes},
            ),
            Check(
                name=EVERY_EDGE,
                passed=int(cut.sum()) == graph.topology.num_edges,
                detail=f"{int(cut.sum()):,} edges in the matrix, {graph.topology.num_edges:,} in the graph",
                numbers={"edges in the matrix": int(cut.sum()), "edges": graph.topology.num_edges},
            ),
            empty_check(EVERY_PART, held),
        ]
        return Summary(numbers=numbers, checks=checks, figures={"parts": "parts.png"})


PARTITIONS = PartitionsStage()


def _chosen(graph: Graph, undirected: bool, semantic: PartitionsConfig) -> tuple[PartitionsConfig, str]:
    """Returns the config with the method that is carried out, and the reason for it if "auto" chose it."""
    topology = graph.topology
    method, why = choose_method(semantic.method, topology.num_nodes, topology.num_edges, undirected)
    return replace(semantic, method=method), why


def beside_random(method: str, numbers: Mapping[str, float], drawn: Mapping[str, float]) -> dict[str, Any]:
    """Returns one table of a method's measures beside those of random parts, and the two most important ones by name."""
    table = [
        {"measure": name, method: round(value, 4), "random": round(drawn[name], 4)} for name, value in numbers.items()
    ]
    return {"beside_random": table, "edge_cut_random": drawn["edge_cut"], "replication_random": drawn["replication"]}


def quality(graph: Graph, part_of: Array, num_parts: int) -> tuple[dict[str, float], Array]:
    """Returns the quality of parts, and i64[P, P], the number of edges between them.

    Returns:
        edge_cut: share of the edges between parts. replication: nodes and in-neighbours of all parts, per node (HongTu, Table 3).
        balance_nodes, balance_edges, balance_train_nodes: the largest part over the mean.
    """
    from graphmill.assets.partitions.assign import balances, train_mask
    from graphmill.kernels.chunks.ldg import count_replicas, cut_matrix

    topology = graph.topology
    cut = cut_matrix(topology.indptr, topology.indices, part_of, num_parts)
    replicas = count_replicas(topology.indptr, topology.indices, part_of, num_parts)
    even = balances(topology, train_mask(graph), num_parts, part_of)
    numbers = {
        "edge_cut": 1 - float(np.trace(cut)) / max(1, int(cut.sum())),
        "replication": replicas / max(1, topology.num_nodes),
        "balance_nodes": even[0],
        "balance_edges": even[1],
        "balance_train_nodes": even[2],
    }
    return numbers, cut
