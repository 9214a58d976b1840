"""The numbers that the figures of a report show: learning curves, hit ratios, tiers, links, phases and memory, by train table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.jobs.commands.results.leaderboard import Entry
from graphmill.jobs.figures.cost import epoch_cost, read_metrics
from graphmill.kernels.hotness.ranking import cache_sizes, expected_hit_ratios, held_out_hit_ratios, hit_ratios
from graphmill.trainers.recipe.page import device_share
from graphmill.trainers.record.scores import loss_unit, named, percent, scale

Value = Literal["loss", "valid"]
"""The training loss, or the validation score."""
Axis = Literal["epochs", "seconds"]
"""The horizontal axis of learning curves."""

MOST_POINTS = 200
"""Most points of a curve; a longer one keeps as many epochs, evenly spaced, its first and last among them."""

MOST_NODES = 50_000_000
"""Most nodes of a graph whose ranking is read for a whole curve of hit ratios; of more, the stored sizes are shown."""

RATIOS = tuple(step / 50 for step in range(51))
"""Cache ratios of a whole curve."""

STORED_PERCENT = (1, 5, 10, 20)
"""Cache ratios, in percent, whose hit ratios are numbers of every artifact of hotness that has some."""


def value_words(value: Value, metrics: Sequence[str]) -> str:
    """Returns the words for the values of learning curves, with their unit."""
    return f"validation {named(metrics)}" if value == "valid" else f"mean training loss{loss_unit(metrics[0])}"


def by_unit(entries: Sequence[Entry], value: Value = "valid") -> list[list[Entry]]:
    """Returns groups of train tables that one axis may show: scores that are shares, and errors; of losses all tables."""
    if value == "loss":
        return [[*entries]]
    groups = [[each for each in entries if percent(each.table.metric) == share] for share in (True, False)]
    return [group for group in groups if group]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve.

    Attributes:
        x, y: n coordinates each.
        low, high: smallest and largest of the values that each y is the mean of; empty for curves of one model.
        points: whether these are single points, without a line between them.
    """

    label: str
    x: Sequence[float] = field(repr=False)
    y: Sequence[float] = field(repr=False)
    low: Sequence[float] = field(default=(), repr=False)
    high: Sequence[float] = field(default=(), repr=False)
    points: bool = False


def learning_curves(entries: Sequence[Entry], value: Value, over: Axis) -> list[Series]:
    """Returns the learning curves of train tables that have such values; validation scores that are shares are in percent.

    A curve of several models is their mean, as far as all of them were trained. Over epochs, tables with equal results are one curve with
    all their names. Over seconds, a model that a later process went on with is left out: the seconds before are not known.

    Args:
        over: numbers of epochs, or the seconds of training that they took, evaluations left out.
    """
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        key = (entry.results(), entry.table.metric) if over == "epochs" else entry.table.name
        groups.setdefault(key, []).append(entry)
    found = []
    for group in groups.values():
        label = " = ".join(entry.table.name for entry in group)
        factor = scale(group[0].table.metric) if value == "valid" else 1
        if (curve := _curve(label, group[0].models, value, over, factor)) is not None:
            found.append(curve)
    return found


def _curve(label: str, models: Sequence[Artifact], value: str, over: str, factor: int) -> Series | None:
    rows = []
    for model in models:
        history = read_metrics(model)
        places = _places(model, len(history), over)
        if places is not None:
            rows.append(
                {row["epoch"]: (at, row[value]) for row, at in zip(history, places, strict=True) if value in row}
            )
    shared = sorted(set.intersection(*(set(each) for each in rows))) if rows else []
    if not shared:
        return None
    chosen = [shared[place] for place in _thinned(len(shared))]
    values = [[factor * each[epoch][1] for each in rows] for epoch in chosen]
    several = len(rows) > 1
    return Series(
        label=label,
        x=[statistics.fmean(each[epoch][0] for each in rows) for epoch in chosen],
        y=[statistics.fmean(each) for each in values],
        low=[min(each) for each in values] if several else (),
        high=[max(each) for each in values] if several else (),
    )


def _places(model: Artifact, num_epochs: int, over: str) -> list[float] | None:
    """Returns the place of each epoch on the horizontal axis; None if it is not known."""
    if over == "epochs":
        return [float(row["epoch"]) for row in read_metrics(model)]
    seconds = (model.run_record().get("epoch_seconds") or {}).get("train") or []
    return list(accumulate(seconds)) if len(seconds) == num_epochs else None


def _thinned(count: int) -> list[int]:
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round(place * (count - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)})


def hit_curves(hotness: Artifact | None) -> tuple[str, list[Series]]:
    """Returns the origin of the hit ratios of a pipeline's caches, and their curves over the share of cached nodes; both in percent.

    Measured ratios come from the stored numbers of all policies. Expected ones are estimated for the policy of the stage in its own way
    (assets/hotness): from its rates, or with each trial batch left out of the counts that fill its cache.
    """
    if hotness is None:
        return "", []
    numbers = hotness.summary["numbers"]
    measured: dict[str, dict[int, float]] = {}
    for name, value in numbers.items():
        policy, _, percent = name.removeprefix("hit_ratio_").removesuffix("_percent").rpartition("_")
        if name.startswith("hit_ratio_") and policy and percent.isdigit():
            measured.setdefault(policy, {})[int(percent)] = 100 * value
    if measured:
        curves = [
            Series(label=policy, x=(0, *sorted(hits)), y=(0, *(hits[at] for at in sorted(hits))))
            for policy, hits in measured.items()
        ]
        return "measured on training epochs", sorted(curves, key=lambda curve: -curve.y[-1])
    return "expected, from trial batches", _expected(hotness)


def _expected(hotness: Artifact) -> list[Series]:
    policy, numbers = hotness.config["hotness"]["policy"], hotness.summary["numbers"]
    stored = {percent: f"expected_hit_ratio_{percent}_percent" for percent in STORED_PERCENT}
    if "visits.npy" in hotness.files and numbers.get("num_nodes", 0) <= MOST_NODES:
        hits = _ratios(hotness, policy)
        return [Series(label=policy, x=[100 * ratio for ratio in RATIOS], y=[100 * float(hit) for hit in hits])]
    known = {percent: 100 * numbers[name] for percent, name in stored.items() if name in numbers}
    return [Series(label=policy, x=(0, *known), y=(0, *known.values()))] if known else []


def _ratios(hotness: Artifact, policy: str) -> np.ndarray:
    """Returns f64[51], the expected hit ratios of the chosen policy at `RATIOS`."""
    order, visits = hotness.array("order"), hotness.array("visits")
    sizes, sampling = cache_sizes(RATIOS, len(order)), hotness.config.get("sampling") or {}
    by_relation = any(isinstance(each, Mapping) for each in sampling.get("fanouts", ()))
    blended = policy == "bayes" and not by_relation and not is_reference(sampling.get("method", "uniform"))
    if blended:
        return expected_hit_ratios(order, hotness.array("score"), sizes)
    if policy in ("presample", "bayes"):
        return held_out_hit_ratios(visits, hotness.summary["numbers"]["presample_batches"], sizes)
    return hit_ratios(order, visits, sizes)


def cached_shares(entries: Sequence[Entry], num_nodes: int) -> list[Series]:
    """Returns a point for each table whose device held rows of a cache, in percent: nodes that it held, and input rows that it served."""
    found = []
    for entry in entries:
        model = entry.models[-1]
        rows, share = (model.run_record().get("cache") or {}).get("device_rows"), device_share(model)
        if rows and share is not None and num_nodes:
            point = ([100 * rows / num_nodes], [100 * share])
            found.append(Series(label=f"{entry.table.name}, device", x=point[0], y=point[1], points=True))
    return found


def costs(entries: Sequence[Entry], part: Literal["seconds", "rows", "bytes"]) -> dict[str, dict[str, float]]:
    """Returns table -> name -> mean cost of an epoch over its models: seconds by phase, rows by tier or bytes by link.

    Names come in one order for all tables, and those that no table has are left out.
    """
    found = {}
    for entry in entries:
        each = [epoch_cost(model)[part] for model in entry.models]
        names = dict.fromkeys(name for one in each for name in one)
        found[entry.table.name] = {name: statistics.fmean(one.get(name, 0.0) for one in each) for name in names}
    return found


def names_of(tables: Mapping[str, Mapping[str, float]], order: Iterable[str]) -> list[str]:
    """Returns the names that any table has a value of, in a given order; unknown ones follow."""
    there = dict.fromkeys(name for values in tables.values() for name, value in values.items() if value)
    known = [name for name in order if name in there]
    return [*known, *(name for name in there if name not in known)]


def mean_of(entry: Entry, value: Callable[[Artifact], float | None]) -> float | None:
    """Returns the mean of a number over the models of a table that have it; None if none has."""
    found = [each for each in map(value, entry.models) if each is not None]
    return statistics.fmean(found) if found else None
