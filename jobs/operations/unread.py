"""Notes about what a pipeline file asks for and its trainings do not read."""

from collections.abc import Iterator

from graphmill.assets.pipeline.data_steps import preprocessing_steps
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Step
from graphmill.jobs.runs.training import training_steps
from graphmill.trainers.recipe.together import useless_lines


def unread_lines(pipeline: Pipeline) -> Iterator[str]:
    """Yields a note for each table or key that has no effect on some trainings, and for each step that none of them reads.

    A file without trainings only builds data, so nothing is said of its steps.
    """
    yield from useless_lines(pipeline.train, pipeline.tables)
    steps = preprocessing_steps(pipeline)
    read = {step.name for training in training_steps(pipeline, steps) for step in _below(training)}
    for step in steps if pipeline.train else ():
        if step.name not in read and {step.recipe.table, step.name} & {*pipeline.tables}:
            yield f"note: [{step.recipe.table}]: {step.name} is built, and no training of this file reads it"


def _below(step: Step) -> Iterator[Step]:
    """Yields the steps that a step depends on, some of them several times."""
    for source in (*step.inputs.values(), *step.reads.values()):
        yield source
        yield from _below(source)
