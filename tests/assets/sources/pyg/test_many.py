"""Lists of graphs as one graph whose node type `graph` has the labels, and a training of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe


def rings(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rings of several sizes; those of class 1 have a chord. Each node's features are its number of neighbours."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        size, chord = int(rng.integers(4, 9)), number % 2
        one = np.array([(i, (i + 1) % size) for i in range(size)] + [(0, 2)] * chord).T
        ends = np.concatenate([one, one[::-1]], axis=1)
        x = (np.bincount(ends[1], minlength=size)[:, None] == np.arange(5)).astype(np.float32)
        found.append({"x": torch.from_numpy(x), "edge_index": torch.from_numpy(ends), "y": torch.tensor([chord])})
    return found


def opened(folder: Path, graphs: Any, **table: Any) -> Any:
    torch.save(graphs, folder / "graphs.pt")
    graph = {"source": "pyg", "path": "graphs.pt", "undirected": False}
    train = {
        "name": "sage",
        "layers": 2,
        "hidden": 16,
        "input": "typed",
        "epochs": 15,
        "lr": 0.01,
        "threads": 1,
    } | table
    path = folder / "rings.toml"
    path.write_text(recipe(train, graph=graph, sampling={"fanouts": [-1, -1], "batch_size": 32}))
    pipeline, store = load_pipeline(path, TrainTable), Store(folder / "home")
    return pipeline, store, build_config(store.home, pipeline.graph, threads=1)


def test_each_graph_is_a_part_with_a_node_of_its_own(tmp_path: Path) -> None:
    graphs = rings(9)
    graphs[4].pop("y")
    built = opened(tmp_path, graphs)[2].opened
    sizes = [len(each["x"]) for each in graphs]
    first, nodes = np.cumsum([0, *sizes]), sum(sizes)
    assert built.node_types == ("graph", "node") or built.node_types == ("node", "graph")
    starts = dict(zip(built.node_types, built.topology.node_type_ptr[:-1].tolist(), strict=True))
    labels = built.labels[starts["graph"] : starts["graph"] + 9].tolist()
    assert labels == [-1 if number == 4 else number % 2 for number in range(9)]
    assert (built.labels == -1).sum() == nodes + 1
    topology = built.topology
    ends = {
        (int(source), int(target))
        for target in range(topology.num_nodes)
        for source in topology.indices[topology.indptr[target] : topology.indptr[target + 1]]
    }
    at = starts["node"]
    expected = {
        (at + first[place] + int(u), at + first[place] + int(v))
        for place, each in enumerate(graphs)
        for u, v in each["edge_index"].T.tolist()
    }
    owner = np.repeat(np.arange(9), sizes)
    expected |= {(at + node, starts["graph"] + int(owner[node])) for node in range(nodes)}
    assert ends == expected


def test_a_model_tells_graphs_apart_by_their_edges(tmp_path: Path) -> None:
    pipeline, store, built = opened(tmp_path, rings(240))
    (model,) = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    assert model.summary["numbers"]["test_accuracy"] > 0.95


def changed(number: int, **data: Any) -> list[dict[str, Any]]:
    graphs = rings(6)
    graphs[number] |= data
    return graphs


MISTAKES = {
    "an edge of another graph": (
        changed(3, edge_index=torch.tensor([[0, 1], [1, 99]])),
        "graph 3: edge 1, 1 -> 99, leads out of",
    ),
    "labels of nodes": (changed(2, y=torch.tensor([0, 1])), "graph 2: y has 2 rows"),
    "features of another width": (
        changed(5, x=torch.ones(rings(6)[5]["x"].shape[0], 7)),
        r"x of the graphs .*\[5\], and \[7\]",
    ),
    "edges in rows": (changed(1, edge_index=torch.zeros(4, 2, dtype=torch.int64)), "graph 1: its edges are"),
    "something else": ([*rings(2), 5], "graph 2 of its 3 is not a Data object"),
    "no labels": ([{name: each[name] for name in ("x", "edge_index")} for each in rings(3)], "no graph has a label y"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_list_that_is_no_set_of_graphs_is_told_with_the_graph(tmp_path: Path, name: str) -> None:
    graphs, said = MISTAKES[name]
    with pytest.raises(InputError, match=said):
        opened(tmp_path, graphs)
