"""Learnable rows with DistMult on Nations, a knowledge graph that PyKEEN's package ships with its split."""

from pathlib import Path

import polars as pl
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe

PUBLISHED = 0.70
"""A little below the mean reciprocal rank that is published for DistMult, 0.713."""
PARTS = {"edges": "train", "valid_edges": "valid", "test_edges": "test"}


@pytest.mark.slow("the score of a model of links on a knowledge graph")
def test_distmult_reaches_its_published_rank_on_nations(tmp_path: Path) -> None:
    shipped = Path(pytest.importorskip("pykeen.datasets.nations", reason="needs PyKEEN: pip install pykeen").__file__)
    for part in PARTS.values():
        triples = pl.read_csv(
            shipped.with_name(f"{part}.txt"), has_header=False, new_columns=["src", "relation", "dst"], separator="\t"
        )
        triples.write_csv(tmp_path / f"{part}.csv")
    table = {
        "name": "rows", "model": "rows", "layers": 1, "hidden": 24, "link_head": "distmult", "link_loss": "binary", "epochs": 100,
        "lr": 0.02, "dropout": 0.2, "eval_every": 5,
    }  # fmt: skip
    files = {key: f"{part}.csv" for key, part in PARTS.items()}
    graph = {"source": "edges", "id_type": "text", "type_column": "relation", "undirected": False} | files
    sampling = {"fanouts": [1], "batch_size": 256, "per_positive": 28, "known_negatives": False}
    task = {"kind": "links", "split": "given"}
    (tmp_path / "nations.toml").write_text(recipe(table, graph=graph, sampling=sampling, task=task))
    pipeline, store = load_pipeline(tmp_path / "nations.toml", TrainTable), Store(tmp_path / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    (model,) = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 1, report=lambda line: None)
    assert model.summary["numbers"]["test_mrr"] >= PUBLISHED
