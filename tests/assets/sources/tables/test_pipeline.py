"""A pipeline of tables goes to a model of relations and to predictions that name the type of each node."""

from pathlib import Path

import numpy as np
import polars as pl

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
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
    predict_table(store, pipeline, "rgcn", out)
    found = pl.read_parquet(out)
    assert found["node_id"].to_list() == [*range(60), *range(20)]
    assert found["node_type"].to_list() == ["user"] * 60 + ["item"] * 20
    assert found["label"].to_list() == [*users["label"].tolist(), *[None] * 20]
