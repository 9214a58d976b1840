"""Several labels and numbers per node: every reader that has them reads the same values, and refuses wrong ones with their row."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.tables.source import TypedTablesConfig
from graphmill.assets.tasks.labels import Kind
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import Built, build, build_config

pytestmark = pytest.mark.usefixtures("quick_readers")

NODES = 8
EDGES = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 0]])
LABELS: dict[Kind, np.ndarray] = {
    "multilabel": np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [np.nan] * 3, [1, 1, 1], [0, np.nan, 1], [0, 1, 0], [1, 0, 1]]),
    "regression": np.array([[0.5, -3], [2, 1e6], [np.nan] * 2, [7, 8], [1, np.nan], [-2, 0], [3, 3], [4, 1e-9]]),
}  # fmt: skip
KINDS = list(LABELS)


def stored(kind: Kind) -> np.ndarray:
    """The labels as a graph holds them."""
    values = LABELS[kind]
    return np.where(np.isnan(values), -1, values).astype(np.int8) if kind == "multilabel" else values.astype(np.float32)


def npz(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    np.savez(folder / "graph.npz", edge_index=EDGES, num_nodes=np.int64(NODES), y=y)
    return build(folder / "home", "npz", path=folder / "graph.npz", task=kind)


def pyg(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    data = pytest.importorskip("torch_geometric.data")
    torch.save(data.Data(edge_index=torch.from_numpy(EDGES), y=torch.from_numpy(y), num_nodes=NODES), folder / "g.pt")
    return build(folder / "home", "pyg", path=folder / "g.pt", task=kind)


def dgl(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    library = pytest.importorskip("dgl")
    graph = library.graph((torch.from_numpy(EDGES[0]), torch.from_numpy(EDGES[1])), num_nodes=NODES)
    graph.ndata["label"] = torch.from_numpy(y)
    library.save_graphs(str(folder / "g.dgl"), [graph])
    return build(folder / "home", "dgl", path=folder / "g.dgl", task=kind)


def lists(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """A column of lists, in rows of another order than the ids."""
    order = np.random.default_rng(0).permutation(NODES)
    frame = pl.DataFrame({"id": np.arange(NODES), "a": pl.Series(y.tolist(), dtype=pl.List(pl.Float64))})
    frame[order].write_parquet(folder / "nodes.parquet")
    pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_parquet(folder / "edges.parquet")
    node = NodeTable(path=folder / "nodes.parquet", label_columns="a")
    edge = RelationTable(path=folder / "edges.parquet", source_type="n", target_type="n")
    return build_config(folder / "home", TypedTablesConfig(nodes={"n": node}, edges={"e": edge}, task=kind))


def edges(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """Columns beside a table of edges, in rows of another order than the ids."""
    order = np.random.default_rng(1).permutation(NODES)
    columns = {f"a{place}": pl.Series(each, dtype=pl.Float64).fill_nan(None) for place, each in enumerate(y.T)}
    pl.DataFrame({"id": np.arange(NODES), **columns})[order].write_csv(folder / "nodes.csv")
    pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_parquet(folder / "edges.parquet")
    keys = {"edges": folder / "edges.parquet", "nodes": folder / "nodes.csv", "label_columns": "a*"}
    return build(folder / "home", "edges", task=kind, **keys)


def ogb(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """The layout of ogbn-proteins: text without features, a column per label, and the species of the nodes, which is not read."""
    raw = folder / "raw"
    raw.mkdir()
    text = {"edge": EDGES.T, "num-node-list": [[NODES]], "num-edge-list": [[EDGES.shape[1]]], "node-label": y, "node_species": [[3]] * NODES}  # fmt: skip
    for name, rows in text.items():
        lines = (",".join("" if value != value else f"{value:g}" for value in row) for row in rows)
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return build(folder / "home", "ogb", path=folder, split="random", task=kind)


def ogb_binary(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """The layout of ogbn-papers100M."""
    (folder / "raw").mkdir()
    counts = {"num_nodes_list": np.array([NODES]), "num_edges_list": np.array([EDGES.shape[1]])}
    np.savez(folder / "raw" / "data.npz", edge_index=EDGES, **counts)
    np.savez(folder / "raw" / "node-label.npz", node_label=y)
    return build(folder / "home", "ogb", path=folder, split="random", task=kind)


def ogb_arrays(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """The layout of MAG240M."""
    (folder / "processed" / "paper___cites___paper").mkdir(parents=True)
    (folder / "processed" / "paper").mkdir()
    np.save(folder / "processed" / "paper___cites___paper" / "edge_index.npy", EDGES)
    np.save(folder / "processed" / "paper" / "node_label.npy", y)
    return build(folder / "home", "ogb", path=folder, split="random", task=kind)


READERS: dict[str, Any] = {
    each.__name__: each for each in (npz, pyg, dgl, lists, edges, ogb, ogb_binary, ogb_arrays)
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_label_matrices_arrive_where_they_belong(tmp_path: Path, reader: str, kind: Kind) -> None:
    built = READERS[reader](tmp_path, kind, LABELS[kind])
    graph = built.opened
    assert graph.task == kind and graph.labels.dtype == stored(kind).dtype
    np.testing.assert_array_equal(graph.labels, stored(kind))
    assert graph.num_classes == LABELS[kind].shape[1] and built.numbers["num_labelled"] == NODES - 1
    known = {*np.flatnonzero(~np.isnan(LABELS[kind]).all(axis=1)).tolist()}
    assert {*np.concatenate(graph.splits).tolist()} == known
    assert all(check["passed"] for check in built.graph.summary["checks"]) and built.verify() == []
    assert {check["name"] for check in built.graph.summary["checks"]} == set(GRAPH.expected_checks(configured(kind)))


def configured(kind: Kind) -> Any:
    """A configuration of the kind."""
    node, edge = NodeTable(num_nodes=3), RelationTable(path=Path("e.csv"), source_type="n", target_type="n")
    return TypedTablesConfig(nodes={"n": node}, edges={"e": edge}, task=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_columns_of_a_table_are_labels_by_their_names(tmp_path: Path, form: str, kind: Kind) -> None:
    width = LABELS[kind].shape[1]
    columns = dict(zip("abc", LABELS[kind].T, strict=False))
    frame = pl.DataFrame({"id": np.arange(NODES), **{k: pl.Series(v).fill_nan(None) for k, v in columns.items()}})
    write = {"csv": "write_csv", "parquet": "write_parquet"}[form]
    getattr(frame[::-1], write)(tmp_path / f"nodes.{form}")
    getattr(pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}), write)(tmp_path / f"edges.{form}")
    node = NodeTable(path=tmp_path / f"nodes.{form}", label_columns=tuple("abc"[:width]))
    edge = RelationTable(path=tmp_path / f"edges.{form}", source_type="n", target_type="n")
    built = build_config(tmp_path / "home", TypedTablesConfig(nodes={"n": node}, edges={"e": edge}, task=kind))
    np.testing.assert_array_equal(built.opened.labels, stored(kind))
    assert built.opened.class_names == tuple("abc"[:width])


WRONG: dict[str, tuple[Kind, np.ndarray, str]] = {
    "a label of 2": ("multilabel", np.array([[0, 1], [2, 0]] * 4), "node 1, column 0 is 2: a label is 0 or 1"),
    "half a label": ("multilabel", np.array([[0, 1], [0, 0.5]] * 4), "node 1, column 1 is 0.5: a label is 0 or 1"),
    "an infinite target": ("regression", np.array([[0, np.inf]] * 8), "node 0, column 1 is inf: a target is a finite number"),
    "beyond float32": ("regression", np.array([[0, 1e39]] * 8), "node 0, column 1 is 1e[+]39: a target is a finite number"),
    "a target of no node": ("regression", np.array([[0.0, np.nan]] * 8), "column '1' is unknown of all nodes"),
    "a label of no node": ("multilabel", np.array([[-1, 1]] * 8), "column '0' is unknown of all nodes"),
    "too few rows": ("regression", np.zeros((7, 2)), r"has shape \[7, 2\], not \[8, C\]|disagree about the number"),
    "text": ("regression", np.array([["a"]] * 8), "is <U1, not numbers"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_is_refused_with_its_row(tmp_path: Path, wrong: str) -> None:
    kind, values, text = WRONG[wrong]
    with pytest.raises(InputError, match=text):
        npz(tmp_path, kind, values)


@pytest.mark.parametrize(("held", "text"), [("2", "is 2.0: a label is 0 or 1"), ("blue", "'blue'")])
def test_a_wrong_field_of_a_table_is_named_with_its_line(tmp_path: Path, held: str, text: str) -> None:
    (tmp_path / "nodes.csv").write_text("id,a,b\n" + "".join(f"{i},1,0\n" for i in range(NODES - 1)) + f"7,1,{held}\n")
    pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_csv(tmp_path / "edges.csv")
    node = NodeTable(path=tmp_path / "nodes.csv", label_columns=("a", "b"))
    edge = RelationTable(path=tmp_path / "edges.csv", source_type="n", target_type="n")
    with pytest.raises(InputError, match=rf"row 7 \(line 9\): column 'b'.*{text}"):
        build_config(tmp_path / "home", TypedTablesConfig(nodes={"n": node}, edges={"e": edge}, task="multilabel"))


def test_a_kind_is_part_of_the_version_and_classes_are_not(tmp_path: Path) -> None:
    y = np.array([0, 1] * 4)
    versions = [npz(tmp_path, kind, y).graph.version for kind in ("classes", "multilabel", "regression")]
    assert len({*versions}) == 3
    np.savez(tmp_path / "graph.npz", edge_index=EDGES, num_nodes=np.int64(NODES), y=y)
    assert build(tmp_path / "home", "npz", path=tmp_path / "graph.npz").graph.version == versions[0]


@pytest.mark.parametrize("kind", KINDS)
def test_generated_labels_have_a_known_best_score(tmp_path: Path, kind: Kind) -> None:
    keys: dict[str, Any] = {"nodes": 3000, "edges": 9000, "features": 4, "classes": 8, "labelled": 0.7}
    one, two = (build(tmp_path / str(n), "sbm", task=kind, threads=n, **keys) for n in (1, 3))
    assert one.graph.version == two.graph.version and one.opened.labels.tobytes() == two.opened.labels.tobytes()
    plain = build(tmp_path / "plain", "sbm", **keys).opened
    assert (one.opened.topology.indices == plain.topology.indices).all()
    name, value = {"multilabel": ("best_f1_micro", 0.918), "regression": ("best_r2", 0.8)}[kind]
    assert one.numbers[name] == pytest.approx(value, abs=0.02)
    assert one.numbers["num_labelled"] == plain.train_ids.size + plain.valid_ids.size + plain.test_ids.size
