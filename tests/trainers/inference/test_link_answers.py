"""Predictions of links: the best ends of nodes, scores of pairs and rows of nodes agree, and leave out what is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config

TEXT = """name = "shop"
seed = 1
[graph]
source = "tables"
undirected = true
reverse_types = "own"
[graph.nodes.user]
path = "users.csv"
[graph.nodes.item]
path = "items.csv"
[graph.edges.buys]
path = "buys.csv"
source_type = "user"
target_type = "item"
[task]
kind = "links"
[sampling]
fanouts = [4, 4]
batch_size = 64
[[train]]
name = "sage"
model = "sage"
layers = 2
hidden = 8
input = "typed"
embedding = "node"
epochs = 2
metric = "auc"
threads = 1
"""
USERS, ITEMS = 60, 20


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(pipeline, store, folder, graph) of a trained model."""
    folder = tmp_path_factory.mktemp("shop")
    draw = np.random.default_rng(0)
    pl.DataFrame({"id": [f"u{each}" for each in range(USERS)]}).write_csv(folder / "users.csv")
    pl.DataFrame({"id": [f"i{each}" for each in range(ITEMS)]}).write_csv(folder / "items.csv")
    buys = {
        "src": [f"u{each}" for each in draw.integers(0, USERS, 400)],
        "dst": [f"i{each}" for each in draw.integers(0, ITEMS, 400)],
    }
    pl.DataFrame(buys).unique(maintain_order=True).write_csv(folder / "buys.csv")
    (folder / "shop.toml").write_text(TEXT)
    pipeline, store = load_pipeline(folder / "shop.toml", TrainTable), Store(folder / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 1, report=lambda line: None)
    return pipeline, store, folder, open_graph(built.inputs["graph"])


def predicted(trained: Any, **options: Any) -> pl.DataFrame:
    pipeline, store, folder, _ = trained
    _, count = predict_table(store, pipeline, "sage", folder / "out.parquet", **options)
    found = pl.read_parquet(folder / "out.parquet")
    assert len(found) == count
    return found


def test_best_ends_are_the_highest_scores_of_unknown_pairs(trained: Any) -> None:
    folder: Path = trained[2]
    rows = {row["node_id"]: np.array(row["embedding"]) for row in predicted(trained).to_dicts()}
    bought = set(pl.read_csv(folder / "buys.csv").rows())
    best = predicted(trained, columns=Columns(top=3))
    assert best.columns == ["source", "relation", "rank", "target", "score"]
    assert set(best["relation"]) == {"user/buys/item"}
    for (user,), of_user in best.group_by("source"):
        scores = {f"i{each}": float(rows[user] @ rows[f"i{each}"]) for each in range(ITEMS)}
        open_ones = [(-score, item) for item, score in scores.items() if (user, item) not in bought]
        expected = [-score for score, _ in sorted(open_ones)[:3]]
        assert of_user["rank"].to_list() == [1, 2, 3][: len(expected)]
        assert not any((user, item) in bought for item in of_user["target"])
        np.testing.assert_allclose(of_user["score"], expected, rtol=1e-4, atol=1e-5)
    few = folder / "few.txt"
    few.write_text("u3\nu7\n")
    some = predicted(trained, columns=Columns(top=3), nodes=few, relations=("buys",))
    same = best.filter(pl.col("source").is_in(["u3", "u7"]))
    assert some.drop("score").equals(same.drop("score"))
    np.testing.assert_allclose(some["score"], same["score"], rtol=1e-5)


def test_pairs_have_the_scores_of_their_rows_and_the_split_of_their_edge(trained: Any) -> None:
    folder: Path = trained[2]
    bought = pl.read_csv(folder / "buys.csv")
    pairs = pl.DataFrame({"source": [*bought["src"], "u0"], "target": [*bought["dst"], "i0"]})
    pairs.write_parquet(folder / "pairs.parquet")
    found = predicted(trained, pairs=folder / "pairs.parquet")
    assert found.select("source", "target").equals(pairs)
    links = trained[3].links
    assert links is not None
    counts = dict(found["split"].value_counts().rows())
    assert [counts.get(part) for part in ("train", "valid", "test")] == np.bincount(links.split).tolist()
    assert found["split"][-1] is None or ("u0", "i0") in set(bought.rows())
    best = predicted(trained, columns=Columns(top=ITEMS))
    best.select("source", "target").write_csv(folder / "again.csv")
    np.testing.assert_allclose(
        predicted(trained, pairs=folder / "again.csv")["score"], best["score"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pairs": {"source": ["u1", "i1"], "target": ["i1", "i1"]}}, "row 2: the source i1 is no node"),
        (
            {"pairs": {"source": ["u1", "u2", "u3"], "target": ["i1", "x", "y"]}},
            "row 2: the target x is no node .*2 such rows",
        ),
        ({"pairs": {"source": ["u1"]}}, "cannot be read"),
        ({"pairs": {"source": ["u1"], "target": ["i1"]}, "columns": Columns(top=1)}, "two tables"),
        ({"relations": ("sells",), "columns": Columns(top=1)}, "--relation sells is not predicted"),
        ({"columns": Columns(probabilities=True)}, "the model scores pairs"),
        ({"relations": ("buys",)}, "give --top K"),
        *(
            (way | {**other, "columns": replace(way.get("columns", Columns()), **columns)}, f"{key}.* beside")
            for way in ({"columns": Columns(top=2)}, {"pairs": {"source": ["u1"], "target": ["i1"]}})
            for key, other, columns in (
                ("--type", {"types": ("user",)}, {}),
                ("--eval sampled", {"evaluation": "sampled"}, {}),
                ("--probabilities", {}, {"probabilities": True}),
                ("--threshold", {}, {"thresholds": ("0.5",)}),
            )
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(trained: Any, options: dict[str, Any], said: str) -> None:
    if "pairs" in options:
        path = trained[2] / "bad.csv"
        pl.DataFrame(options["pairs"]).write_csv(path)
        options = options | {"pairs": path}
    with pytest.raises(InputError, match=said):
        predicted(trained, **options)
