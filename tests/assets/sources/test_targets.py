"""Several labels and numbers per node: every reader that has them reads the same values, and refuses wrong ones with their row."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.edges.source import EdgesConfig
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.assets.sources.tables.source import TypedTablesConfig
from graphmill.assets.tasks.labels import Kind, labelled
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


ORDER = np.random.default_rng(0).permutation(NODES)


def lists(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """A column of lists, in rows of another order than the ids."""
    frame = pl.DataFrame({"id": np.arange(NODES), "a": pl.Series(y.tolist(), dtype=pl.List(pl.Float64))})
    frame[ORDER].write_parquet(folder / "nodes.parquet")
    pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_parquet(folder / "edges.parquet")
    node = NodeTable(path=folder / "nodes.parquet", label_columns="a")
    edge = RelationTable(path=folder / "edges.parquet", source_type="n", target_type="n")
    return build_config(folder / "home", TypedTablesConfig(nodes={"n": node}, edges={"e": edge}, task=kind))


def edges(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """Columns beside a table of edges, in rows of another order than the ids."""
    columns = {f"a{place}": pl.Series(each, dtype=pl.Float64).fill_nan(None) for place, each in enumerate(y.T)}
    pl.DataFrame({"id": np.arange(NODES), **columns})[ORDER].write_csv(folder / "nodes.csv")
    pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_parquet(folder / "edges.parquet")
    keys = {"edges": folder / "edges.parquet", "nodes": folder / "nodes.csv", "label_columns": "a*"}
    return build(folder / "home", "edges", task=kind, **keys)


def ogb(folder: Path, kind: Kind, y: np.ndarray) -> Built:
    """The layout of ogbn-proteins: text without features, a column per label, and the species of the nodes, which is not read."""
    raw = folder / "raw"
    raw.mkdir()
    counts = {"num-node-list": [[NODES]], "num-edge-list": [[EDGES.shape[1]]]}
    text = counts | {"edge": EDGES.T, "node-label": y, "node_species": [[3]] * NODES}
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


READERS: dict[str, Any] = {each.__name__: each for each in (npz, pyg, dgl, lists, edges, ogb, ogb_binary, ogb_arrays)}


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


BAD: dict[Kind, tuple[list[float], str]] = {
    "multilabel": ([2.0, 0.5, -2.0, np.inf], "a label is 0 or 1"),
    "regression": ([np.inf, -np.inf, 1e39], "a target is a finite number"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_every_source_refuses_a_drawn_wrong_value_with_its_row(tmp_path: Path, reader: str, kind: Kind) -> None:
    """One message says where the value is and what a value may be; rows of tables are counted as they lie in the file."""
    rng = np.random.default_rng([KINDS.index(kind), [*READERS].index(reader)])
    values, why = BAD[kind]
    for number, value in enumerate(values):
        y = LABELS[kind].copy()
        node, column = int(rng.integers(NODES)), int(rng.integers(y.shape[1]))
        y[node, column] = value
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(InputError) as caught:
            READERS[reader](folder, kind, y)
        row = int(np.flatnonzero(node == ORDER)[0]) if reader in ("lists", "edges") else node
        said = str(caught.value)
        assert re.search(rf"(node|row) {row}\b.*column .* is {re.escape(str(value))}: {why}", said), (said, row)
        assert said.count(why) == said.count("remedy: ") == 1, said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_every_source_refuses_a_column_that_no_node_has(tmp_path: Path, reader: str, kind: Kind) -> None:
    y = LABELS[kind].copy()
    y[:, 1] = np.nan
    name = {"lists": "a.1", "edges": "a1"}.get(reader, "1")
    with pytest.raises(InputError) as caught:
        READERS[reader](tmp_path, kind, y)
    said = str(caught.value)
    assert f"the column '{name}' is unknown of all nodes" in said and said.count("remedy: ") == 1, said


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_no_training_node_has_is_refused(tmp_path: Path, kind: Kind) -> None:
    y = LABELS[kind].copy()
    y[:4, 1] = np.nan
    parts = {"train": np.arange(2), "val": np.array([4, 5]), "test": np.array([6, 7])}
    np.savez(tmp_path / "graph.npz", edge_index=EDGES, num_nodes=np.int64(NODES), y=y, **parts)
    with pytest.raises(InputError, match="the column '1' is unknown of all training nodes"):
        build(tmp_path / "home", "npz", path=tmp_path / "graph.npz", task=kind)


WRONG: dict[str, tuple[Kind, np.ndarray, str]] = {
    "a whole label of 2": ("multilabel", np.array([[0, 1], [2, 0]] * 4), "node 1, column 0 is 2: a label is 0 or 1"),
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


@pytest.mark.parametrize("kind", KINDS)
def test_papers_alone_have_drawn_labels(tmp_path: Path, kind: Kind) -> None:
    keys: dict[str, Any] = {"nodes": 6000, "edges": 20_000, "features": 4, "classes": 8, "labelled": 0.7}
    one, two = (build(tmp_path / str(n), "typed_citation", task=kind, threads=n, **keys) for n in (1, 3))
    assert one.graph.version == two.graph.version and one.opened.labels.tobytes() == two.opened.labels.tobytes()
    plain, papers = build(tmp_path / "plain", "typed_citation", **keys).opened, round(6000 * 0.4986)
    assert (one.opened.topology.indices == plain.topology.indices).all()
    assert (labelled(one.opened.labels) == labelled(plain.labels)).all() and not labelled(one.opened.labels)[
        papers:
    ].any()
    name, value = {"multilabel": ("best_f1_micro", 0.918), "regression": ("best_r2", 0.8)}[kind]
    assert one.numbers[name] == pytest.approx(value, abs=0.02)
    assert one.opened.num_classes == {"multilabel": 8, "regression": 1}[kind]


FOREIGN: list[tuple[Kind, dict[str, Any], str]] = [
    ("classes", {"label_columns": "a*"}, 'label_columns is for .task. kind = "multilabel" or "regression"'),
    ("regression", {"label_columns": "a*", "label_column": "y"}, "label_columns beside label_column: give one of them"),
    ("regression", {"label_column": "y", "no_label": (-999,)}, r"no_label = \[-999\] is for classes: of .task. kind = 'regression'"),
    ("multilabel", {"label_column": "y", "labels": "names"}, "labels = 'names' is for classes: of .task. kind = 'multilabel'"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "text"), FOREIGN)
def test_a_key_of_labels_that_has_no_meaning_is_refused_of_both_kinds_of_tables(
    kind: Kind, keys: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        EdgesConfig(edges=Path("e.csv"), nodes=Path("n.csv"), task=kind, **keys)
    edge = RelationTable(path=Path("e.csv"), source_type="n", target_type="n")
    with pytest.raises(InputError, match=f"graph.nodes.n.{text}"):
        TypedTablesConfig(nodes={"n": NodeTable(path=Path("n.csv"), **keys)}, edges={"e": edge}, task=kind)


def test_all_mistakes_of_tables_of_edges_are_told_at_once(tmp_path: Path) -> None:
    """A wrong label, a wrong part of the split and a column of words, each with its row."""
    rows = "".join(f"{i},{i % 2},0,train\n" for i in range(NODES - 2)) + "6,2,0,train\n7,1,0,tran\n"
    (tmp_path / "nodes.csv").write_text(f"id,a,b,part\n{rows}")
    pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_csv(tmp_path / "edges.csv")
    keys = {"edges": tmp_path / "edges.csv", "nodes": tmp_path / "nodes.csv", "split_column": "part"}
    with pytest.raises(InputError) as caught:
        build(tmp_path / "home", "edges", task="multilabel", label_columns=("a", "b"), **keys)
    said = str(caught.value)
    assert (
        "2 mistakes" in said and "column 'a' is 2.0: a label is 0 or 1" in said and "column 'part' holds 'tran'" in said
    )
    with pytest.raises(InputError, match=r"no column fits label_columns = 'c\*'"):
        build(tmp_path / "home", "edges", task="multilabel", label_columns="c*", **keys)


def test_encoders_are_fitted_on_the_training_nodes_that_labels_draw(tmp_path: Path) -> None:
    """Each target that decides the drawn split enters the version of encoded features, and nothing else of the table of nodes does."""

    def version(y: np.ndarray, note: str, **keys: Any) -> str:
        frame = {"id": np.arange(NODES), "a": y, "city": [*"uvuvuvuv"], "note": [note] * NODES}
        pl.DataFrame(frame).write_parquet(tmp_path / "nodes.parquet")
        pl.DataFrame({"src": EDGES[0], "dst": EDGES[1]}).write_parquet(tmp_path / "edges.parquet")
        keys |= {"edges": tmp_path / "edges.parquet", "nodes": tmp_path / "nodes.parquet", "features": "city"}
        table = TableConfig(encode="auto")
        return build(tmp_path / "home", "edges", table=table, task="regression", label_columns="a", **keys).versions[1]

    y = np.arange(NODES) / 2
    one = version(y, "x")
    assert one == version(y, "y") and one != version(np.where(y == 1, np.nan, y), "x")
