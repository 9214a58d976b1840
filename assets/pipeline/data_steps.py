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
from graphmill.assets.samples.sets import SAMPLES, set_names, step_of_set


def preprocessing_steps(pipeline: Pipeline, home: Path | None = None) -> list[Step]:
    """Returns the steps that build data, in the order in which they run; the recipe of each is its whole stage."""
    each = [_steps_of(one, home, trial=bool(pipeline.settings)) for one in pipeline.by_split]
    return join_steps(each, pipeline.splits, (), lambda name: f"graphmill build {pipeline.reference}")


def _steps_of(pipeline: Pipeline, home: Path | None, *, trial: bool) -> list[Step]:
    steps: dict[str, Step] = {}
    command = f"graphmill build {pipeline.reference}"
    asked = [(stage, one) for stage in stages(home) for one in _by_sample_set(pipeline, stage)]
    for stage, one, own_name, config in [
        (*each, *named) for each in asked for named in each[0].configs(each[1]).items()
    ]:
        name = step_of_set(own_name, one.sample_set or "")
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
                role: steps[one.step_of(source, stage.input_table(config))]
                for role, source in stage.inputs(config).items()
            },
            checks=stage.expected_checks(config),
            external=f"{external}.{name}" if external and shared else external,
            after=after,
            command=command,
            origin=origin_of(pipeline.path, pipeline.text, pipeline.notes, *_tables_of(stage, name, one)),
            trial=trial,
        )
    return list(steps.values())


def _by_sample_set(pipeline: Pipeline, stage: Stage) -> list[Pipeline]:
    """Returns the sample sets, each as a recipe, for which a stage has a step; the file itself for a stage that all of them share.

    Of a file with several sets each is sampled; hotness, plans and packed rows are built for the sets whose trainings read them.
    """
    if not stage.by_sample_set or len(pipeline.by_sample_set) == 1:
        return [pipeline]
    needless = stage.name == SAMPLES or not pipeline.train
    return [one for one in pipeline.by_sample_set if needless or one.is_read(stage.name)]


def _tables_of(stage: Stage, name: str, pipeline: Pipeline) -> list[KeyPath]:
    """Returns the tables that may ask for a step, its own first: that of [features.NAME] for the step features.NAME."""
    sets = [(SAMPLES, place) for place, each in enumerate(set_names(pipeline.tables)) if each == pipeline.sample_set]
    return [*sets, tuple(name.split(".")), (stage.table,), *((table,) for table in stage.needs), ("graph",)]
