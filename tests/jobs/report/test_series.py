"""The numbers of the figures: means over seeds, seconds that are known, equal results as one curve, hit ratios."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphmill.jobs.figures.cost import read_ledger, read_metrics
from graphmill.jobs.report import series
from graphmill.jobs.report.facts import EXPECTED_MEMORY, MEMORY, SECONDS, prediction_table, predictions
from graphmill.jobs.report.series import costs, hit_curves, learning_curves
from graphmill.trainers.record.ledger import Ledger


def test_a_curve_of_seeds_is_their_mean_between_the_worst_and_the_best(trained: SimpleNamespace) -> None:
    (entry,) = trained.other.entries
    rows = [read_metrics(model) for model in entry.models]
    assert len(rows) == 2
    (curve,) = learning_curves([entry], "valid", "epochs")
    scores = [[100 * row["valid"] for row in each] for each in rows]
    assert list(curve.x) == [1, 2, 3] and curve.label == "sage"
    assert curve.y == pytest.approx(np.mean(scores, axis=0)) and curve.low == pytest.approx(np.min(scores, axis=0))
    assert curve.high == pytest.approx(np.max(scores, axis=0))
    (timed,) = learning_curves([entry], "loss", "seconds")
    seconds = [np.cumsum(model.run_record()["epoch_seconds"]["train"]) for model in entry.models]
    assert timed.x == pytest.approx(np.mean(seconds, axis=0))
    assert timed.y == pytest.approx(np.mean([[row["loss"] for row in each] for each in rows], axis=0))


def test_a_training_that_another_process_went_on_with_has_no_seconds(
    trained: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = trained.other.entries
    monkeypatch.setattr(type(entry.models[0]), "run_record", lambda model: {"epoch_seconds": {"train": [1.0]}})
    assert learning_curves([entry], "loss", "seconds") == [] and learning_curves([entry], "loss", "epochs")


def test_tables_with_equal_results_are_one_curve_over_epochs_alone(trained: SimpleNamespace) -> None:
    entry = trained.tiny.entries[0]
    again = replace(entry, table=replace(entry.table, name="again"))
    assert [curve.label for curve in learning_curves([entry, again], "loss", "epochs")] == [
        f"{entry.table.name} = again"
    ]
    labels = [curve.label for curve in learning_curves([entry, again], "loss", "seconds")]
    assert labels == [entry.table.name, "again"]


def test_a_long_curve_keeps_its_ends(trained: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    history = [{"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 5001)]
    monkeypatch.setattr(series, "read_metrics", lambda model: history)
    curve = learning_curves(trained.tiny.entries[:1], "loss", "epochs")[0]
    assert len(curve.x) == series.MOST_POINTS and (curve.x[0], curve.x[-1]) == (1, 5000)


def test_costs_are_means_over_the_models(trained: SimpleNamespace) -> None:
    (entry,) = trained.other.entries
    (moved,) = costs([entry], "bytes").values()
    totals = []
    for model in entry.models:
        rows = json.loads(model.file("ledger.json").read_text())["moves"]
        totals.append(sum(row["moved_bytes"] for row in rows if row["link"] == "h2d") / 3)
    assert moved["host to device"] == pytest.approx(sum(totals) / 2)


def fake(policy: str, numbers: dict[str, float], **arrays: Any) -> Any:
    config = {"hotness": {"policy": policy}, "sampling": {"fanouts": [2], "method": "uniform"}}
    return SimpleNamespace(
        config=config,
        summary={"numbers": {"num_nodes": 100, **numbers}},
        files={f"{name}.npy": {} for name in arrays},
        array=lambda name: arrays[name],
    )


def test_measured_hit_ratios_come_first_and_in_percent() -> None:
    numbers = {f"hit_ratio_{policy}_{at}_percent": at / 50 for policy in ("bayes", "degree") for at in (20, 1)}
    source, curves = hit_curves(fake("bayes", numbers | {"hit_ratio_bayes_20_percent": 0.5}))
    assert source == "measured on training epochs" and [curve.label for curve in curves] == ["bayes", "degree"]
    assert (list(curves[0].x), list(curves[0].y)) == ([0, 1, 20], [0, 2, 50])


def test_expected_hit_ratios_are_those_that_the_stage_stored() -> None:
    score = np.arange(100, 0, -1, dtype=np.float64)
    found = fake("bayes", {}, order=np.arange(100), visits=np.ones(100, np.uint32), score=score)
    source, (curve,) = hit_curves(found)
    assert source.startswith("expected") and curve.y[curve.x.index(10)] == pytest.approx(
        100 * score[:10].sum() / score.sum()
    )
    large = fake("bayes", {"num_nodes": 10**9, "expected_hit_ratio_10_percent": 0.4}, visits=np.ones(1))
    assert list(hit_curves(large)[1][0].y) == [0, 40]
    assert hit_curves(None) == ("", []) and hit_curves(fake("degree", {})) == ("expected, from trial batches", [])


def test_predictions_stand_beside_what_was_measured(trained: SimpleNamespace) -> None:
    found = predictions(trained.other.entries)
    assert {each.seed for each in found} == {1, 2} and {each.what for each in found} >= {"batches", "seeds"}
    assert all(each.error == 0 for each in found if each.what in ("batches", "seeds"))
    table = prediction_table(found)
    assert table.rows[0][:2] == ["sage, seed 1", "batches"] and table.rows[0][-1] == "0 %"
    wrong = replace(found[0], predicted=150, measured=100)
    assert wrong.error == 0.5 and prediction_table([wrong]).rows == [["sage", "batches", "150", "100", "+50.00 %"]]
    assert replace(wrong, measured=0).error is None
    split = prediction_table([replace(wrong, split="a"), replace(wrong, split="b"), replace(wrong, split="b", seed=2)])
    assert [row[0] for row in split.rows] == [f"sage, split {each}" for each in ("a, seed 1", "b, seed 1", "b, seed 2")]


def test_the_prediction_of_a_run_record_is_shown(trained: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = trained.other.entries
    ranks = [{"peak_memory_bytes": 700}, {"peak_memory_bytes": 300}]
    record = {"ranks": ranks, "peak_memory_bytes": 700, "memory_need": {"bytes": 5000}} | {
        "prediction": {"bytes_per_epoch": {"h2d": 64, "rank": 32}, "memory_bytes": 1500, "epoch_seconds": 3.0},
        "epoch_seconds": {"train": [1.0, 2.0, 9.0]},
    }
    monkeypatch.setattr(type(entry.models[0]), "run_record", lambda model: record)
    moved = Ledger.from_rows(read_ledger(entry.models[0])).bytes_by_link()
    found = {each.what: each for each in predictions([replace(entry, models=entry.models[:1], splits=["a"])])}
    assert (found[EXPECTED_MEMORY].predicted, found[EXPECTED_MEMORY].measured) == (1500, 1000), "of all ranks"
    assert (found[SECONDS].predicted, found[SECONDS].measured, found[SECONDS].is_bytes) == (3, 2, False)
    into = found["host to device, bytes of an epoch"]
    assert (into.predicted, into.measured) == (64, pytest.approx(moved["h2d"] / 3)) and moved["h2d"]
    never = found["from rank to rank, bytes of an epoch"]
    assert (never.predicted, never.measured, never.error) == (32, 0, None)
    assert MEMORY not in found and {each.split for each in found.values()} == {"a"}
    assert entry.peak_memory_bytes() == 1000
