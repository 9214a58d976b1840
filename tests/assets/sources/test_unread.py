"""What a source holds and nothing reads: named by the survey and by the line of the build, in every form of data."""

import numpy as np
import polars as pl
import pytest

from graphmill.assets.building.labels import built_in_words
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sources.registry import config_class
from graphmill.assets.sources.unread import named_columns, unread_words
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.sources.own_data import FORMS, Drawn, build, edge_frame, node_frame, write_gz

pytestmark = pytest.mark.usefixtures("quick_readers")


def with_npz(folder, keys):
    with np.load(keys["path"]) as archive:
        np.savez(keys["path"], **archive, edge_attr=np.ones((300, 2)), year=np.zeros(60))
    return ["arrays edge_attr, year"]


def with_parquet(folder, keys):
    pl.read_parquet(keys["nodes"]).with_columns(pl.lit(3).alias("price")).write_parquet(keys["nodes"])
    for path in folder.glob("edges-*.parquet"):
        pl.read_parquet(path).with_columns(pl.lit(0.5).alias("w"), pl.lit("a").alias("kind")).write_parquet(path)
    return ["columns w, kind of the edge tables", "column price of the node tables"]


def with_csv(folder, keys):
    pl.read_csv(keys["edges"]).with_columns(pl.lit(0.5).alias("strength")).write_csv(keys["edges"])
    return ["column strength of the edge tables"]


def with_ogb_text(folder, keys):
    write_gz(keys["path"] / "raw" / "edge-feat.csv.gz", [[0.5]] * 300)
    write_gz(keys["path"] / "raw" / "node_year.csv.gz", [[2000]] * 60)
    return ["files raw/edge-feat.csv.gz, raw/node_year.csv.gz"]


def with_ogb_binary(folder, keys):
    path = keys["path"] / "raw" / "data.npz"
    with np.load(path) as archive:
        np.savez(path, **archive, edge_feat=np.ones((300, 4)))
    return ["array edge_feat of raw/data.npz"]


def with_dgl(folder, keys):
    import dgl
    import torch

    (graph,), _ = dgl.load_graphs(str(keys["path"]))
    graph.edata["w"], graph.ndata["age"] = torch.ones(300), torch.ones(60)
    dgl.save_graphs(str(keys["path"]), [graph])
    return ["ndata 'age' of node type '_N'", "edata 'w' of edges _N/_E/_N"]


def with_pyg(folder, keys):
    import torch

    made = torch.load(keys["path"], weights_only=True)
    torch.save(made | {"age": torch.ones(60), "edge_attr": torch.ones(300, 2), "title": "drawn"}, keys["path"])
    return ["data 'age', 'title' of nodes", "data 'edge_attr' of edges"]


MORE = {
    "npz": with_npz,
    "Parquet": with_parquet,
    "CSV": with_csv,
    "OGB text": with_ogb_text,
    "OGB binary": with_ogb_binary,
    "DGL": with_dgl,
    "PyG": with_pyg,
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_read_is_named(tmp_path, form):
    source, write = FORMS[form]
    keys = write(tmp_path, Drawn())
    built = build(tmp_path / "home", source, **keys)
    assert "unread" not in built.graph.run_record() and "not read" not in built_in_words(built.graph, False)
    phrases = MORE[form](tmp_path, keys)
    survey = config_class(source)(**keys).survey()
    assert f"not read: {'; '.join(phrases)}" in survey.notes
    again = build(tmp_path / "second", source, **keys)
    assert again.graph.run_record()["unread"] == phrases
    assert built_in_words(again.graph, False).endswith(f"; not read: {'; '.join(phrases)}")
    assert "not read" not in built_in_words(again.graph, True)  # once: by the build


def test_columns_that_a_feature_table_names_are_read(tmp_path):
    graph = Drawn()
    edge_frame(graph).write_csv(tmp_path / "e.csv")
    node_frame(graph).with_columns(pl.lit(1).alias("age"), pl.lit(2).alias("size")).write_csv(tmp_path / "n.csv")
    path = tmp_path / "p.toml"
    path.write_text(
        '[graph]\nsource = "edges"\nedges = "e.csv"\nnodes = "n.csv"\nlabel_column = "y"\n[features]\ncolumns = "f*"\n'
        '[features.sizes]\ncolumns = ["size"]\n'
    )
    config = load_pipeline(path, TrainTable).graph
    assert config.feature_columns == ("f*", "size")
    notes = config.survey().notes
    assert "not read: columns part, age of the node tables" in notes
    assert named_columns({"columns": 3, "a": {"columns": [1, "b"]}, "c": 7}) == ("b",)
    assert named_columns("wrong") == ()


def test_weights_of_an_adjacency_matrix_and_masks_beside_ids(tmp_path):
    adjacency = {"adj_indptr": np.array([0, 1, 2]), "adj_indices": np.array([1, 0]), "adj_shape": np.array([2, 2])}
    for data, said in ((np.ones(2), []), (np.array([1, 0.5]), ["array adj_data (weights of edges)"])):
        np.savez(tmp_path / "a.npz", **adjacency, adj_data=data, labels=np.array([0, 1]))
        built = build(tmp_path / "home", "npz", path=tmp_path / "a.npz")
        assert built.graph.run_record().get("unread", []) == said
    lists = {"train": np.array([0]), "val": np.array([1]), "test": np.array([2])}
    masks = {f"{name}_masks": np.arange(3) == place for place, name in enumerate(lists)}
    np.savez(tmp_path / "b.npz", edge_index=np.array([[0, 1], [1, 2]]), y=np.array([0, 1, 0]), **lists, **masks)
    for split, said in ((None, "arrays train_masks, val_masks, test_masks"), (0, "arrays train, val, test")):
        assert build(tmp_path / "home", "npz", path=tmp_path / "b.npz", split=split).graph.run_record()["unread"] == [
            said
        ]


def test_a_long_list_is_cut():
    assert unread_words("column", "columns", []) == []
    assert unread_words("column", "columns", "abcdefghij", " of it") == [
        "columns a, b, c, d, e, f, g, h and 2 more of it"
    ]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(("buyers", "things"), [([0, 1, 2, 7], [7, 5, 1, 0]), (list("abcd"), list("daxy"))])
def test_ids_of_both_ends_are_counted(tmp_path, form, buyers, things):
    shared = len({*buyers} & {*things})
    frame = pl.DataFrame({"buyer": buyers, "thing": things})
    path = tmp_path / f"bought.{form}"
    getattr(frame, f"write_{form}")(path)
    keys = {"edges": path, "source_column": "buyer", "target_column": "thing"}
    built = build(tmp_path / "home", "edges", **keys).graph
    assert built.summary["numbers"]["num_ids_of_both_ends"] == shared
    assert f"{shared} ids stand in both columns" in built_in_words(built, False)
    contents = config_class("edges")(**keys).survey().contents
    assert any(
        f"ids of buyer and thing are one space: {shared} of {8 - shared} stand in both" in line for line in contents
    )


def test_ids_of_both_rows_of_an_archive_are_counted_if_nothing_else_counts_the_nodes(tmp_path):
    edges = np.array([[0, 1, 2], [2, 3, 0]])
    np.savez(tmp_path / "bare.npz", edge_index=edges)
    np.savez(tmp_path / "counted.npz", edge_index=edges, num_nodes=4)
    bare, counted = (build(tmp_path / "home", "npz", path=tmp_path / f"{name}.npz") for name in ("bare", "counted"))
    assert bare.numbers["num_ids_of_both_ends"] == 2 and "num_ids_of_both_ends" not in counted.numbers
