"""The learning curves: epochs from 1, the epoch whose weights were kept, a name per seed."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.jobs.figures.cost import read_metrics
from graphmill.jobs.figures.curves import called, chosen_row, curve_metadata, draw_curves, epoch_metadata
from tests.jobs.trained import trained_home

ROWS = [
    {"epoch": 1, "loss": 2.0, "valid": 0.5},
    {"epoch": 2, "loss": 1.0, "valid": 0.75},
    {"epoch": 3, "loss": 0.5, "valid": 0.75},
]


def lines_of(monkeypatch: pytest.MonkeyPatch, *given: Any) -> tuple[dict[str, Any], list[str]]:
    """What a call draws: (axes, label) -> points, and all texts."""
    from matplotlib.text import Text

    figures: list[Any] = []
    monkeypatch.setattr("graphmill.assets.figures.style.png", lambda figure: figures.append(figure) or b"")
    draw_curves(*given)
    lines = {
        f"{axes.get_title()}: {line.get_label()}": (list(line.get_xdata()), list(line.get_ydata()))
        for axes in figures[0].axes
        for line in axes.get_lines()
    }
    return lines, [text.get_text() for text in figures[0].findobj(Text)]


def test_epochs_count_from_one_and_the_kept_weights_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, texts = lines_of(monkeypatch, [ROWS], ["seed 4"], "roc_auc")
    assert lines["training loss: seed 4"] == ([1, 2, 3], [2.0, 1.0, 0.5])
    (star,) = [points for name, points in lines.items() if "75.00 % in epoch 2" in name]
    assert star == ([2], [75.0]), "the first of equal scores is kept"
    assert {"training loss", "validation ROC AUC", "mean cross entropy, nats", "epoch"} <= set(texts)


def test_each_seed_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _, texts = lines_of(monkeypatch, [ROWS, ROWS[:2]], ["seed 0", "seed 7"], "accuracy")
    assert {"seed 0", "seed 7"} <= set(texts)


def test_of_many_seeds_the_mean_of_what_was_kept_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine names, of which no two look alike, and one line of scores."""
    _, texts = lines_of(monkeypatch, [ROWS, *[ROWS[:1]] * 8], [f"seed {seed}" for seed in range(9)], "accuracy")
    assert {f"seed {seed}" for seed in range(9)} <= set(texts)
    assert "mean 52.78 %, 50.00 to 75.00 %" in texts


def test_without_validation_the_last_weights_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    history = [{"epoch": row["epoch"], "loss": row["loss"]} for row in ROWS]
    assert chosen_row(history) == history[-1]
    lines, texts = lines_of(monkeypatch, [history], ["seed 0"], "accuracy")
    assert "no validation nodes" in texts and lines["training loss: seed 0"][0] == [1, 2, 3]


def test_many_long_curves_are_a_small_picture() -> None:
    history = [{"epoch": epoch, "loss": 1 / epoch, "valid": epoch / 500} for epoch in range(1, 501)]
    assert len(draw_curves([history] * 12, [f"seed {seed}" for seed in range(12)], "f1_macro")) < 100_000


def test_the_table_of_a_model_says_what_its_metrics_say(tmp_path: Path) -> None:
    store = trained_home(tmp_path)
    models = [each for each in store.artifacts() if each.stage == "model" and each.config["train"]["epochs"] == 3]
    shown = curve_metadata(models) | epoch_metadata(models)
    records = [record.data for record in shown["epochs"].records]
    expected = [row | {"model": m.label} for m in models for row in read_metrics(m)]
    assert len(records) == len(expected) and {called(model) for model in models} == {"seed 1", "seed 2"}
    for record, row in zip(records, expected, strict=True):  # four digits are shown
        assert record.keys() == row.keys() and (record["model"], record["epoch"]) == (row["model"], row["epoch"])
        assert all(record[name] == pytest.approx(row[name], rel=1e-3) for name in ("loss", "valid"))
    assert "data:image/png" in shown["learning curve"].value
