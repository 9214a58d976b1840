"""Builds the predictions of a stored model for another graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmill.assets.building.stage import Building, Check, Summary
from graphmill.assets.score import ScoreTable
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.answers.links import LinkRequest
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.predict import predict_asked
from graphmill.trainers.inference.scoring.answers import AnswerDrift
from graphmill.trainers.inference.scoring.columns import column_drift
from graphmill.trainers.inference.scoring.page import EVERY_NODE, TABLE
from graphmill.trainers.inference.trained import PredictedData, open_data, stored_recipe, trained_data
from graphmill.trainers.recipe.config import ModelConfig


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
    asked = columns, table.types, request, table.eval
    expected, numbers = predict_asked(data, model, semantic, bounds, out, *asked, answers.add)
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
