"""Builds the predictions of a stored model for another graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Building, Check, Summary
from graphmill.assets.graph.read import Graph
from graphmill.assets.score import ScoreTable
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.answers.links import LinkRequest
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.predict import AskedPrediction, predict
from graphmill.trainers.inference.scoring.columns import column_drift
from graphmill.trainers.inference.scoring.page import ANSWERS_ALIKE, EVERY_NODE, TABLE
from graphmill.trainers.inference.trained import PredictedData, open_data, stored_recipe, trained_data
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.record.class_scores import read_scores
from graphmill.trainers.record.column_scores import read_columns
from graphmill.trainers.record.scores import answer_sums

MOST_SHOWN = 100
"""Classes, labels or targets that are stored with their shares; those that differ most."""


class AnswerDrift:
    """Counts the answers of a model as they are computed.

    Args:
        model: the model, whose artifact has the counts of its training.
    """

    def __init__(self, model: Artifact, graph: Graph):
        self.kind, self.names = graph.task, [*graph.class_names] or [*map(str, range(graph.num_classes))]
        self.trained = _training_shares(model, self.kind, len(self.names))
        self.sums, self.count = np.zeros(len(self.names)), 0

    def add(self, outputs: Array) -> None:
        """Adds the answers of some nodes, given the model's outputs float[n, C]."""
        if self.trained is None:
            return
        self.count += len(outputs)
        self.sums += answer_sums(self.kind, outputs)

    def check(self, table: ScoreTable) -> tuple[dict[str, Any], Check]:
        """Returns the numbers of the drift of answers, and the check of it."""
        if self.trained is None or not self.count:
            detail = (
                "nothing is known of the answers in the training" if self.trained is None else "no node is predicted"
            )
            return {}, Check(name=ANSWERS_ALIKE, passed=True, detail=f"not compared: {detail}", blocking=False)
        shares = self.sums / self.count
        apart = np.abs(shares - self.trained)
        shift = float(apart.sum() / 2 if self.kind == "classes" else apart.max())
        order = np.argsort(-apart, kind="stable")[:MOST_SHOWN]
        rows = [
            {"answer": self.names[each], "now": float(shares[each]), "training": float(self.trained[each])}
            for each in order
        ]
        of_numbers = self.kind == "regression"
        name, bound = ("answer_shift", table.most_mean_shift) if of_numbers else ("moved_share", table.most_class_shift)
        first = "; ".join("{answer}: {now:.3g}, in the training {training:.3g}".format(**each) for each in rows[:3])
        numbers = {"distance": shift, "bound": bound}
        check = Check(name=ANSWERS_ALIKE, passed=shift <= bound, detail=first, numbers=numbers, blocking=False)
        return {name: shift, "answers": rows}, check


def _training_shares(model: Artifact, kind: str, width: int) -> Array | None:
    """Returns f64[C], what answers are compared with; None if the model has recorded nothing.

    Of classes the shares of its answers, of several labels the shares of nodes that have them, both for the split that tells most of unseen
    nodes. The outputs of a model of numbers are standardised: 0.
    """
    if kind == "regression":
        return np.zeros(width)
    if kind == "classes" and (scores := read_scores(model)) is not None:
        predicted = scores.splits[scores.shown_split].predicted
        return predicted / max(1, predicted.sum())
    if kind == "multilabel" and (labels := read_columns(model)) is not None:
        counts = labels.splits[labels.shown_split]
        return counts.nodes / np.maximum(1, counts.known)
    return None


def build_score(building: Building[ScoreTable, Any]) -> Summary:
    """Writes the predictions, and returns their number, their scores and the drift; errors are those of `ScoreStage.build`."""
    table, model = building.semantic, building.inputs["model"]
    semantic = stored_recipe(model)
    _require_neighbours(table, semantic, building.inputs)
    trained = open_data(trained_data(model))
    data = PredictedData(open_data(building.inputs), building.inputs, trained)
    out = building.writer.path(TABLE)
    answers = AnswerDrift(model, trained.graph)
    columns = Columns(probabilities=table.probabilities, top=table.top, thresholds=table.thresholds)
    request = LinkRequest(top=table.top, relations=table.relations)
    bounds = Bounds(
        workspace_bytes=parse_size(table.workspace),
        threads=semantic.train.num_threads,
        folder=building.writer.scratch(),
        progress=building.progress,
    )
    asked = AskedPrediction(data, model, semantic, bounds, out, columns, table.types, request, table.eval, answers.add)
    expected, numbers = predict(asked)
    features, moved = column_drift(data, table)
    given, answered = answers.check(table)
    written = _num_rows(building)
    found = {"num_predicted": written, **numbers, **features, **given}
    every = Check(name=EVERY_NODE, passed=written == expected, detail=f"{written:,} of {expected:,} rows")
    return Summary(numbers=found, checks=[every, moved, answered])


def _require_neighbours(table: ScoreTable, semantic: ModelConfig, inputs: Mapping[str, Artifact]) -> None:
    """Refuses a model whose way of drawing neighbours this pipeline does not have."""
    sampling = semantic.sampling
    if sampling is None and table.eval == "sampled":
        raise InputError(
            "[score] eval = 'sampled', but the model was trained without [sampling]", "write eval = 'exact'"
        )
    if missing := [name for name in (sampling.inputs if sampling else ()) if name not in inputs]:
        problem = f"the model draws neighbours from {' and '.join(missing)}, which no table of this file asks for"
        raise InputError(problem, "give the file the table [sampling] of the training")


def _num_rows(building: Building[ScoreTable, Any]) -> int:
    """Returns the number of rows of the written file."""
    import polars

    return polars.scan_parquet(building.writer.path(TABLE), glob=False).select(polars.len()).collect().item()
