"""The table `[score]` as a step: predictions of a trained model of another pipeline, or of this one, for the graph of this one."""

from pathlib import Path

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.notes import origin_of
from graphmill.assets.pipeline.steps import Step, join_steps, split_steps
from graphmill.assets.score import SCORE
from graphmill.trainers.inference.scoring.stage import ScoreStage
from graphmill.trainers.recipe.inputs import model_step

DRAWN_FROM = ("sampling_tables",)
"""Stages from which a model may draw neighbours, where the pipeline has them."""


def scoring_steps(pipeline: Pipeline, data: list[Step], training: list[Step], home: Path | None) -> list[Step]:
    """Returns the step that predicts, in a list; none if the file has no table `[score]`.

    Args:
        data, training: the other steps of the pipeline.
    """
    if pipeline.score is None:
        return []
    each = [
        [_step_of(one, split_steps(data, place), split_steps(training, place), home, trial=bool(pipeline.settings))]
        for place, one in enumerate(pipeline.by_split)
    ]
    return join_steps(each, pipeline.splits, [*data, *training], lambda name: f"graphmill run {pipeline.reference}")


def _step_of(pipeline: Pipeline, data: list[Step], training: list[Step], home: Path | None, *, trial: bool) -> Step:
    table = pipeline.score
    assert table is not None
    steps = {step.name: step for step in data}
    sampled = [name for name in DRAWN_FROM if name in steps]
    recipe = ScoreStage(sampled)
    read = {name: steps[pipeline.step_of(name)] for name in ("graph", "features", *sampled)}
    model = model_step(table.model, pipeline, {step.name: step for step in training}, home)
    return Step(
        pipeline=pipeline.name,
        name=SCORE,
        recipe=recipe,
        configs=(table,),
        inputs={**read, "model": model},
        checks=recipe.expected_checks(table),
        command=f"graphmill run {pipeline.reference}",
        origin=origin_of(pipeline.path, pipeline.text, pipeline.notes, (SCORE,)),
        trial=trial,
    )
