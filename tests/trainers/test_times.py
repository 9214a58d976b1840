"""Trainings as of the times of seeds: no batch has an edge that is later than its seed, what the past tells is learnt, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.training.dataset import Batches
from tests.laws.made import Made
from tests.recipes import recipe

EVENTS: dict[str, Any] = {
    "source": "events",
    "nodes": 2500,
    "edges": 80_000,
    "features": 12,
    "classes": 4,
    "noise": 0.1,
}
TRAIN: dict[str, Any] = {
    "name": "x",
    "hidden": 16,
    "layers": 1,
    "epochs": 60,
    "eval_every": 60,
    "lr": 0.02,
    "threads": 1,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


def text_of(fanouts: list[int], graph: dict[str, Any] = EVENTS, train: dict[str, Any] = TRAIN, **sampling: Any) -> str:
    """The text of a file; with `before` its evaluation is sampled."""
    keys = {"eval": "sampled"} if "before" in sampling else {"eval": "exact"}
    return recipe(
        train | {"layers": len(fanouts)} | keys, seed=5, graph=graph, sampling={"fanouts": fanouts, **sampling}
    )


def late_edges(made: Made, text: str, window: float = np.inf) -> tuple[int, int]:
    """The edges of an epoch's batches, and those of them that no earlier edge of the data within the window explains."""
    pipeline = made.parse(text)
    made.build(pipeline)
    data = np.load(made.folder / "timed.npz")
    of_pair: dict[tuple[int, int], list[float]] = {}
    for (u, v), time in zip(data["edge_index"].T.tolist(), data["edge_time"].tolist(), strict=True):
        of_pair.setdefault((u, v), []).append(time)
        of_pair.setdefault((v, u), []).append(time)
    edges = late = 0
    for batch in Batches(made.store, pipeline, "x"):
        times = data["node_time"][batch.seeds].astype(float)
        for block in reversed(batch.blocks):
            known = np.full(block.num_src, np.nan)
            known[: block.num_dst] = times
            for i in range(block.num_dst):
                for source in block.indices[block.start[i] : block.end[i]]:
                    found = of_pair[int(block.src_ids[source]), int(block.src_ids[i])]
                    edges += 1
                    late += not any(times[i] - window <= time < times[i] for time in found)
                    known[source] = times[i]
            times = known
    return edges, late


TIMED: dict[str, Any] = {"source": "npz", "path": "timed.npz"}


@pytest.mark.parametrize("choose", ["uniform", "recent"])
def test_no_edge_of_an_epoch_is_later_than_its_seed(made: Made, choose: str) -> None:
    edges, late = late_edges(made, text_of([4, 3], TIMED, batch_size=32, before="seed", choose=choose))
    assert edges > 1000 and late == 0
    edges, late = late_edges(made, text_of([4, 3], TIMED, batch_size=32, before="seed", choose=choose, window=90), 90)
    assert edges > 200 and late == 0


def accuracy(model: Artifact) -> float:
    return model.summary["numbers"]["test_accuracy"]


def trained(made: Made, text: str) -> Artifact:
    pipeline = made.parse(text)
    made.build(pipeline)
    return made.train(pipeline)


def test_the_past_is_learnt_and_the_future_scores_above_the_best(made: Made) -> None:
    best = 0.85  # 1 - flip + flip / classes
    told = accuracy(trained(made, text_of([5], batch_size=64, before="seed", choose="recent")))
    assert best - 0.1 < told < best + 0.06
    leaked = accuracy(trained(made, text_of([-1], batch_size=64)))
    assert leaked > best + 0.08
    blind = accuracy(trained(made, text_of([5], batch_size=64, before="seed", window=400)))
    assert blind < told


def test_exact_answers_are_refused(made: Made, tmp_path: Path) -> None:
    text = text_of([4, 3], TIMED, TRAIN | {"epochs": 1}, batch_size=64, before="seed")
    with pytest.raises(
        InputError, match=r'eval = "exact", but rows of all neighbours are as of no time.*set eval = "sampled"'
    ):
        made.parse(text.replace('eval = "sampled"', 'eval = "exact"'))
    pipeline = made.parse(text)
    made.build(pipeline)
    made.train(pipeline)
    with pytest.raises(InputError, match="exact predictions, but rows of all neighbours are as of no time"):
        predict_table(made.store, pipeline, "x", tmp_path / "out.parquet")
    assert predict_table(made.store, pipeline, "x", tmp_path / "out.parquet", evaluation="sampled")[1] == 240


@pytest.mark.parametrize(
    ("train", "sampling", "said"),
    [
        ({"model": "gcn"}, {}, 'before = "seed" of .sampling., but model = "gcn" sums neighbours, scaled by degrees'),
        ({"model": "gin"}, {}, 'model = "gin" sums neighbours, scaled by degrees, which count later edges too'),
        ({}, {"window": 0}, "window = 0.0 has no time in it: give a length above 0, or leave it out"),
        ({}, {"window": "7 days"}, 'window = "7 days" is not a length: write a number and one of s, min, h, d, w'),
        ({}, {"window": "0d"}, "window = 0d has no time in it"),
        ({}, {"choose": "recent", "replace": True}, "leave one of them out"),
        (
            {},
            {"method": "random_walk"},
            "before = 'seed' is for method = 'uniform' or 'weighted', not for 'random_walk'",
        ),
        ({}, {"method": "weighted", "choose": "recent"}, "choose = 'recent' draws none: leave one of them out"),
        (
            {},
            {"method": "weighted", "weights": "node:in_degree"},
            "'node:in_degree' counts edges later than a seed too",
        ),
        (
            {},
            {"method": "weighted", "weights": "node:out_degree"},
            "'node:out_degree' counts edges later than a seed too",
        ),
        ({"trainer": "fresh"}, {}, "keeps one row of a node, which has another one as of each time"),
    ],
)
def test_what_does_not_go_together_is_told(made: Made, train: Any, sampling: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        made.parse(text_of([5], train=TRAIN | train, batch_size=64, before="seed", **sampling))


@pytest.mark.parametrize("keys", [{"window": 5}, {"choose": "recent"}])
def test_keys_of_times_without_times_are_told(made: Made, keys: Any) -> None:
    with pytest.raises(InputError, match=r"is for before = 'seed': set it, or leave"):
        made.parse(text_of([5], **keys))


def test_a_length_of_dates_beside_numbers_is_told(made: Made) -> None:
    pipeline = made.parse(text_of([5], batch_size=64, before="seed", window="7d"))
    made.build(pipeline)
    with pytest.raises(
        InputError, match='window = "7d" is a length of dates, and the times of the edges are numbers from 0 to 79999'
    ):
        made.train(pipeline)


def test_metrics_that_read_the_rows_of_all_nodes_are_told(made: Made) -> None:
    text = recipe(
        {"name": "x", "eval": "sampled"},
        task={"kind": "links", "split": "time"},
        graph={"source": "ratings", "nodes": 300, "edges": 2000},
        sampling={"fanouts": [4, 3], "before": "seed"},
    )
    with pytest.raises(InputError, match=r'metric = "mrr" ranks links among the rows of all nodes.*set metric = "auc"'):
        made.parse(text)
    with pytest.raises(InputError, match='eval = "exact", but rows of all neighbours are as of no time'):
        made.parse(text.replace('eval = "sampled"', 'eval = "exact"\nmetric = "auc"'))


def test_links_are_learnt_from_what_was_there_at_their_time(made: Made) -> None:
    text = recipe(
        TRAIN | {"layers": 2, "epochs": 6, "eval_every": 6, "eval": "sampled", "metric": "auc", "input": "typed"},
        seed=5,
        task={"kind": "links", "split": "time", "gap": 50, "uniform_candidates": 20},
        graph={"source": "ratings", "nodes": 600, "edges": 6000, "features": 8, "noise": 0.5},
        sampling={"fanouts": [5, 5], "batch_size": 256, "before": "seed"},
    )
    numbers = trained(made, text).summary["numbers"]
    with pytest.raises(InputError, match="a prediction names no times"):
        predict_table(made.store, made.parse(text), "x", made.folder / "out.parquet", evaluation="sampled")
    assert numbers["test_auc"] > 0.65 and numbers["valid_auc"] > 0.65
    assert (
        1 / 20 < numbers["test_mrr_uniform_20"] <= 1 and "test_mrr" not in numbers and "test_recall@10" not in numbers
    )
