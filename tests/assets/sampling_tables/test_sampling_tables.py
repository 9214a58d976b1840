"""Sampling tables: built from edges and from nodes, the same at any thread count, and refused before work where weights are none."""

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Check
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.read import open_graph
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_tables
from graphmill.assets.sampling_tables.config import TablesConfig, tables_config
from graphmill.assets.sampling_tables.stage import NEVER, SAMPLING_TABLES
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import build_alias
from tests.assets.storage.damage import flip

EDGES = [(0, 1), (2, 1), (3, 1), (1, 0), (4, 0), (2, 3), (0, 4)]
WEIGHTS = [1.0, 2.5, 0.0, 4.0, 1.0, 3.0, 0.5]


def write_tables(home, weights=WEIGHTS):
    """Edge and node tables of a small graph with weights, a year per node, and two columns of features."""
    lines = [f"{src},{dst},{weight}" for (src, dst), weight in zip(EDGES, weights, strict=True)]
    (home / "edges.csv").write_text("src,dst,weight\n" + "\n".join(lines) + "\n")
    nodes = [f"{v},{2000 + v},{v / 2},{v % 2},{'train' if v < 3 else 'valid'}" for v in range(5)]
    (home / "nodes.csv").write_text("id,year,size,label,split\n" + "\n".join(nodes) + "\n")
    return config_class("edges")(
        edges=home / "edges.csv", nodes=home / "nodes.csv", weight_column="weight", features=("year", "size"),
        label_column="label", split_column="split", undirected=False,
    )  # fmt: skip


@pytest.fixture
def weighted(tmp_path):
    """Store, graph and features of a small weighted graph."""
    store, config = Store(tmp_path / "home"), write_tables(tmp_path)
    graph = materialize(store, GRAPH, config, Threads(threads=1), {})
    features = materialize(store, FEATURES, features_config(config), Threads(threads=1), {})
    return store, graph, features


def build(weighted, weights="edge", empty_rows="error", threads=1):
    store, graph, features = weighted
    config = TablesConfig(weights=weights, empty_rows=empty_rows)
    inputs = {"graph": graph} | ({} if config.feature_table is None else {"features": features})
    return materialize(store, SAMPLING_TABLES, config, Threads(threads=threads), inputs)


def test_tables_of_edge_weights_are_those_of_the_kernel(weighted):
    made, topology = build(weighted), open_graph(weighted[1]).topology
    expected, opened = build_alias(topology, topology.weights), open_tables(made, weighted[1])
    assert opened.table.tobytes() == expected.table.tobytes()
    assert opened.support is not None and opened.support.tolist() == expected.support.tolist() == [2, 2, 0, 1, 1]
    numbers = made.summary["numbers"]
    assert (numbers["num_without_weight"], numbers["num_empty_rows"]) == (1, 0)
    assert all(check["passed"] for check in made.summary["checks"]) and numbers["largest_weight"] == 4


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("node:0", [2000, 2001, 2002, 2003, 2004]),
        ("node:out_degree", [2, 1, 2, 1, 1]),
        ("node:in_degree", [2, 3, 0, 1, 1]),
    ],
)
def test_weights_of_nodes_are_those_of_the_sources(weighted, weights, expected):
    topology = open_graph(weighted[1]).topology
    made = open_tables(build(weighted, weights, empty_rows="none"), weighted[1])
    table = build_alias(topology, np.array(expected, float), of_nodes=True, empty="none").table
    assert made.table.tobytes() == table.tobytes()


def test_threads_do_not_matter_and_rows_without_weight_become_what_is_asked(weighted, tmp_path):
    one = build(weighted, "node:in_degree", "uniform")
    other = Store(tmp_path / "other"), *weighted[1:]
    two = build(other, "node:in_degree", "uniform", threads=2)
    assert one.version == two.version and one.files["table.npy"]["digest"] == two.files["table.npy"]["digest"]
    assert one.summary["numbers"]["num_empty_rows"] == 1  # node 3 is known by node 2 alone, which has no in-edges
    without = build(weighted, "node:in_degree", "none")
    assert "support.npy" in without.files
    assert all(check["passed"] for made in (one, without) for check in made.summary["checks"])
    (found,) = [check for check in one.summary["checks"] if check["name"] == NEVER]
    # Both edges from node 2 have no weight, and the one that is alone in its row is drawn all the same.
    assert one.summary["numbers"]["num_without_weight"] == 2 and found["numbers"]["edges that cannot be drawn"] == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"weights": "node:2"}, "the main feature table has the columns 0 to 1"),
        ({"weights": "node:year"}, "that feature table has 2 columns"),
        ({"weights": "node:in_degree"}, "the weights of all 1 in-neighbours of node 3 are all 0"),
    ],
)
def test_weights_that_are_not_there_are_refused(weighted, change, problem):
    with pytest.raises(InputError, match=problem) as caught:
        build(weighted, **change)
    assert caught.value.remedy


def test_a_negative_weight_and_a_graph_without_weights_are_refused(tmp_path):
    store = Store(tmp_path / "home")
    negative = write_tables(tmp_path, [1, 2, -3, 1, 1, 1, 1])
    graph = materialize(store, GRAPH, negative, Threads(threads=1), {})
    with pytest.raises(InputError, match=r"the weight -3.0 of the edge 3 -> 1 is negative"):
        build((store, graph, None))
    plain = config_class("rmat")(nodes=100, edges=300, features=2)
    graph = materialize(store, GRAPH, plain, Threads(threads=1), {})
    with pytest.raises(InputError, match="has no edge weights"):
        build((store, graph, None))


def test_a_broken_table_fails_its_checks(weighted):
    """A check that cannot fail says nothing: the counts behind both are given what they should find."""
    from graphmill.assets.sampling_tables.stage import _broken_rows, _checks

    indptr, support = np.array([0, 2]), np.array([2], np.int32)
    assert _broken_rows(np.array([[5, 7], [9, 0]], np.uint32), indptr, support) == 1  # an alias outside
    assert _broken_rows(np.array([[0, 1], [2**32 - 1, 0]], np.uint32), indptr, support) == 1  # mass without a threshold
    topology = open_graph(weighted[1]).topology
    assert [check.passed for check in _checks(1, 2, 1, topology) if isinstance(check, Check)] == [False, False]


def test_changing_the_method_builds_no_graph_anew_and_other_methods_have_no_tables():
    weighted = SamplingConfig(fanouts=(2,), method="weighted", weights="node:year")
    assert tables_config(weighted) == TablesConfig(weights="node:year", empty_rows="error")
    assert tables_config(SamplingConfig(fanouts=(2,))) is None
    assert weighted.feature_table == "year" and SamplingConfig(fanouts=(2,)).feature_table is None


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"method": "random_walk", "restart": 0.0}, "restart = 0.0 is not a probability"),
        ({"method": "random_walk", "restart": 1.01}, "restart = 1.01 is not a probability"),
        ({"method": "random_walk", "paths": 70, "length": 100}, r"paths \* length = 7000 visits are more than 6,553"),
        ({"method": "random_walk", "replace": True}, "replace = True is for method = 'uniform' or 'weighted'"),
        ({"weights": "node:x"}, "weights = 'node:x' is for method = 'weighted', not for 'uniform'"),
        ({"method": "weighted", "weights": "year"}, "weights = 'year' is neither"),
        ({"method": "walk"}, "method = 'walk' is neither uniform, weighted, random_walk nor module:function"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(table, problem):
    with pytest.raises(InputError, match=problem):
        SamplingConfig(fanouts=(2,), **table)


def test_weights_in_damaged_rows_are_refused(weighted):
    """Row 1 of the features; nothing else reads them."""
    rows = weighted[2].path / "rows.npy"
    flip(rows, 8 * (4096 + 8) + 5)
    with pytest.raises(InputError, match=r"rows\.npy is damaged"):
        build(weighted, "node:0")
