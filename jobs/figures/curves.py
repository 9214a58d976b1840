"""The learning curves of a train table, drawn from the metrics that its models hold: one PNG and one table, not one event per epoch.

Pictures are drawn once and then taken from the history. A run that reuses a model reports it again, with all that its page shows. Drawing
takes longer than everything else that such a run does, so the pictures of the last materialisation are taken when they were drawn from the
same: the models, and the records of their trainings.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import dagster as dg

from graphmill.assets.building.labels import rounded
from graphmill.assets.definitions import HIDDEN
from graphmill.assets.figures.style import MARKERS, SERIES
from graphmill.assets.pipeline.shown import SUMMARY, figure
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.figures.cost import read_metrics
from graphmill.trainers.record.scores import METRICS, METRICS_OF, bare, percent, scale, shown

DASHES = ("-", "--", ":")
"""Line styles of the first models, and of those whose colours come again."""
MOST_NAMED = 4
"""Largest number of models whose scores are all in the legend; of more, the mean."""
MAX_ROWS = 200
"""Most rows of the table: it is stored with every materialisation, so a long one keeps its last rows."""


def curve_metadata(models: Sequence[Artifact], splits: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the figure for the UI."""
    names = [called(model, split) for model, split in zip(models, splits or [""] * len(models), strict=True)]
    drawn = draw_curves([read_metrics(model) for model in models], names, models[0].config["train"]["metric"])
    return {"learning curve": figure("learning curve", drawn)}


def epoch_metadata(models: Sequence[Artifact]) -> dict[str, Any]:
    """Returns the table of the models' epochs."""
    records = [
        dg.TableRecord({"model": model.label, **{name: _plain(value) for name, value in row.items()}})
        for model in models
        for row in read_metrics(model)
    ]
    columns = {name: value for record in records for name, value in record.data.items()}
    kinds = {
        name: {int: "int", float: "float", bool: "bool"}.get(type(value), "string") for name, value in columns.items()
    }
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in kinds.items()])
    rows = [dg.TableRecord({name: record.data.get(name) for name in columns}) for record in records[-MAX_ROWS:]]
    return {"epochs": dg.MetadataValue.table(records=rows, schema=schema)}


def called(model: Artifact, split: str = "") -> str:
    """Returns the name of a model among those of its table."""
    return f"split {split}, seed {model.config['seed']}" if split else f"seed {model.config['seed']}"


def draw_curves(histories: Sequence[Sequence[dict[str, Any]]], names: Sequence[str], metric: str) -> bytes:
    """Returns a PNG of training loss and validation score over the epochs, which count from 1; under 100 kB.

    A star marks the epoch whose weights a model keeps: the first with the best validation score.
    """
    from graphmill.assets.figures.style import grid, new_figure, png

    drawing = new_figure(3.4 if len(names) == 1 else 3.8)
    losses, scores = drawing.subplots(1, 2)
    for number, (history, name) in enumerate(zip(histories, names, strict=True)):
        again, place = divmod(number, len(SERIES))
        style = {"color": SERIES[place], "marker": MARKERS[place], "linestyle": DASHES[again % len(DASHES)]}
        _draw_model(losses, scores, history, name, style, metric)
    validation, of_numbers = f"validation {METRICS.get(metric, metric)}", metric in METRICS_OF["regression"]
    loss = "mean error of standardised numbers" if of_numbers else "mean cross entropy, nats"
    for axes, title, unit in (
        (losses, "training loss", loss),
        (scores, validation, "%" if percent(metric) else "unit of the numbers"),
    ):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("epoch")
        axes.set_ylabel(unit)
        axes.xaxis.get_major_locator().set_params(integer=True)
        grid(axes)
    losses.set_ylim(bottom=0)
    if not any("valid" in row for history in histories for row in history):
        scores.text(0.5, 0.5, "no validation nodes", ha="center", transform=scores.transAxes)
    _say_kept(scores, histories, metric)
    handles, labels = losses.get_legend_handles_labels()
    if len(names) > 1:
        drawing.legend(handles, labels, loc="outside lower center", ncols=min(6, len(names)), frameon=False, fontsize=9)
    return png(drawing)


def chosen_row(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the row of the epoch whose weights were kept: the best validated one, or the last if none was validated."""
    validated = [row for row in history if "valid" in row]
    return max(validated, key=lambda row: row["valid"]) if validated else history[-1]


def _draw_model(
    losses: Any, scores: Any, history: Sequence[dict[str, Any]], name: str, style: dict[str, str], metric: str
) -> None:
    best = chosen_row(history)
    line = {**style, "markersize": 3.5 if len(history) <= 60 else 0, "linewidth": 1.3}
    losses.plot([row["epoch"] for row in history], [row["loss"] for row in history], label=name, **line)
    star = {"color": style["color"], "marker": "*", "markersize": 13, "markeredgecolor": "black", "linestyle": "none"}
    losses.plot(best["epoch"], best["loss"], **star)
    rows = [row for row in history if "valid" in row]
    if not rows:
        return
    factor = scale(metric)
    scores.plot([row["epoch"] for row in rows], [factor * row["valid"] for row in rows], **line)
    label = f"{name}: {shown(metric, best['valid'])} in epoch {best['epoch']}"
    scores.plot(best["epoch"], factor * best["valid"], label=label, **star)


def _say_kept(scores: Any, histories: Sequence[Sequence[dict[str, Any]]], metric: str) -> None:
    """Puts the scores of the kept epochs into the legend, or their mean and range for many models."""
    handles, labels = scores.get_legend_handles_labels()
    if not handles:
        return
    title = "kept weights"
    if len(handles) > MOST_NAMED:
        kept = [chosen_row(history)["valid"] for history in histories if any("valid" in row for row in history)]
        span = f"{bare(metric, min(kept))} to {shown(metric, max(kept))}"
        handles, labels = handles[:1], [f"mean {shown(metric, sum(kept) / len(kept))}, {span}"]
    scores.legend(handles, labels, frameon=False, fontsize=8, loc="lower right", title=title, title_fontsize=8)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value)
    return value if isinstance(value, int | str) or value is None else json.dumps(value)


DRAWING = 2
"""Raised by hand when pictures of the same models would look otherwise."""
DRAWN_TAG = f"{HIDDEN}drawn"
"""Tag of a materialisation: what its pictures were drawn from (`drawn_from`)."""
PICTURE = re.compile(r"!\[([^\]]+)\]\(data:image/png;base64,[^)]+\)")


def pictures(
    instance: dg.DagsterInstance, key: dg.AssetKey, models: Sequence[Artifact], splits: Sequence[str]
) -> dict[str, dg.MarkdownMetadataValue]:
    """Returns title -> picture: learning curve, cost of an epoch and, if it was recorded, the time-line.

    Args:
        models: the models; cost and time-line are those of the last.
        splits: split of each model, "" without a list of splits.
    """
    if found := _drawn_before(instance, key, drawn_from(models, splits)):
        return found
    from graphmill.jobs.figures.cost import cost_metadata
    from graphmill.jobs.figures.timeline import timeline_metadata

    return curve_metadata(models, splits) | cost_metadata(models[-1]) | timeline_metadata(models[-1])


def drawn_from(models: Sequence[Artifact], splits: Sequence[str]) -> str:
    """Returns a hash of all that decides the pictures, 32 hex digits: a tag holds at most 63 characters."""
    source = [DRAWING, list(splits), [[model.version, model.run_record()] for model in models]]
    return hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:32]


def _drawn_before(instance: dg.DagsterInstance, key: dg.AssetKey, source: str) -> dict[str, dg.MarkdownMetadataValue]:
    """Returns the pictures of the last materialisation of an asset if they were drawn from the same, else {}."""
    event = instance.get_latest_materialization_event(key)
    last = None if event is None else event.asset_materialization
    if last is None or (last.tags or {}).get(DRAWN_TAG) != source or SUMMARY not in last.metadata:
        return {}
    found = PICTURE.finditer(str(last.metadata[SUMMARY].value))
    return {picture[1]: dg.MetadataValue.md(picture[0]) for picture in found}
