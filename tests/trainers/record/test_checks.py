"""The checks of a model: each fails where it should, with the right sentence and numbers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.checks import (
    ABOVE_CHANCE,
    FINITE,
    LEDGER_EQUALS_PLAN,
    LOSS_FELL,
    chance_check,
    ledger_check,
    loss_check,
    weights_check,
)
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.source import TableSource
from graphmill.trainers.run import train_table
from graphmill.trainers.tasks.classes import class_chance
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.trainers.runs import SAMPLING, TABLE, train_packed, train_small

LABELS = np.array([0, 2, 2, 1])


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return build_packed(tmp_path_factory.mktemp("home"), epochs=2)


def checks_of(model: Artifact) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in model.summary["checks"]}


@pytest.mark.parametrize(("score", "passed"), [(0.51, True), (0.5, False), (0.2, False)])
def test_a_score_is_held_against_the_largest_class(score: float, passed: bool) -> None:
    check = chance_check("accuracy", "validation", score, *class_chance("accuracy", LABELS, ["a", "b", "cs.LG"]))
    assert check.passed == passed and not check.blocking
    assert check.numbers == {"validation accuracy, %": 100 * score, "chance, %": 50.0}
    word = "above" if passed else "not above"
    assert check.detail == (
        f"validation accuracy {100 * score:.2f} % is {word} 50.00 %, what the answer cs.LG for each of 4 nodes reaches"
    )


def test_a_mean_over_classes_is_held_against_that_of_one_answer() -> None:
    """Of F1, the answer c for 4 nodes has 2 * 2 / (2 + 4) for c and 0 for the other two."""
    check = chance_check("f1_macro", "validation", 0.23, *class_chance("f1_macro", LABELS, ["a", "b", "c"]))
    assert check.passed and check.numbers == {"validation f1_macro, %": 23.0, "chance, %": pytest.approx(100 * 2 / 9)}
    assert "validation macro F1 23.00 % is above 22.22 %, what the answer c for each of 4 nodes reaches" in check.detail


def test_an_area_under_the_curve_is_held_against_one_half() -> None:
    check = chance_check("roc_auc", "validation", 0.49, *class_chance("roc_auc", LABELS, ["0", "1", "2"]))
    assert not check.passed and check.numbers["chance, %"] == 50.0 and "ROC AUC 49.00 % is not above" in check.detail
    missing = chance_check("roc_auc", "training", None, 0.5, "")
    assert not missing.passed and missing.detail == "no training node has a score"


@pytest.mark.parametrize(
    ("losses", "passed", "said"),
    [
        ((2.0, 0.5, 1.0), True, "the loss fell from 2.0000 in epoch 1 to 1.0000 in epoch 3; the lowest is 0.5000 in epoch 2"),
        ((1.0, 0.5, 1.5), False, "the loss did not fall from 1.0000 in epoch 1 to 1.5000 in epoch 3"),
        ((1.0, 1.0), False, "did not fall"),
        ((1.0,), True, "there is no second one to compare it with"),
        ((1.0, float("nan"), 0.5), False, "the loss of 1 of 3 epochs is NaN or infinite; lower `lr`"),
        ((float("inf"),), False, "the loss of 1 of 1 epochs is NaN or infinite"),
    ],
)  # fmt: skip
def test_losses_are_compared_from_first_to_last(losses: tuple[float, ...], passed: bool, said: str) -> None:
    check = loss_check([{"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses)])
    assert check.passed == passed and said in check.detail and not check.blocking
    assert all(np.isfinite(value) for value in check.numbers.values())


def test_weights_that_are_not_finite_are_counted_and_block() -> None:
    check = weights_check(4, 2)
    assert not check.passed and check.blocking
    assert check.numbers == {"weights not finite": 2, "allowed not finite": 0, "weights": 4}
    assert check.detail == "2 of 4 weights are NaN or infinite; lower `lr`"


def test_a_ledger_is_compared_number_by_number() -> None:
    right = ledger_check({"seeds": 60, "batches": 3, "other": 1}, {"seeds": 60, "batches": 3})
    assert right.passed and right.detail == "each of 2 planned numbers is that of the ledger: 60 seeds, 3 batches"
    wrong = ledger_check({"seeds": 1060}, {"seeds": 1060, "batches": 3})
    assert not wrong.passed and wrong.numbers["numbers that differ"] == 1 and not wrong.blocking
    assert wrong.detail == "1 of 2 numbers of the ledger differ from the plan: 0 batches instead of 3"
    assert wrong.numbers["batches, counted"] == 0 and wrong.numbers["batches, planned"] == 3


def test_a_model_s_checks_hold_what_it_stored(tmp_path: Path) -> None:
    model = train_small(tmp_path, epochs=8)
    checks, numbers = checks_of(model), model.summary["numbers"]
    assert set(checks) == {FINITE, ABOVE_CHANCE, LOSS_FELL, LEDGER_EQUALS_PLAN} and all(
        c["passed"] for c in checks.values()
    )
    assert checks[ABOVE_CHANCE]["numbers"]["validation accuracy, %"] == 100 * numbers["valid_accuracy"]
    assert checks[FINITE]["numbers"]["weights"] == numbers["parameters"]
    rows = [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]
    found = checks[LOSS_FELL]["numbers"]
    assert found["loss of the first epoch, nats"] == rows[0]["loss"]
    assert found["loss of the last epoch, nats"] == rows[-1]["loss"] == numbers["loss"]
    assert checks[LEDGER_EQUALS_PLAN]["numbers"]["seeds, counted"] == 8 * 200


def test_a_model_that_learns_nothing_is_published_with_a_warning(tmp_path: Path) -> None:
    said: list[str] = []
    model = train_small(tmp_path, epochs=2, lr=30.0, dropout=0.9, report=said.append)
    failed = [check for check in model.summary["checks"] if not check["passed"]]
    assert failed and not any(check["blocking"] for check in failed) and model.verify() == []
    assert [line for line in said if "check failed" in line] == [
        f"small: check failed: {check['name']}: {check['detail']}" for check in failed
    ]


@pytest.mark.parametrize(("trainer", "compared"), [("minibatch", 3), ("stored", 6), ("disk", 14)])
def test_the_plan_of_a_training_is_known_before_it(packed: Packed, tmp_path: Path, trainer: str, compared: int) -> None:
    if trainer == "stored":
        table, sampling = TrainTable(**(TABLE | {"samples": "stored"})), replace(SAMPLING, reuse=2)
        run: dict[str, Any] = {"reads": {"samples": packed.samples}, "report": lambda line: None}
        model = train_table(Store(tmp_path), packed.inputs, table, sampling, 5, **run)[0]
    else:
        model = train_packed(packed, tmp_path, trainer)
    check = checks_of(model)[LEDGER_EQUALS_PLAN]
    assert check["passed"] and check["numbers"]["numbers compared"] == compared, check["detail"]


@pytest.mark.parametrize("trainer", ["minibatch", "disk"])
def test_a_ledger_that_lacks_a_batch_fails_its_check_alone(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    """One count and one transfer are lost."""
    count, move, lost = Ledger.count, Ledger.move, set()

    def losing(ledger: Ledger, name: str, layer: int, n: int) -> None:
        if name == "seeds" and n > 0 and "seeds" not in lost:
            lost.add("seeds")
            n -= 1
        count(ledger, name, layer, n)

    def forgetful(ledger: Ledger, line: Line, *, requests: int, asked_bytes: int, moved_bytes: int) -> None:
        if line.link == "h2d" and "h2d" not in lost:
            lost.add("h2d")
            moved_bytes -= 7
        move(ledger, line, requests=requests, asked_bytes=asked_bytes, moved_bytes=moved_bytes)

    monkeypatch.setattr(Ledger, "count", losing)
    monkeypatch.setattr(Ledger, "move", forgetful)
    checks = checks_of(train_packed(packed, tmp_path, trainer))
    check = checks.pop(LEDGER_EQUALS_PLAN)
    assert not check["passed"] and check["numbers"]["numbers that differ"] == 2
    assert "599 seeds instead of 600" in check["detail"] and "bytes of features to the device" in check["detail"]
    assert checks[FINITE]["passed"] and checks[LOSS_FELL]["passed"]


def test_rows_that_a_cache_forgets_fail_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = TableSource.book
    monkeypatch.setattr(TableSource, "book", lambda self, num_rows, ledger: book(self, num_rows - 1, ledger))
    model = train_small(tmp_path, memory={"device": "10%", "host": "20%", "seed": 1})
    check = checks_of(model)[LEDGER_EQUALS_PLAN]
    assert not check["passed"] and "bytes of features to the device" in check["detail"]
