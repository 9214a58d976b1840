"""All graphs of a DGL file as one graph: that of PyG's list of the same graphs, and mistakes told with the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build
from tests.assets.sources.pyg.test_many import opened, rings

dgl = pytest.importorskip("dgl")
ARRAYS = ("indptr", "indices", "edge_types", "node_type_ptr")


def graph_of(ring: dict[str, Any]) -> Any:
    source, target = ring["edge_index"]
    graph = dgl.graph((source, target), num_nodes=len(ring["x"]))
    graph.ndata["feat"] = ring["x"]
    return graph


def built(folder: Path, graphs: list[Any], beside: dict[str, Any], **keys: Any) -> Any:
    dgl.save_graphs(str(folder / "graphs.bin"), graphs, beside)
    keys = {"index": "all", "undirected": False} | keys
    return build(folder / "dgl", "dgl", path=folder / "graphs.bin", **keys)


@pytest.mark.parametrize("saved", ["coo", "csc"])
def test_the_graph_is_that_of_the_same_list_of_pyg(tmp_path: Path, saved: str) -> None:
    graphs = rings(9)
    labels = torch.cat([each["y"] for each in graphs])
    mine = built(tmp_path, [graph_of(each).formats(saved) for each in graphs], {"label": labels})
    theirs = opened(tmp_path, graphs)[2]
    assert mine.opened.node_types == theirs.opened.node_types
    np.testing.assert_array_equal(mine.opened.labels, theirs.opened.labels)
    if saved == "coo":
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(mine.opened.topology, name), getattr(theirs.opened.topology, name))
    rows, other = (each.table.open() for each in (mine, theirs))
    np.testing.assert_array_equal(rows, other)


def test_a_single_graph_is_read_as_before(tmp_path: Path) -> None:
    graphs = [graph_of(each) for each in rings(3)]
    graphs[1].ndata["label"] = torch.arange(graphs[1].num_nodes()) % 2
    found = built(tmp_path, graphs, {"label": torch.zeros(3)}, index=1)
    assert found.opened.topology.num_nodes == graphs[1].num_nodes()
    assert any("2 other graphs" in each for each in found.graph.summary["unread"])


def typed() -> Any:
    return dgl.heterograph({("a", "to", "b"): ([0], [0])})


@pytest.mark.parametrize(
    ("graphs", "beside", "keys", "said"),
    [
        ([graph_of(each) for each in rings(3)], {"y": torch.zeros(3)}, {}, "no tensor 'label' beside them; it has y"),
        (
            [graph_of(each) for each in rings(3)],
            {"y": torch.zeros(2)},
            {"label": "y"},
            r"'y' is \[2\], and the file has 3",
        ),
        ([graph_of(rings(1)[0]), typed()], {"label": torch.zeros(2)}, {}, "graph 1 has several types"),
    ],
)
def test_what_is_no_list_of_labelled_graphs_is_told(
    tmp_path: Path, graphs: list[Any], beside: dict[str, Any], keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        built(tmp_path, graphs, beside, **keys)
