"""Every metric, wherever a score is printed: shares in percent, errors in the unit of the data. Scores are drawn, of any size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphmill.assets.building.labels import labelled
from graphmill.assets.building.stage import Silent
from graphmill.assets.storage.local.collect import _scores
from graphmill.assets.tasks.labels import OF_LABEL
from graphmill.jobs.commands.results.leaderboard import Entry, leaderboard_table, remarks, spread
from graphmill.jobs.figures.curves import draw_curves
from graphmill.jobs.report.changes import _score_rows
from graphmill.jobs.report.charts import quality
from graphmill.jobs.report.plots import curve_lines
from graphmill.jobs.report.series import by_unit, learning_curves, value_words
from graphmill.trainers.recipe.page import headline
from graphmill.trainers.record.checks import chance_check
from graphmill.trainers.record.epoch_lines import EpochLines
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.record.scores import METRICS, METRICS_OF, bare, named, percent, shown


class Model(SimpleNamespace):
    """A model of a metric with one score on every split and in both of its epochs."""

    def __init__(self, folder: Path, metric: str, value: float):
        rows = [{"epoch": 1, "loss": 1.0, "valid": value}, {"epoch": 2, "loss": 0.5, "valid": value}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "ledger.json").write_text(json.dumps(Ledger().rows()))
        numbers = {"best_epoch": 1, "epochs_run": 2, f"valid_{metric}": value, f"test_{metric}": value}
        super().__init__(
            summary={"numbers": numbers, "checks": []},
            config={"train": {"metric": metric}, "seed": 0},
            inputs={"graph": {"version": "a"}},
            files={name: {"digest": "d"} for name in ("weights.safetensors", "metrics.jsonl")},
            version="0" * 64,
            reused=True,
            file=lambda name: folder / name,
            run_record=dict,
            neighbour=lambda _: None,
        )


def entry_of(folder: Path, metric: str, value: float) -> Entry:
    """The entry of a table that was trained once."""
    table = SimpleNamespace(name="mine", model="sage", trainer="minibatch", metric=metric)
    return Entry(table=table, models=[Model(folder, metric, value)])  # type: ignore[arg-type]


def board(folder: Path, metric: str, value: float) -> str:
    """The scores of a row and the sentence about them; the accuracy, which has none, is always in percent."""
    entry = entry_of(folder, metric, value)
    table = leaderboard_table("p", [entry])
    said = [*remarks([entry])] or [named([metric])]
    return " ".join([*(table.rows[0][table.columns.index(each)] for each in ("valid", "test")), *said])


def headlines(folder: Path, metric: str, value: float) -> str:
    return headline([entry_of(folder, metric, value).models[0]])  # type: ignore[list-item]


def changed(folder: Path, metric: str, value: float) -> str:
    now = {"metric": metric, "valid": [value], "test": [value, value]}
    ((_, name, *cells),) = _score_rows({}, {"mine": now})
    assert name == METRICS[metric] and cells[0] == cells[2] == "-"
    return " ".join([named([metric]), cells[1], cells[3]])


def figure_texts(draw: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """All texts of the figure that a call draws, and the vertical places of its points."""
    from matplotlib.text import Text

    figures: list[Any] = []
    monkeypatch.setattr("graphmill.assets.figures.style.png", lambda figure: figures.append(figure) or b"")
    draw()
    (figure,) = figures
    places = [f"{y:.6g}" for line in figure.axes[1].get_lines() for y in line.get_ydata()]
    return " ".join([*(text.get_text() for text in figure.axes[1].findobj(Text)), *places])


def quality_figure(folder: Path, metric: str, value: float) -> str:
    """The words of the horizontal axis and the places of the points."""
    from matplotlib.figure import Figure

    figure, drawn = Figure(), quality([entry_of(folder, metric, value)])
    assert drawn is not None
    drawn.draw(figure)
    places = [f"{float(x):.6g}" for line in figure.axes[0].get_lines() for x in line.get_xdata()]
    return " ".join([figure.axes[0].get_xlabel(), *places])


def terminal(folder: Path, metric: str, value: float) -> str:
    curves = learning_curves([entry_of(folder, metric, value)], "valid", "epochs")
    return " ".join(curve_lines(value_words("valid", [metric]), curves, 80))


def epoch_line(folder: Path, metric: str, value: float) -> str:
    class Told(Silent):
        said = ""

        def tell(self, line: str) -> None:
            self.said += line

        def note(self, text: str) -> None:
            self.said += text

    told = Told()
    EpochLines(told, "", 2, metric=metric).epoch({"epoch": 1, "loss": 1.0, "valid": value}, 0.5, (value, 1), last=False)
    return f"{named([metric])} {told.said}"


def check(folder: Path, metric: str, value: float) -> str:
    found = chance_check(metric, "test", value, value, "said")
    assert any("%" in name for name in found.numbers) == percent(metric)
    return " ".join([found.detail, *(f"{name} {number:.6g}" for name, number in found.numbers.items())])


PLACES: dict[str, Callable[[Path, str, float], str]] = {
    "leaderboard": board,
    "headline of a page": headlines,
    "changes of a report": changed,
    "figure of qualities": quality_figure,
    "curves of a terminal": terminal,
    "line of an epoch": epoch_line,
    "check above chance": check,
    "line of a collected model": lambda folder, metric, value: " ".join(
        _scores({"summary": {"numbers": {f"test_{metric}": value}}})
    ),
    "number of a page": lambda folder, metric, value: "{} {}".format(*labelled(f"test_{metric}", value)),
    "score in a sentence": lambda folder, metric, value: (
        f"{shown(metric, value)} {named([metric])} {bare(metric, value)}"
    ),
    "mean of models": lambda folder, metric, value: f"{spread([value, value], metric)} {named([metric])}",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("metric", METRICS)
def test_a_score_has_its_unit_wherever_it_is_printed(tmp_path: Path, metric: str, place: str) -> None:
    rng = np.random.default_rng([*METRICS].index(metric))
    for _ in range(3):
        value = float(rng.uniform(0.1, 0.99)) if percent(metric) else -float(10 ** rng.uniform(-2, 5))
        assert_unit(PLACES[place](tmp_path, metric, value), metric, value)


@pytest.mark.parametrize("metric", METRICS)
def test_a_figure_of_curves_has_the_unit(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    value = 0.4321 if percent(metric) else -123.4
    rows = [{"epoch": epoch, "loss": 1.0, "valid": value} for epoch in (1, 2)]
    for models in (1, 6):
        names = [f"seed {seed}" for seed in range(models)]
        assert_unit(
            figure_texts(lambda names=names: draw_curves([rows] * len(names), names, metric), monkeypatch),
            metric,
            value,
        )


def assert_unit(said: str, metric: str, value: float) -> None:
    """A share stands as a percentage with its sign, an error as the number itself and without one."""
    wanted = 100 * value if percent(metric) else value
    numbers = [float(each.group()) for each in re.finditer(r"-?\d+(\.\d+)?(e[+-]?\d+)?", said)]
    near = [each for each in numbers if abs(abs(each) - abs(wanted)) <= 6e-3 * abs(wanted)]
    other = value if percent(metric) else 100 * value
    far = [each for each in numbers if abs(abs(each) - abs(other)) <= 1e-6 * abs(other)]
    assert near and not far, (said, wanted)
    assert ("%" in said or "percent" in said) == percent(metric), said


def test_the_loss_of_numbers_has_no_unit_and_that_of_labels_has_one() -> None:
    for kind, metrics in METRICS_OF.items():
        assert (", nats" in value_words("loss", [metrics[0]])) == (
            OF_LABEL.get(kind, kind) not in ("regression", "links")
        )


def test_errors_and_shares_have_no_axis_in_common(tmp_path: Path) -> None:
    values = {"r2": 0.5, "neg_mean_absolute_error": -400.0, "roc_auc": 0.7, "neg_root_mean_squared_error": -900.0}
    entries = []
    for metric, value in values.items():
        (tmp_path / metric).mkdir()
        entries.append(entry_of(tmp_path / metric, metric, value))
    groups = [[each.table.metric for each in group] for group in by_unit(entries)]
    assert groups == [["r2", "roc_auc"], ["neg_mean_absolute_error", "neg_root_mean_squared_error"]]
    assert by_unit(entries, "loss") == [entries] and len(by_unit(entries[::2])) == 1
    figures = [quality(group) for group in by_unit(entries)]
    assert [each.name for each in figures if each is not None] == ["quality", "quality-errors"]
