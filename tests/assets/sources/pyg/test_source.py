"""Graphs of PyG: every form of a file, what is read of it, and clear errors about what cannot be."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from graphmill.assets.features.read import node_types
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import Drawn, build, contents, write_npz

data = pytest.importorskip("torch_geometric.data")

MASKS = ("train_mask", "val_mask", "test_mask")
WRITES = [(0, 1), (4, 9), (2, 3)]
CITES = [(9, 0), (1, 2)]
X = np.arange(20, dtype=np.float32).reshape(10, 2)
KINDS = ("author", "writes", "paper"), ("paper", "cites", "paper")


def drawn_data(graph, **more):
    """`Data` with everything that all forms can hold."""
    masks = {mask: torch.tensor(graph.part == number) for number, mask in enumerate(MASKS)}
    edges = torch.tensor(np.stack([graph.src, graph.dst]))
    return data.Data(x=torch.tensor(graph.x), y=torch.tensor(graph.y), edge_index=edges, **masks, **more)


def typed_data():
    """Authors 0 to 4 and papers 5 to 14."""
    made = data.HeteroData()
    made["author"].num_nodes = 5
    made["paper"].x, made["paper"].y = torch.tensor(X), torch.tensor([0, 1] * 5)
    for kind, pairs in zip(KINDS, (WRITES, CITES), strict=True):
        made[kind].edge_index = torch.tensor(pairs).T
        made[kind].w = torch.arange(len(pairs)).float()[:, None]
    return made


def save(folder, what, name="graph.pt", **options):
    torch.save(what, folder / name, **options)
    return {"path": folder / name}


def ends(topology):
    """Sorted (source, destination, relation) of each edge."""
    dst = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    return sorted(zip(topology.indices.tolist(), dst.tolist(), np.asarray(topology.edge_types).tolist(), strict=True))


def old_data(graph):
    """`Data` as PyG 1 pickled it: the data in the object itself."""
    made = drawn_data(graph)
    state = made.to_dict()
    made.__dict__.clear()
    made.__dict__.update(state, pos=None)
    return made


FORMS = {
    "object": lambda made: made,
    "dictionary": lambda made: made.to_dict(),
    "one graph of a dataset": lambda made: (made.to_dict(), None, type(made)),
    "slices": lambda made: (made, {"x": torch.tensor([0, 60]), "edge_index": torch.tensor([0, 300])}),
}


@pytest.mark.parametrize("form", [*FORMS, "asked before", "PyG 1", "old file", "arrays"])
def test_every_form_of_a_file_is_the_same_graph(tmp_path, form):
    graph = Drawn()
    made = drawn_data(graph, num_nodes=graph.num_nodes)
    keys = None
    if form == "asked before":
        assert made.is_node_attr("x")  # fills a cache of sets, which is saved
        keys = save(tmp_path, made)
    elif form == "PyG 1":
        keys = save(tmp_path, old_data(graph))
    elif form == "old file":
        keys = save(tmp_path, made, _use_new_zipfile_serialization=False)
    elif form == "arrays":
        keys = save(
            tmp_path, {name: np.asarray(value) for name, value in made.to_dict().items() if name != "num_nodes"}
        )
    built = build(tmp_path / "home", "pyg", **(keys or save(tmp_path, FORMS[form](made))))
    assert contents(built) == contents(build(tmp_path / "npz", "npz", **write_npz(tmp_path, graph)))
    assert built.verify() == []


@pytest.mark.parametrize("form", ["object", "dictionary", "one graph of a dataset"])
def test_a_heterograph_becomes_typed(tmp_path, form):
    keys = save(tmp_path, FORMS[form](typed_data()))
    built = build(tmp_path, "pyg", **keys, undirected=False, weight="w")
    graph, numbers = built.opened, built.numbers
    expected = [(a, 5 + p, 0) for a, p in WRITES] + [(5 + p, 5 + q, 1) for p, q in CITES]
    assert ends(graph.topology) == sorted(expected)
    assert numbers["node_types"] == ["author", "paper"] and numbers["num_without_features"] == 5
    assert numbers["edge_types"] == ["author/writes/paper", "paper/cites/paper"]
    assert np.array_equal(built.table.open(), X) and graph.labels.tolist() == [-1] * 5 + [0, 1] * 5
    assert sorted(np.asarray(graph.topology.weights).tolist()) == [0, 0, 1, 1, 2]


def test_torch_geometric_is_neither_needed_nor_imported(tmp_path):
    keys = save(tmp_path, typed_data())
    code = f"""
import sys
from pathlib import Path
from graphmill.assets.sources.registry import config_class
sys.modules["torch_geometric"] = None
print(config_class("pyg")(path=Path({str(keys["path"])!r})).survey().num_nodes)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout == "15\n", done.stderr


def test_widths_of_types_may_differ_and_types_may_be_counted_by_their_edges(tmp_path):
    made = typed_data()
    del made["author"]["num_nodes"]
    made["venue"].x = torch.ones(4, 3, dtype=torch.bfloat16)
    made["paper", "in", "venue"].edge_index = torch.tensor([[0], [3]])
    built = build(tmp_path, "pyg", **save(tmp_path, made), table=TableConfig(dtype="float32"))
    types = node_types(built.opened.topology, built.table)
    assert built.numbers["node_types"] == ["author", "paper", "venue"]
    assert types is not None and types.starts == (0, 5, 15, 19) and types.columns == (0, 2, 3)
    assert np.array_equal(built.table.open()[10:], np.ones((4, 3)))


def test_numbers_of_relations_in_data(tmp_path):
    types = torch.tensor([1, 0, 1, 3])
    made = data.Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), edge_type=types, edge_attr=torch.ones(4, 1))
    keys = save(tmp_path, made)
    graph = build(tmp_path, "pyg", **keys, undirected=False, weight="edge_attr", edge_ids=True).opened
    assert np.asarray(graph.topology.edge_ids).tolist() == [0, 1, 2, 3], (
        "columns of edge_index, in the order of targets"
    )
    assert graph.relations == ("node/0/node", "node/1/node", "node/2/node", "node/3/node")
    assert ends(graph.topology) == [(0, 1, 1), (1, 2, 0), (2, 3, 1), (3, 4, 3)] and graph.topology.num_nodes == 5
    made.edge_index[1, 2] = 9
    made.num_nodes = 5
    with pytest.raises(InputError, match="'edge_index' column 2: 2 -> 9"):
        build(tmp_path, "pyg", **save(tmp_path, made))


def test_columns_of_masks_and_unknown_labels(tmp_path):
    made = data.Data(
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=torch.tensor([0.0, 1.0, float("nan"), 1.0])[:, None]
    )
    first, second = torch.tensor([True, False, False, False]), torch.tensor([False, True, False, False])
    made.train_mask, made.val_mask = torch.stack([first, second], 1), torch.stack([second, first], 1)
    made.test_mask = torch.tensor([False, False, False, True])[:, None].repeat(1, 2)
    keys = save(tmp_path, made)
    for split, node in ((0, 0), (1, 1)):
        graph = build(tmp_path, "pyg", **keys, split=split).opened
        assert graph.train_ids.tolist() == [node] and graph.labels.tolist() == [0, 1, -1, 1]
    with pytest.raises(InputError, match="split = 2, but there are 2"):
        build(tmp_path, "pyg", **keys, split=2)


def test_names_and_data_that_are_not_read(tmp_path):
    made = typed_data()
    made["paper"].year, made["paper"].emb, made.metadata_ = torch.ones(10), torch.ones(10, 4), "x"
    keys = save(tmp_path, made)
    survey = config_class("pyg")(**keys).survey()
    assert (
        "not read: data 'year', 'emb' of node type 'paper'; data 'w' of edges author/writes/paper; " in survey.notes[0]
    )
    assert "'metadata_' of the whole graph" in survey.notes[0]
    assert build(tmp_path, "pyg", **keys, table=TableConfig(columns="emb")).table.width == 4
    assert build(tmp_path, "pyg", **keys, feature="emb", label="y").table.width == 4
    with pytest.raises(InputError, match=r"'embd' \(did you mean 'emb'\?\)"):
        build(tmp_path, "pyg", **keys, feature="embd")
    del made["paper"]["x"], made["paper"]["y"]
    made["paper"].feat, made["paper"].labels, made["paper"].train_idx = torch.ones(10, 1), torch.ones(10), torch.ones(2)
    with pytest.raises(InputError) as raised:
        build(tmp_path, "pyg", **save(tmp_path, made))
    for meant in ('feature = "feat"', 'label = "labels"'):
        assert f"did you mean {meant}" in str(raised.value)
    del made["paper"]["labels"], made["paper"]["feat"], made["paper"]["train_idx"]
    made["paper"].valid_mask = torch.ones(10, dtype=torch.bool)
    with pytest.raises(InputError, match=r"'valid_mask' is not read .did you mean 'val_mask'"):
        build(tmp_path, "pyg", **save(tmp_path, made))


def change(**values):
    def changed(made):
        for name, value in values.items():
            made["paper" if not name.startswith("edge") else KINDS[1]][name] = value
        return made

    return changed


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (change(x=torch.ones(9, 2), num_nodes=10), r"node type 'paper': 'x' is float32\[9, 2\], not numbers \[10, F\]"),
        (change(x=torch.ones(10, 2).to_sparse()), "'x' is a sparse tensor"),
        (change(x=[1, 2]), "'x' is a list, not a tensor"),
        (change(x=torch.ones(10, 2, dtype=torch.complex64)), r"'x' is complex64\[10, 2\]"),
        (change(y=torch.ones(10, 3)), r"'y' has shape \[10, 3\]"),
        (change(num_nodes="ten"), "'num_nodes' is 'ten', not a number of nodes"),
        (
            change(edge_index=torch.ones(3, 2)),
            r"edges paper/cites/paper: 'edge_index' is float32\[3, 2\], not integers \[2, E\]",
        ),
        (change(edge_index=torch.tensor([[0], [11]])), "column 0: 0 -> 11"),
        (change(edge_index=None), "lacks edge_index"),
        (change(train_mask=torch.ones(10, dtype=torch.bool)), "lacks val_mask, test_mask"),
        (change(train_mask=torch.ones(4), val_mask=torch.ones(4), test_mask=torch.ones(4)), r"has shape \[4\]"),
    ],
)
def test_data_that_do_not_fit(tmp_path, changed, said):
    with pytest.raises(InputError, match=said):
        build(tmp_path, "pyg", **save(tmp_path, changed(typed_data())))


def test_several_mistakes_are_told_at_once(tmp_path):
    made = typed_data()
    made["author"].y = torch.zeros(5)
    made["paper"].x = torch.ones(3, 1)
    made["paper"].num_nodes = 10
    with pytest.raises(InputError) as raised:
        build(tmp_path, "pyg", **save(tmp_path, made))
    assert "the node types author, paper have labels" in str(raised.value) and "'x' is float32" in str(raised.value)


@pytest.mark.parametrize(("weight", "said"), [("v", r"no data 'v' of edges.*they have w"), ("w", "not weights")])
def test_weights_that_are_missing_or_several(tmp_path, weight, said):
    made = typed_data()
    if weight == "w":
        made[KINDS[0]].w = torch.ones(3, 2)
    with pytest.raises(InputError, match=said):
        build(tmp_path, "pyg", **save(tmp_path, made), weight=weight)


@pytest.mark.parametrize(
    ("made", "said", "remedy"),
    [
        (({"x": torch.ones(4)}, {"x": torch.tensor([0, 2, 4])}), "holds 2 graphs", "dataset"),
        ({"train": [0]}, "holds a dictionary of train, not a graph of PyG", "torch.save"),
        (torch.ones(3), "holds a Tensor, not a graph", "torch.save"),
        ({("a", "b"): {}}, "is neither a node type nor an edge type", "three of them"),
        ({"_global_store": {}, "paper": 3}, "holds an object of int where the data of a graph belong", "save it again"),
        ({"adj_t": torch.eye(3).to_sparse()}, "lacks edge_index and has adj_t", "save edge_index"),
        ({"_global_store": {}, "paper": {}}, "has no edges", "at least one edge"),
    ],
)
def test_files_of_something_else(tmp_path, made, said, remedy):
    with pytest.raises(InputError, match=said) as raised:
        build(tmp_path, "pyg", **save(tmp_path, made))
    assert remedy in raised.value.remedy


def test_numbers_of_relations_beyond_the_most(tmp_path):
    made = data.Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_type=torch.tensor([0, 256]))
    with pytest.raises(InputError, match="runs from 0 to 256"):
        build(tmp_path, "pyg", **save(tmp_path, made))
    made.edge_type = torch.ones(3)
    with pytest.raises(InputError, match=r"'edge_type' is float32\[3\], not integers \[2\]"):
        build(tmp_path, "pyg", **save(tmp_path, made))
