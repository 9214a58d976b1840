"""The figures of a report: what was learnt, what it cost, where rows came from, and what each thread did.

Each is a `ReportFigure`, so that the page and the files of `graphmill plot` show the same. Numbers of bars stand in a table of the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from graphmill.assets.figures.style import (
    BLACK,
    BLUE,
    CYAN,
    GREEN,
    GREY,
    LEVELS,
    LIGHT,
    PURPLE,
    RED,
    YELLOW,
    byte_unit,
    grid,
)
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.commands.results.leaderboard import Entry
from graphmill.jobs.figures.cost import LINKS
from graphmill.jobs.figures.timeline import colour_of
from graphmill.jobs.report.class_charts import class_drawings
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.facts import ReportFacts
from graphmill.jobs.report.plots import (
    add_legend,
    bars_height,
    draw_lines,
    ends,
    legend_height,
    name_rows,
    spans_decades,
    stacked,
)
from graphmill.jobs.report.series import (
    Axis,
    Series,
    Value,
    by_unit,
    cached_shares,
    costs,
    hit_curves,
    learning_curves,
    mean_of,
    value_words,
)
from graphmill.trainers.record.ledger import MOST_BATCHES, hidden_share, lanes
from graphmill.trainers.record.scores import named, percent, scale

PHASES = {"training steps": PURPLE, "waiting": LIGHT, "evaluation": YELLOW}
LINK_COLOURS = dict(zip(LINKS.values(), (RED, YELLOW, BLUE, CYAN, GREEN, BLACK), strict=True))
MOST_TIMELINES = 30
"""Most time-lines of a report; those of further tables are drawn by `graphmill timeline`."""

MOST_SPANS = 1500
"""Most bars of a time-line: of more, the first batches are drawn."""

MOST_BARS = 60
"""Most train tables of a figure with a bar for each; the best ones are drawn."""


def drawings(facts: ReportFacts) -> list[ReportFigure]:
    """Returns the figures of a report that have something to show."""
    entries = facts.entries[:MOST_BARS]
    found = [quality(group) for group in by_unit(entries)]
    found += [
        learning(group, value, over)
        for value in get_args(Value)[::-1]
        for over in get_args(Axis)
        for group in by_unit(facts.entries, value)
    ]
    found += [
        *class_drawings(facts.entries),
        hits(facts),
        tiers(entries),
        seconds(entries),
        links(entries),
        memory(entries),
        *timelines(facts.entries),
    ]
    return [each for each in found if each is not None]


def quality(entries: Sequence[Entry]) -> ReportFigure | None:
    """Draws the mean scores of each table, which have one unit, with the smallest and the largest of its models."""
    names = [entry.table.name for entry in entries]
    scores = {split: [entry.scores(split) for entry in entries] for split in ("valid", "test")}
    if not any(each for values in scores.values() for each in values):
        return None
    scales = [scale(entry.table.metric) for entry in entries]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for shift, (split, colour, marker) in zip(
            (-0.14, 0.14), (("valid", BLUE, "o"), ("test", RED, "s")), strict=True
        ):
            rows = [
                (place + shift, [scales[place] * each for each in found])
                for place, found in enumerate(scores[split])
                if found
            ]
            means = [sum(found) / len(found) for _, found in rows]
            around = [
                [mean - min(found) for mean, (_, found) in zip(means, rows, strict=True)],
                [max(found) - mean for mean, (_, found) in zip(means, rows, strict=True)],
            ]
            style = {"color": colour, "marker": marker, "markersize": 5, "capsize": 3, "linestyle": "none"}
            if rows:
                axes.errorbar(means, [place for place, _ in rows], xerr=around, label=split, **style)
        name_rows(axes, names)
        axes.set_xlabel(named(entry.table.metric for entry in entries))
        grid(axes, "x")
        add_legend(figure, axes)

    says = "Mean validation and test score of each train table; lines reach from the worst to the best of its models."
    name, title = _named_by_unit("quality", "Quality", entries)
    return ReportFigure(name=name, title=title, says=says, draw=draw, height=bars_height(len(names), 1))


def learning(entries: Sequence[Entry], value: Value, over: Axis) -> ReportFigure | None:
    """Draws the loss or the validation score of all tables over epochs or over seconds."""
    curves = learning_curves(entries, value, over)
    if not curves:
        return None
    y_label = value_words(value, [entry.table.metric for entry in entries])
    x_label = "epoch" if over == "epochs" else "seconds of training, evaluations left out"

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        draw_lines(axes, curves)
        axes.set(xlabel=x_label, ylabel=y_label)
        if over == "epochs":
            axes.xaxis.get_major_locator().set_params(integer=True)
        if value == "loss" and spans_decades(curves):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda at, _: f"{at:g}")
            axes.yaxis.set_minor_formatter(lambda at, _: "")
        grid(axes)
        add_legend(figure, axes)

    what = "Validation score" if value == "valid" else "Training loss"
    band = " Bands reach from the worst to the best seed." if any(curve.low for curve in curves) else ""
    same = " Tables with equal results are one curve." if any(" = " in curve.label for curve in curves) else ""
    name, title = f"{'score' if value == 'valid' else 'loss'}-over-{over}", f"{what} over {over}"
    if value == "valid":
        name, title = _named_by_unit(name, title, entries)
    return ReportFigure(
        name=name,
        title=title,
        says=f"{len(curves)} curves.{same}{band} {ends(curves)}",
        draw=draw,
        height=2.7 + legend_height([curve.label for curve in curves]),
    )


def _named_by_unit(name: str, title: str, entries: Sequence[Entry]) -> tuple[str, str]:
    """Returns name and title of a figure of scores; those of errors stand beside one of shares."""
    return (name, title) if percent(entries[0].table.metric) else (f"{name}-errors", f"{title}, errors")


def hits(facts: ReportFacts) -> ReportFigure | None:
    """Draws hit ratios of caches over their size, and the shares that the trainings' device caches served."""
    source, curves = hit_curves(facts.artifact("hotness"))
    points = cached_shares(facts.entries, facts.num_nodes)
    if not curves and not points:
        return None
    # Tables with one cache and equal hits are one point.
    groups: dict[tuple[float, float], list[str]] = {}
    for each in points:
        groups.setdefault((round(each.x[0], 3), round(each.y[0], 3)), []).append(each.label.removesuffix(", device"))
    points = [
        Series(label=f"measured: {', '.join(names)}", x=[x], y=[y], points=True) for (x, y), names in groups.items()
    ]
    labelled = [Series(label=f"{each.label}, {source}", x=each.x, y=each.y) for each in curves]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        draw_lines(axes, [*labelled, *points], mark=False)
        axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", label="random rows")
        axes.set(xlabel="nodes whose rows are cached, % of all", ylabel="input rows from the cache, %")
        axes.set(xlim=(0, 100), ylim=(0, 100))
        grid(axes)
        add_legend(figure, axes)

    says = f"Share of input rows that a cache serves over the share of nodes in it. {ends(labelled)}"
    labels = [*(each.label for each in [*labelled, *points]), "random rows"]
    return ReportFigure(
        name="hit-rates", title="Hit rates of caches", says=says, draw=draw, height=2.7 + legend_height(labels)
    )


def tiers(entries: Sequence[Entry]) -> ReportFigure | None:
    """Draws the shares of each table's input rows by the tier that they came from."""
    shares = {name: _percent(rows) for name, rows in costs(entries, "rows").items() if any(rows.values())}
    says = "Share of the input rows of an epoch by the place that they came from, for each train table."
    label = "input rows of an epoch, %"
    return stacked("tiers", "Shares of tiers", says, shares, {k: LEVELS[k] for k in LEVELS}, label)


def seconds(entries: Sequence[Entry]) -> ReportFigure | None:
    """Draws the seconds of each table's epochs by phase."""
    says = "Mean seconds of an epoch by phase, for each train table."
    label = "seconds per epoch, mean"
    return stacked("seconds", "Seconds of an epoch", says, costs(entries, "seconds"), PHASES, label)


def links(entries: Sequence[Entry]) -> ReportFigure | None:
    """Draws the bytes of each table's epochs by link."""
    found = costs(entries, "bytes")
    size, unit = byte_unit(max((sum(each.values()) for each in found.values()), default=0))
    scaled = {name: {link: n / size for link, n in each.items()} for name, each in found.items()}
    says = "Bytes that crossed each link in an epoch, for each train table."
    return stacked("links", "Bytes by link", says, scaled, LINK_COLOURS, f"moved per epoch, {unit}")


def memory(entries: Sequence[Entry]) -> ReportFigure | None:
    """Draws the peak memory of each table beside its predicted bound."""
    peaks = [entry.peak_memory_bytes() for entry in entries]
    if not any(peaks):
        return None
    bounds = [mean_of(entry, _bound) for entry in entries]
    size, unit = byte_unit(max([each for each in (*peaks, *bounds) if each], default=1))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.barh(
            range(len(entries)), [(peak or 0) / size for peak in peaks], color=BLUE, height=0.6, label="peak, measured"
        )
        known = [(place, bound / size) for place, bound in enumerate(bounds) if bound]
        if known:
            style = {"color": RED, "marker": "|", "markersize": 12, "markeredgewidth": 2, "linestyle": "none"}
            axes.plot([bound for _, bound in known], [place for place, _ in known], label="bound, predicted", **style)
        name_rows(axes, [entry.table.name for entry in entries])
        axes.set_xlabel(f"main memory, {unit}")
        grid(axes, "x")
        add_legend(figure, axes)

    largest = format_bytes(max(peak for peak in peaks if peak))
    says = f"Peak main memory of each training, and the bound that was predicted for it. The largest peak is {largest}."
    return ReportFigure(name="memory", title="Peak memory", says=says, draw=draw, height=bars_height(len(entries), 1))


def _bound(model: Artifact) -> float | None:
    record = model.run_record()  # of ranks it is the bound of those on the first machine, and the peak that of all
    return None if record.get("ranks") else (record.get("memory_need") or {}).get("bytes")


def timelines(entries: Sequence[Entry]) -> Iterator[ReportFigure]:
    """Yields the time-line of the last epoch of each table's last model, if it was recorded."""
    for entry in entries[:MOST_TIMELINES]:
        record = entry.models[-1].run_record().get("timeline") or {}
        if record.get("spans"):
            yield _timeline(entry.table.name, record)


def _timeline(name: str, record: Mapping[str, Any]) -> ReportFigure:
    spans, share = record["spans"], hidden_share(record)
    batches = sorted({span[2] for span in spans})[:MOST_BATCHES]
    while len(batches) > 1 and sum(span[2] <= batches[-1] for span in spans) > MOST_SPANS:
        batches.pop()
    spans = [span for span in spans if span[2] <= batches[-1]]
    rows = lanes(spans)
    phases = sorted({span[1] for span in spans}, key=lambda phase: (phase == "wait", phase))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for phase in phases:
            colour, label = colour_of(phase), phase
            for place, lane in enumerate(rows):
                bars = [(begin, end - begin) for at, what, _, begin, end in spans if (at, what) == (lane, phase)]
                if bars:
                    axes.broken_barh(bars, (place - 0.4, 0.8), facecolor=colour, linewidth=0, label=label)
                    label = None
        name_rows(axes, rows)
        axes.set_xlabel(f"seconds in epoch {record['epoch']}, batches {batches[0] + 1} to {batches[-1] + 1}")
        add_legend(figure, axes, columns=4)

    busy = "; ".join(
        f"{lane}: {', '.join(f'{phase} {took:.3g} s' for phase, took in sums.items())}"
        for lane, sums in record["busy_seconds"].items()
    )
    hidden = "" if share is None else f" {100 * share:.0f} % of the preparation was hidden behind the step."
    return ReportFigure(
        name=f"timeline-{name}",
        title=f"Time-line of {name}",
        says=f"Seconds of the whole epoch by thread: {busy}.{hidden}",
        draw=draw,
        height=0.8 + 0.28 * len(rows) + 0.19 * math.ceil(len(phases) / 4),
    )


def _percent(rows: Mapping[str, float]) -> dict[str, float]:
    total = sum(rows.values())
    return {name: 100 * n / total for name, n in rows.items()}
