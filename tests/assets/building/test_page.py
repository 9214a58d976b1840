from types import MappingProxyType

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.page import Page, ordered, table_of
from graphmill.assets.graph.stage import GRAPH, GRAPH_PAGE
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    config = config_class("sbm")(source="sbm", nodes=60, edges=240)
    return materialize(Store(tmp_path_factory.mktemp("home")), GRAPH, config, Threads(threads=1), {})


def test_what_matters_most_comes_first_and_lists_last():
    page = Page(about="", docs="", first=("b", "absent", "a"))
    assert ordered(page, {"list": [1], "a": 1, "x": 2, "b": 3, "table": {}}) == ["b", "a", "x", "list", "table"]
    assert ordered(None, {"list": [1], "a": 1}) == ["a", "list"]
    drawn = [
        "adam_bytes",
        "build_seconds",
        "device_memory_bytes",
        "hit_ratio_lru_5_percent",
        "num_edges",
        "test_accuracy",
    ]
    by_worth = [drawn[3], drawn[5], drawn[1], drawn[2], drawn[0], drawn[4]]
    assert ordered(None, dict.fromkeys(drawn, 1)) == by_worth
    assert ordered(Page(about="", docs="", first=("num_edges",)), dict.fromkeys(drawn, 1))[0] == "num_edges"


def test_the_columns_of_a_table_are_the_arrays_that_are_there(graph):
    num_rows, columns = table_of(GRAPH_PAGE, graph)
    assert num_rows == 60 == len(np.asarray(graph.array("labels")))
    arrays = dict.fromkeys(("in_degree", "out_degree", "labels"), "int32")
    of_file = {"node_id": "int64", "original_id": "int64", "name": "string", "class": "string"}
    assert {name: kind for name, (kind, _) in columns.items()} == arrays | of_file
    assert table_of(Page(about="", docs=""), graph) == (0, {})


def test_columns_of_different_lengths_are_no_table(graph):
    page = Page(about="", docs="", columns=MappingProxyType({"labels": "", "train_ids": ""}))
    with pytest.raises(AssertionError, match=r"columns of graph/.* have \[36, 60\] rows"):
        table_of(page, graph)


def test_a_headline_is_made_of_the_numbers(graph):
    numbers = graph.summary["numbers"]
    line = GRAPH_PAGE.headline([graph])
    assert line.startswith(f"**60 nodes, {numbers['num_edges']} edges**") and "36 / 12 / 12 nodes to train" in line
