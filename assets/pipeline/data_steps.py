"""The data steps of a pipeline: one for each stage that its tables ask for, in the order in which they run.

A table asks for its own stage, and a train table for the stages that its technique reads. assets/pipeline/steps.py defines steps.
"""

from pathlib import Path

from graphmill.assets.building.stage import Stage
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.notes import origin_of
from graphmill.assets.pipeline.steps import Step, join_steps
from graphmill.assets.pipeline.toml_text import KeyPath


def preprocessing_steps(pipeline: Pipeline, home: Path | None = None) -> list[Step]:
    """Returns the steps that build data, in the order in which they run; the recipe of each is its whole stage."""
    each = [_steps_of(one, home, trial=bool(pipeline.settings)) for one in pipeline.by_split]
    return join_steps(each, pipeline.splits, (), lambda name: f"graphmill build {pipeline.reference}")


def _steps_of(pipeline: Pipeline, home: Path | None, *, trial: bool) -> list[Step]:
    steps: dict[str, Step] = {}
    for stage in stages(home):
        for name, config in stage.configs(pipeline).items():
            # Assets that come first stand for what they write; looking at it before they ran would fail.
            after = stage.after(config)
            external = "" if after else stage.external(config)
            # Several steps read parts of one source: each part changes on its own.
            shared = any(external == step.external for step in steps.values())
            steps[name] = Step(
                pipeline=pipeline.name,
                name=name,
                recipe=stage,
                configs=(config,),
                inputs={
                    role: steps[pipeline.step_of(source, stage.input_table(config))]
                    for role, source in stage.inputs(config).items()
                },
                checks=stage.expected_checks(config),
                external=f"{external}.{name}" if external and shared else external,
                after=after,
                command=f"graphmill build {pipeline.reference}",
                origin=origin_of(pipeline.path, pipeline.text, pipeline.notes, *_tables_of(stage, name)),
                trial=trial,
            )
    return list(steps.values())


def _tables_of(stage: Stage, name: str) -> list[KeyPath]:
    """Returns the tables that may ask for a step, its own first: that of [features.NAME] for the step features.NAME."""
    return [tuple(name.split(".")), (stage.table,), *((table,) for table in stage.needs), ("graph",)]
