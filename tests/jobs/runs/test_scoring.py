"""`[score]` as an asset: Dagster calls it stale exactly when the model that it names is another one than it was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from graphmill.assets.definitions import Surroundings
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.score import model_name
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.results.status import pipeline_states
from graphmill.jobs.definitions import build_defs
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.inputs import table_versions
from tests.recipes import recipe, sbm

TRAIN: dict[str, Any] = {"name": "sage", "hidden": 8, "epochs": 1, "threads": 1}
SAMPLING = {"fanouts": [4, 4], "batch_size": 64}


class Home:
    """The pipelines `taught` and `scored`, and the history of their runs."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance):
        self.folder, self.instance, self.store = folder, instance, Store(folder / "home")

    def teach(self, **train: Any) -> None:
        text = recipe(TRAIN | train, seed=3, graph=sbm(), sampling=SAMPLING)
        (self.folder / "taught.toml").write_text(text)
        self.run("taught")

    def score(self, model: str) -> None:
        self.name(model)
        self.run("scored")

    def name(self, model: str) -> None:
        (self.folder / "scored.toml").write_text(recipe(graph=sbm(nodes=330), seed=3, score={"model": model}))

    def definitions(self) -> dg.Definitions:
        pipelines = [load_pipeline(path, TrainTable) for path in sorted(self.folder.glob("*.toml"))]
        return build_defs(pipelines, Surroundings(store=self.store))

    def run(self, name: str) -> None:
        job = self.definitions().resolve_job_def(f"{name}__all")
        assert job.execute_in_process(instance=self.instance).success

    def fresh(self) -> bool:
        """Whether Dagster and `graphmill status` call the predictions up to date; they agree."""
        graph = self.definitions().resolve_asset_graph()
        resolver = CachingStaleStatusResolver(self.instance, graph, LoadingContextForTest(self.instance))
        told = resolver.get_status(dg.AssetKey(["scored", "score"])).name == "FRESH"
        pipeline = load_pipeline(self.folder / "scored.toml", TrainTable)
        (state,) = [each for each in pipeline_states(pipeline, self.store.home) if each.step == "score"]
        assert told == (state.artifact is not None), state.reasons
        return told


@pytest.mark.parametrize("seeds", [[4], [4, 5]], ids=["one seed", "several seeds"])
def test_predictions_are_stale_when_their_model_is_another_one(tmp_path: Path, seeds: list[int]) -> None:
    with dg.instance_for_test() as instance:
        home = Home(tmp_path, instance)
        home.teach(seeds=seeds)
        home.score("taught/sage")
        assert home.fresh()
        home.teach(seeds=seeds, lr=0.02)
        assert not home.fresh()
        home.score("taught/sage")
        assert home.fresh()
        # A version stays what it is, whatever the table trains afterwards.
        versions = table_versions(home.store, model_name("taught/sage", tmp_path))
        assert len(set(versions)) == len(seeds)
        home.score(f"taught/sage@{versions[-1]}")
        assert home.fresh()
        home.teach(seeds=seeds, lr=0.03)
        assert home.fresh()


def test_a_model_that_is_nowhere_is_noted_with_the_command_that_trains_it(tmp_path: Path) -> None:
    """For predictions and for a start; the pipeline that trains it may run before this one, so the file is valid."""
    with dg.instance_for_test() as instance:
        home = Home(tmp_path, instance)
        home.name("taught/sage")
        start = recipe(TRAIN | {"start": "taught/sage"}, graph=sbm(), seed=3, sampling=SAMPLING)
        (tmp_path / "tuned.toml").write_text(start)
        absent = {"scored": "score", "tuned": "sage"}
        for taught in (False, True):
            if taught:  # its file is there, and it is not trained yet
                (tmp_path / "taught.toml").write_text(recipe(TRAIN, seed=3, graph=sbm(), sampling=SAMPLING))
            for name, step in absent.items():
                (note,) = validated(home, name)
                assert note.startswith(f"note: {step}: taught/sage is not trained in {home.store.place}")
                assert note.endswith("train it: graphmill train taught sage")
        home.run("taught")
        assert [validated(home, name) for name in absent] == [[], []]
        home.name("taught/sage@123456")
        (note,) = validated(home, "scored")
        assert note.startswith("note: score: ") and "123456" in note


def validated(home: Home, name: str) -> list[str]:
    """The notes of `graphmill validate` about models."""
    ran = CliRunner().invoke(graphmill, ["--home", str(home.store.home), "validate", str(home.folder / f"{name}.toml")])
    assert ran.exit_code == 0, ran.output
    return [line for line in ran.output.splitlines() if line.startswith("note: ")]
