"""The benchmark of predictions compares the file that it has measured, and refuses one whose probabilities are others."""

from pathlib import Path

import polars
import pytest

from benchmarks.predict import LARGEST_ERROR, RECIPE, check, compared_nodes
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.graphs import build_graph


def test_a_file_with_one_other_row_is_refused(tmp_path: Path) -> None:
    recipe, out = tmp_path / "sage.toml", tmp_path / "out.parquet"
    text = RECIPE.format(nodes=2000, edges=4000, model="sage").replace("ratio = 0.001", "ratio = 0.1")
    recipe.write_text(text.replace("hidden = 128", "hidden = 8"))
    pipeline, store = load_pipeline(recipe, TrainTable), Store(tmp_path / "home")
    graph = build_graph(store, pipeline.graph)
    assert pipeline.sampling is not None
    train_table(store, graph.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    predict_table(store, pipeline, "sage", out, workspace="8MiB")
    assert check(store, pipeline, graph, out) < LARGEST_ERROR
    node = int(compared_nodes(graph.open().topology)[2])
    changed = polars.col("probability") + 2 * LARGEST_ERROR * (polars.col("node_id") == node)
    polars.read_parquet(out).with_columns(changed.alias("probability")).write_parquet(out)
    with pytest.raises(AssertionError, match="probabilities in the file differ"):
        check(store, pipeline, graph, out)
