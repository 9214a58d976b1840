"""How far the feature columns of a graph are from those that a model was trained on.

Mean and deviation of each column, by node type, from nodes at equal distances of each type: of n nodes the mean is known to 1/sqrt(n)
deviations, 0.004 for 65,536. A column that was constant in the training has the deviation 1 there, as a standardised target has.

Memory: a block of rows in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from graphmill.assets.building.stage import Check
from graphmill.assets.features.read import node_types
from graphmill.assets.score import ScoreTable
from graphmill.kernels.types import Array
from graphmill.trainers.inference.scoring.page import FEATURES_ALIKE
from graphmill.trainers.inference.trained import OpenedData, PredictedData
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.rows.source import FeatureSource, RowIds

MOST_NODES = 65_536
"""Nodes of a type whose rows are read."""
BLOCK_VALUES = 1 << 20
MOST_SHOWN = 20
"""Columns that are stored with their numbers; those that moved most."""
LARGEST = 1e6
"""Stands for the ratio of two deviations of which one is 0."""


class ColumnMoments(NamedTuple):
    """Mean and deviation of the columns of a node type's features.

    Attributes:
        name: name of the type; "" if nodes have no types.
        mean, deviation: f64[F].
    """

    name: str
    mean: Array
    deviation: Array


def column_drift(data: PredictedData, table: ScoreTable) -> tuple[dict[str, Any], Check]:
    """Returns the numbers of the drift of feature columns, and the check of it."""
    assert data.learnt is not None, "another graph than that of the training"
    trained = {each.name: each for each in column_moments(data.learnt)}
    rows = [row for now in column_moments(data.read) for row in _compared(trained.get(now.name), now)]
    beyond = [
        each for each in rows if each["shift"] > table.most_mean_shift or each["ratio"] > table.most_deviation_factor
    ]
    shifts, ratios = ([each[name] for each in rows] or [low] for name, low in (("shift", 0.0), ("ratio", 1.0)))
    most = sorted(rows, key=lambda row: max(row["shift"], np.log(row["ratio"])), reverse=True)[:MOST_SHOWN]
    numbers = {
        "largest_mean_shift": max(shifts),
        "largest_deviation_factor": max(ratios),
        "num_drifted_columns": len(beyond),
        "drifted_columns": most,
    }
    said = [_sentence(each) for each in most if each in beyond][:3]
    detail = f"{len(beyond)} of {len(rows)} columns are beyond a bound" + "".join(f"; {each}" for each in said)
    bounds = {"largest distance of a mean (deviations)": max(shifts), "bound": table.most_mean_shift}
    bounds |= {"largest ratio of deviations": max(ratios), "bound of the ratio": table.most_deviation_factor}
    return numbers, Check(name=FEATURES_ALIKE, passed=not beyond, detail=detail, numbers=bounds, blocking=False)


def column_moments(data: OpenedData) -> Iterator[ColumnMoments]:
    """Yields mean and deviation of the columns of each node type with features, from nodes at equal distances."""
    types = node_types(data.graph.topology, data.features)
    if types is None:
        ranges = [("", 0, data.graph.topology.num_nodes, data.features.width)]
    else:
        places = zip(data.graph.node_types, pairwise(types.starts), types.columns, strict=True)
        ranges = [(name, low, high, columns) for name, (low, high), columns in places]
    source = open_source(data.features, "auto")
    try:
        for name, low, high, columns in ranges:
            count = min(high - low, MOST_NODES)
            ids = low + np.arange(count) * (high - low) // max(1, count)
            ids = ids[data.features.rows_of(ids) >= 0]
            if len(ids) and columns:
                yield ColumnMoments(name, *_moments(source, ids, columns))
    finally:
        source.close()


def _moments(source: FeatureSource, ids: Array, columns: int) -> tuple[Array, Array]:
    """Returns mean and deviation f64[columns] of the rows of nodes.

    Sums are of distances from the first row, so that they do not cancel.
    """
    dtype = torch.float64 if source.dtype == "float64" else torch.float32
    step, first = max(1, BLOCK_VALUES // source.width), np.zeros(0)
    sums = squares = np.zeros(columns)
    for low in range(0, len(ids), step):
        block = ids[low : low + step]
        out = torch.empty((len(block), source.width), dtype=dtype)
        source.gather(RowIds(block), out, Ledger())
        values = out.numpy()[:, :columns].astype(np.float64)
        first = values[0] if low == 0 else first
        sums, squares = sums + (values - first).sum(axis=0), squares + np.square(values - first).sum(axis=0)
    mean = sums / len(ids)
    return first + mean, np.sqrt(np.maximum(0, squares / len(ids) - np.square(mean)))


def _compared(trained: ColumnMoments | None, now: ColumnMoments) -> Iterator[dict[str, Any]]:
    """Yields a row for each column of a node type: its numbers now and in the training, their distance and their ratio."""
    if trained is None:  # the training had no node of the type
        return
    unit = np.where(trained.deviation > 0, trained.deviation, 1.0)
    shift = np.minimum(LARGEST, np.abs(now.mean - trained.mean) / unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.maximum(now.deviation / trained.deviation, trained.deviation / now.deviation)
    ratio = np.where((now.deviation == 0) & (trained.deviation == 0), 1.0, np.minimum(LARGEST, np.nan_to_num(ratio)))
    names = [f"{now.name} {place}".strip() for place in range(len(shift))]
    for place, name in enumerate(names):
        yield {
            "column": name,
            "mean": float(now.mean[place]),
            "training_mean": float(trained.mean[place]),
            "deviation": float(now.deviation[place]),
            "training_deviation": float(trained.deviation[place]),
            "shift": float(shift[place]),
            "ratio": float(ratio[place]),
        }


def _sentence(row: dict[str, Any]) -> str:
    moved = "column {column}: mean {mean:.4g}, in the training {training_mean:.4g}; deviation {deviation:.4g}, in the training "
    return (moved + "{training_deviation:.4g}").format(**row)
