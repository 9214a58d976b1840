"""Pipeline files of a folder, parsed, built and trained in one store, for tests that try what files ask for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize, materialize_together
from graphmill.assets.building.stage import OnePass, Progress
from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.steps import Versions, find_inputs, preprocessing_steps
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import execution_of
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.own_limits import model_problems
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.inputs import find_table_inputs
from graphmill.trainers.recipe.together import useless_lines
from graphmill.trainers.run import train_table
from tests.laws.asked import Ask, pipeline_text, write_beside
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import Stops


class Made:
    """A folder of pipeline files, and a store that has what they ask for."""

    def __init__(self, folder: Path):
        self.folder, self.store = folder, Store(folder / "home")
        write_beside(folder)
        self._plain: dict[str, Artifact] = {}

    def parse(self, text: str) -> Pipeline:
        """The pipeline of a text, with what only a user's code says checked, too."""
        pipeline = parse_pipeline(self.folder / "mine.toml", text.encode(), TrainTable)
        pipeline.require([*model_problems(pipeline)])
        return pipeline

    def is_valid(self, text: str) -> bool:
        """Whether a text is a pipeline in which every line has an effect."""
        try:
            pipeline = self.parse(text)
        except InputError:
            return False
        return not [*useless_lines(pipeline.train, pipeline.tables)]

    def build(self, pipeline: Pipeline) -> None:
        """Builds the data of a pipeline."""
        versions, steps = Versions(), preprocessing_steps(pipeline, self.store.home)
        source = [step for step in reversed(steps) if isinstance(step.recipe, OnePass)]
        materialize_together(self.store, [(step.recipe, step.configs[0]) for step in source], Threads(threads=1))
        for step in steps:
            if step not in source:
                given = find_inputs(self.store, step, versions)
                materialize(self.store, step.recipe, step.configs[0], execution_of(step.recipe, 1), given)

    def train(self, pipeline: Pipeline, resume: bool = False, progress: Progress | None = None) -> Artifact:
        """Trains the only model of a pipeline; its ranks are threads."""
        (table,) = pipeline.train
        found = find_table_inputs(pipeline, table, self.store, {})
        how: dict[str, Any] = {"reads": found.reads, "resume": resume, "progress": progress}

        def work(ranks: Ranks) -> Any:
            given = self.store, found.inputs, table, pipeline.sampling, pipeline.seed
            return train_table(*given, ranks=ranks, report=lambda line: None, **how)

        world = table.own_settings.ranks
        (model,) = work(ALONE) if world == 1 else run_threads(world, work)[0]
        return model

    def straight(self, trainer: str, ask: Ask, **keys: Any) -> Artifact:
        """The model that a technique trains without a stop; each is trained once."""
        text = pipeline_text(trainer, ask, **keys)
        if text not in self._plain:
            pipeline = self.parse(text)
            self.build(pipeline)
            self._plain[text] = self.train(pipeline)
            shutil.rmtree(self.store.home / "checkpoints", ignore_errors=True)
        return self._plain[text]

    def resumed(self, pipeline: Pipeline, after: int) -> Artifact:
        """The model of a training that is stopped behind so many batches and gone on with."""
        self.build(pipeline)
        checkpoints = self.store.home / "checkpoints"
        with pytest.raises(ConnectionAbortedError):
            self.train(pipeline, progress=Stops(after))
        assert len(list(checkpoints.glob("*.safetensors"))) == 1
        model = self.train(pipeline, resume=True)
        assert not model.reused
        shutil.rmtree(checkpoints)  # from which longer trainings would go on
        return model
