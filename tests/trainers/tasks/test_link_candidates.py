"""Trainings of links have scores among given and drawn candidates, which are those of the rows that `predict` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.building.labels import labelled
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config, write_gz
from tests.recipes import recipe
from tests.trainers.models.links.test_candidate_ranks import ogb_hits, ogb_ranks

NODES, GROUPS, KEPT = 90, 3, 8
TABLE = {
    "name": "gcn", "model": "gcn", "hidden": 16, "epochs": 4, "lr": 0.02, "dropout": 0.0, "metric": "auc", "eval_every": 4,
}  # fmt: skip


def drawn_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of nodes of one group, i64[n, 2], each in one direction, and their parts in words."""
    draw = np.random.default_rng(0)
    pairs = [(u, v) for u in range(NODES) for v in range(u) if u % GROUPS == v % GROUPS and draw.random() < 0.3]
    return np.array(pairs), draw.choice(["train", "valid", "test"], len(pairs), p=[0.8, 0.1, 0.1])


def trained(folder: Path, graph: dict, task: dict, seed: int = 0) -> tuple[dict, torch.Tensor]:
    """The numbers of a model, and the rows that `predict` writes for the nodes."""
    given = {"kind": "links", "split": "given", **task}
    sampling = {"fanouts": [5, 5], "batch_size": 128}
    (folder / "mine.toml").write_text(recipe(TABLE, graph=graph, task=given, sampling=sampling))
    pipeline, store = load_pipeline(folder / "mine.toml", TrainTable), Store(folder / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    (model,) = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, seed, report=lambda line: None)
    predict_table(store, pipeline, "gcn", folder / "rows.parquet")
    rows = pl.read_parquet(folder / "rows.parquet").sort("node_id")["embedding"].to_list()
    return model.summary["numbers"], torch.tensor(rows)


def test_scores_among_a_file_of_candidates_and_drawn_ones(tmp_path: Path) -> None:
    (pairs, words), draw = drawn_pairs(), np.random.default_rng(1)
    pl.DataFrame({"src": pairs[:, 0], "dst": pairs[:, 1], "part": words}).write_parquet(tmp_path / "edges.parquet")
    tested = pairs[words == "test"]
    others = draw.integers(0, NODES, (len(tested), KEPT))
    others = np.where(others == tested[:, 1:], (others + 1) % NODES, others)
    given = {"source": tested[:, 0], "target": tested[:, 1]}
    lists = [[*row, own] for row, own in zip(others.tolist(), tested[:, 1].tolist(), strict=True)]
    pl.DataFrame(given | {"target_candidates": lists}).write_parquet(tmp_path / "candidates.parquet")
    graph = {"source": "edges", "edges": "edges.parquet", "split_column": "part", "num_nodes": NODES}
    task = {"candidates": "candidates.parquet", "uniform_candidates": 20}
    numbers, rows = trained(tmp_path, graph, task)
    scores = (rows[tested[:, 0]] * rows[tested[:, 1]]).sum(dim=1)
    among = (rows[tested[:, 0]][:, None] * rows[torch.from_numpy(others)]).sum(dim=2)
    for name, value in ogb_ranks(scores, among).items():
        assert numbers[f"test_{name}_given"] == pytest.approx(value, abs=1e-9)
    # Validation has no given candidates, and drawn ones as test has them.
    assert "valid_mrr_given" not in numbers
    assert {
        f"{split}_{name}_uniform_20" for split in ("valid", "test") for name in ("mrr", "hits@10")
    } <= numbers.keys()
    assert numbers["test_mrr"] < numbers["test_mrr_uniform_20"] <= 1
    assert labelled("test_mrr_uniform_20", 0.5) == ("test mrr uniform 20 (%)", 50.0)


def test_scores_among_pairs_of_ogb(tmp_path: Path) -> None:
    (pairs, words), draw, top = drawn_pairs(), np.random.default_rng(1), tmp_path / "ogbl"
    kept = pairs[words == "train"]
    write_gz(top / "raw" / "edge.csv.gz", kept.tolist())
    write_gz(top / "raw" / "num-edge-list.csv.gz", [[len(kept)]])
    write_gz(top / "raw" / "num-node-list.csv.gz", [[NODES]])
    (top / "split" / "random").mkdir(parents=True)
    negative = draw.integers(0, NODES, (300, 2))
    for part in ("valid", "test"):
        torch.save({"edge": pairs[words == part], "edge_neg": negative}, top / "split" / "random" / f"{part}.pt")
    numbers, rows = trained(tmp_path, {"source": "ogb", "path": "ogbl"}, {"source_candidates": True})
    for part in ("valid", "test"):
        scores, among = ((rows[each[:, 0]] * rows[each[:, 1]]).sum(dim=1) for each in (pairs[words == part], negative))
        for k in (10, 20, 50, 100):
            assert numbers[f"{part}_hits@{k}_given"] == pytest.approx(ogb_hits(scores, among, k), abs=1e-9)
    assert not [name for name in numbers if "mrr_given" in name or "uniform" in name]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"kind": "classes", "uniform_candidates": 5}, "uniform_candidates is a key of links"),
        ({"kind": "links", "uniform_candidates": -1}, "uniform_candidates = -1"),
        ({"kind": "links", "source_candidates": True, "split": "given"}, "has no candidates"),
    ],
)
def test_keys_that_do_not_fit_are_told_in_one_sentence(tmp_path: Path, task: dict, said: str) -> None:
    np.savez(
        tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 2]]), num_nodes=3, y=np.zeros(3, int), edge_split=[0, 1]
    )
    text = recipe(
        TABLE, graph={"source": "npz", "path": "g.npz"}, task=task, sampling={"fanouts": [2, 2], "batch_size": 8}
    )
    (tmp_path / "mine.toml").write_text(text.replace('metric = "auc"\n', ""))
    with pytest.raises(InputError, match=rf"has 1 mistake:\n.*{said}"):
        load_pipeline(tmp_path / "mine.toml", TrainTable)


def test_a_user_of_all_items_has_no_other_pair_and_no_drawn_rank(tmp_path: Path) -> None:
    """Every item makes a known edge with that user; the others are scored."""
    users, items = 12, 6
    bought = [(user, item) for user in range(users) for item in range(items) if user == 0 or (user + item) % 3]
    parts = [
        "test" if user < 3 and item == 5 else "valid" if item == 4 and user < 4 else "train" for user, item in bought
    ]
    frame = pl.DataFrame(bought, schema=["user", "item"], orient="row").with_columns(pl.Series("part", parts))
    frame.write_parquet(tmp_path / "buys.parquet")
    nodes = {"user": {"num_nodes": users}, "item": {"num_nodes": items}}
    buys = {"path": "buys.parquet", "source_type": "user", "target_type": "item", "source_column": "user"}
    buys |= {"target_column": "item", "split_column": "part"}
    graph = {"source": "tables", "nodes": nodes, "edges": {"buys": buys}}
    numbers, _ = trained(tmp_path, graph, {"uniform_candidates": 4})
    assert 0 <= numbers["test_auc"] <= 1 and 0 < numbers["test_mrr_uniform_4"] <= 1
