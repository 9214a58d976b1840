"""The sampling_tables stage: reads weights, checks all of them, and writes alias tables range by range."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Stage, Summary
from graphmill.assets.costs.needs import LIBRARIES, Need, Sizes, Speed, Term
from graphmill.assets.graph.read import SAMPLING, open_graph
from graphmill.assets.sampling.config import DEGREES, width_mistake
from graphmill.assets.sampling_tables.config import TablesConfig, tables_config
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.arrays import widen
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import WHOLE, alias_ranges, check_weights
from graphmill.kernels.types import Array, Topology

RANGE_EDGES = 1 << 22
"""Number of edges whose tables are made, checked and written together."""
WHOLE_ROWS, NEVER = "the masses of every row add up", "a neighbour without weight is never drawn"


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the origin of the weights, and their unevenness."""
    numbers = artifacts[0].summary["numbers"]
    return (
        f"**weights of {numbers['weights']}**; {numbers['num_without_weight']:,} of {numbers['num_edges']:,} edges have none, "
        f"{numbers['num_empty_rows']:,} nodes no neighbour with weight"
    )


TABLES_PAGE = Page(
    about="What weighted sampling looks up: for every node a table that gives a neighbour in proportion to its weight for one draw. "
    "It is apart from the graph, so that another method or other weights rebuild neither the graph nor what is made of it. "
    "Look at the edges without weight, which are never drawn, and at the nodes whose neighbours have none.",
    docs="docs/stages/sampling_tables.md",
    headline=_headline,
    first=("weights", "num_edges", "num_without_weight", "num_empty_rows", "effective_neighbours"),
    labels={
        "weights": "where the weights come from",
        "num_edges": "edges of the graph",
        "num_without_weight": "edges whose weight is 0",
        "effective_neighbours": "effective neighbours per node: 1 / sum of squared probabilities, mean",
        "num_empty_rows": "nodes whose neighbours all have the weight 0",
        "largest_weight": "largest weight",
        "smallest_weight": "smallest weight",
    },
    columns={"table": "threshold and alias of place i, in row i"},
)


EDGE_BYTES = 57
"""Bytes for each edge of a range that its checks take."""


def tables_need(semantic: Any, execution: Any, sizes: Sizes, range_edges: int) -> Need:
    """Returns the need of the sampling_tables stage, which makes and checks the tables of `range_edges` edges together."""
    of_nodes = 8 * sizes.num_nodes if semantic.weights != "edge" else 0
    phase = (
        LIBRARIES,
        Term("a range of edges", EDGE_BYTES * min(range_edges, sizes.num_edges), bound=not sizes.exact),
        Term("degrees, and neighbours with weight", 11 * sizes.num_nodes),
        Term("weights of nodes", of_nodes),
    )
    stored = 8 * sizes.num_edges + 4 * sizes.num_nodes
    return Need(
        name="sampling_tables", phases=(phase,), stored=stored, stored_at_most=not sizes.exact, work=sizes.num_edges
    )


class SamplingTablesStage(Stage):
    """Builds the artifact of alias tables; `SAMPLING_TABLES` is the one instance."""

    page = TABLES_PAGE
    name = "sampling_tables"
    code_version = 1
    Semantic = TablesConfig
    Execution = Threads
    need = staticmethod(lambda semantic, execution, sizes: tables_need(semantic, execution, sizes, RANGE_EDGES))
    speed = Speed(per_second=10e6)
    reads_aspects: Mapping[str, str] = {"graph": SAMPLING}
    says: Mapping[str, str] = {
        WHOLE_ROWS: "Thresholds and rests of a row make one whole place per neighbour, and every alias is a position of its row.",
        NEVER: "As many places have the threshold 0 as edges have the weight 0, but for rows that draw uniformly since "
        "all of their weights are 0; such an edge is not the alias of another.",
    }

    def wanted(self, pipeline: Any) -> TablesConfig | None:
        """Returns the config if [sampling] draws by weight."""
        return None if pipeline.sampling is None else tables_config(pipeline.sampling)

    def inputs(self, semantic: TablesConfig) -> Mapping[str, str]:
        """Reads a graph, and the feature table if it has the weights."""
        return {"graph": "graph", **({} if semantic.feature_table is None else {"features": "features"})}

    def input_table(self, semantic: TablesConfig) -> str | None:
        """Returns the name of the feature table with the weights."""
        return semantic.feature_table

    def build(self, building: Building[TablesConfig, Threads]) -> Summary:
        """Reads and checks the weights, then builds the tables.

        Raises:
            InputError: the weights do not exist, or a weight is negative, not finite, or all of a row are 0.
        """
        inputs, semantic, writer, progress = building.inputs, building.semantic, building.writer, building.progress
        topology = open_graph(inputs["graph"]).topology
        weights, of_nodes = _read_weights(topology, inputs, semantic)
        threads = building.execution.threads
        how: dict[str, Any] = {"of_nodes": of_nodes, "empty": semantic.empty_rows, "threads": threads}
        weights = check_weights(topology, weights, **how)
        table = writer.create("table", (topology.num_edges, 2), np.uint32)
        support, broken, never = np.empty(topology.num_nodes, np.int32), 0, 0
        effective, drawn_rows = 0.0, 0
        progress.start("build alias tables", topology.num_edges, "edges")
        for low, high, rows, counts in alias_ranges(topology, weights, most_edges=RANGE_EDGES, **how):
            first = int(topology.indptr[low])
            table[first : first + len(rows)], support[low:high] = rows, counts
            indptr = np.asarray(topology.indptr[low : high + 1]) - first
            broken += _broken_rows(rows, indptr, counts)
            never += int(np.count_nonzero(rows[:, 0] == 0))
            found = _effective(rows, indptr, counts)
            effective, drawn_rows = effective + float(found.sum()), drawn_rows + len(found)
            progress.advance(len(rows))
        progress.done()
        table.flush()
        degree = np.diff(topology.indptr)
        if not np.array_equal(support, degree):
            writer.save("support", support)
        without, (empty, in_empty) = _without(topology, weights, of_nodes), _empty_rows(topology, weights, of_nodes)
        # Counted by the weights, while native code made the thresholds.
        lacking = without - (in_empty if semantic.empty_rows == "uniform" else 0)
        numbers = {
            "weights": semantic.weights,
            "num_nodes": topology.num_nodes,
            "num_edges": topology.num_edges,
            "num_without_weight": without,
            "num_empty_rows": empty,
            "effective_neighbours": effective / max(1, drawn_rows),
            "smallest_weight": float(weights.min(initial=np.inf)) if len(weights) else 0.0,
            "largest_weight": float(weights.max(initial=0)),
        }
        return Summary(numbers=numbers, checks=_checks(broken, never, lacking, topology))


SAMPLING_TABLES = SamplingTablesStage()


def _read_weights(topology: Topology, inputs: Mapping[str, Artifact], semantic: TablesConfig) -> tuple[Array, bool]:
    """Returns the weights f32[E] or f64[N], and whether they are weights of nodes."""
    if not semantic.column:
        if topology.weights is None:
            problem = f'weights = "edge", but {inputs["graph"].label} has no edge weights'
            raise InputError(problem, 'name a weight_column in [graph], or set weights = "node:COLUMN"')
        return topology.weights, False
    if semantic.column in DEGREES:
        return np.asarray(getattr(topology, semantic.column), np.float64), True
    return _read_column(inputs["features"], semantic, topology.num_nodes), True


def _read_column(features: Artifact, semantic: TablesConfig, num_nodes: int) -> Array:
    """Returns f64[N], a column of a feature table."""
    from graphmill.assets.features.read import open_features, require_nodes

    table = open_features(features)
    require_nodes(table, num_nodes, "the graph")
    place = int(semantic.column) if semantic.column.isdigit() else 0
    if mistake := width_mistake(semantic.weights, table.width):
        raise mistake
    features.file("rows.npy")  # compares every byte with its digest, also of a named table
    values = widen(np.ascontiguousarray(table.open()[:, place])).astype(np.float64)
    if table.row_of is None:
        return values
    rows = np.asarray(table.row_of)
    if (rows < 0).any():
        node = int(np.flatnonzero(rows < 0)[0])
        problem = f'weights = "{semantic.weights}", but node {node} has no features, and so no weight'
        raise InputError(problem, "give every node a row")
    return values[rows]


def _by_row(values: Array, indptr: Array) -> Array:
    """Returns the sums of the rows of values: u64[rows] or f64[rows]."""
    total = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
    return total[indptr[1:]] - total[indptr[:-1]]


def _masses(table: Array, indptr: Array) -> Array:
    """Returns u64[edges], the masses of all places of rows."""
    start = np.repeat(indptr[:-1], np.diff(indptr))
    mass = table[:, 0].astype(np.uint64)
    np.add.at(mass, start + table[:, 1], np.uint64(WHOLE) - table[:, 0].astype(np.uint64))
    return mass


def _broken_rows(table: Array, indptr: Array, support: Array) -> int:
    """Returns the number of rows with an alias outside them, or with other neighbours with mass than those with a threshold."""
    degree = np.diff(indptr)
    outside = (table[:, 1] >= np.repeat(degree, degree)).astype(np.int64)
    if outside.any():
        return int(np.count_nonzero(_by_row(outside, indptr)))
    mass = _masses(table, indptr)
    wrong = ((mass > 0) != (table[:, 0] > 0)) & np.repeat(support > 0, degree)
    return int(np.count_nonzero(_by_row(wrong.astype(np.int64), indptr)))


def _effective(table: Array, indptr: Array, support: Array) -> Array:
    """Returns the effective number of neighbours of each row that has any, 1 / sum of squared probabilities."""
    degree = np.diff(indptr)
    chance = _masses(table, indptr) / (np.repeat(np.maximum(degree, 1), degree) * float(WHOLE))
    squares = np.bincount(np.repeat(np.arange(len(degree)), degree), chance * chance, len(degree))
    return 1 / squares[support > 0]


def _without(topology: Topology, weights: Array, of_nodes: bool) -> int:
    """Returns the number of edges of weight 0."""
    if not of_nodes:
        return int(np.count_nonzero(weights == 0))
    return int(np.asarray(topology.out_degree)[weights == 0].sum(dtype=np.int64))


def _empty_rows(topology: Topology, weights: Array, of_nodes: bool) -> tuple[int, int]:
    """Returns the number of rows that have edges but none with weight, and the number of edges of these rows."""
    indptr, empty, in_empty = np.asarray(topology.indptr), 0, 0
    step = max(1, int((1 << 22) * topology.num_nodes / max(1, topology.num_edges)))
    for low in range(0, topology.num_nodes, step):
        ends = indptr[low : low + step + 1]
        edges = slice(int(ends[0]), int(ends[-1]))
        chosen = weights[topology.indices[edges]] if of_nodes else weights[edges]
        weighty = _by_row((chosen > 0).astype(np.int64), ends - ends[0])
        degree = np.diff(ends)[weighty == 0]
        empty, in_empty = empty + int(np.count_nonzero(degree)), in_empty + int(degree.sum())
    return empty, in_empty


def _checks(broken: int, never: int, lacking: int, topology: Topology) -> list[Check]:
    return [
        Check(
            name=WHOLE_ROWS,
            passed=broken == 0,
            detail=f"{broken:,} of {topology.num_nodes:,} rows have an alias outside the row, or mass where there is no threshold",
            numbers={"broken rows": broken, "rows": topology.num_nodes},
        ),
        Check(
            name=NEVER,
            passed=never == lacking,
            detail=f"{never:,} places have the threshold 0, and {lacking:,} edges cannot be drawn",
            numbers={"places with the threshold 0": never, "edges that cannot be drawn": lacking},
        ),
    ]
