"""A pipeline of tables goes to a model of relations and to predictions that name the type of each node."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config

RECIPE = """\
[graph]
source = "tables"
reverse_types = "own"

[graph.nodes.user]
path = "users.parquet"
features = "x*"
label_column = "label"

[graph.nodes.item]
num_nodes = 20

[graph.edges.buys]
path = "buys.parquet"
source_type = "user"
target_type = "item"

[sampling]
fanouts = [5, 5]
batch_size = 64

[[train]]
name = "rgcn"
model = "rgcn"
hidden = 8
epochs = 1
"""


def test_relations_are_trained_and_predictions_name_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users = {"id": np.arange(60), "x0": rng.random(60), "x1": rng.random(60), "label": rng.integers(0, 3, 60)}
    pl.DataFrame(users).write_parquet(tmp_path / "users.parquet")
    edges = {"src": rng.integers(0, 60, 300), "dst": rng.integers(0, 20, 300)}
    pl.DataFrame(edges).write_parquet(tmp_path / "buys.parquet")
    (tmp_path / "shop.toml").write_text(RECIPE)
    pipeline, store = load_pipeline(tmp_path / "shop.toml", TrainTable, files=True), Store(tmp_path / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    assert pipeline.sampling is not None
    train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    out = tmp_path / "found.parquet"
    assert predict_table(store, pipeline, "rgcn", out, types=["all"])[1] == 80
    found = pl.read_parquet(out)
    assert found["node_id"].to_list() == [*range(60), *range(20)]
    assert found["node_type"].to_list() == ["user"] * 60 + ["item"] * 20
    assert found["label"].to_list() == [*users["label"].tolist(), *[None] * 20]
    for types, kept in (([], "user"), (["user"], "user"), (["item"], "item"), (["item", "user"], None)):
        rows = predict_table(store, pipeline, "rgcn", tmp_path / "some.parquet", types=types)[1]
        some = pl.read_parquet(tmp_path / "some.parquet")
        assert some.equals(found if kept is None else found.filter(pl.col("node_type") == kept)) and rows == len(some)
    (tmp_path / "ids.txt").write_text("3\n7\n")
    for types, kept in (([], ["user"] * 2), (["item"], ["item"] * 2), (["all"], ["user", "user", "item", "item"])):
        predict_table(store, pipeline, "rgcn", out, types=types, nodes=tmp_path / "ids.txt")
        some = pl.read_parquet(out)
        assert some["node_type"].to_list() == kept and set(some["node_id"]) == {3, 7}
    (tmp_path / "ids.txt").write_text("3\n19\n20\n")
    with pytest.raises(InputError, match="names 1 nodes that the graph does not have: 20"):
        predict_table(store, pipeline, "rgcn", out, types=["item"], nodes=tmp_path / "ids.txt")
    with pytest.raises(InputError, match=r"no node type 'shop'\n.*its types are: user, item"):
        predict_table(store, pipeline, "rgcn", out, types=["shop"])
