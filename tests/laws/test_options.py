"""The law of options: every cell of the table of options x techniques, and no cell untested.

A cell that works is validated, trained, stopped in the middle, gone on with and predicted with. Its weights are those that the docstring of
`SAME` promises. A cell that does not work is refused by what `graphmill validate` calls, at the line of one of its keys, or, where a file
shares tables among trainings, noted.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize, materialize_together
from graphmill.assets.building.stage import OnePass, Progress
from graphmill.assets.pipeline.data_steps import preprocessing_steps
from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.steps import Versions, find_inputs
from graphmill.assets.storage.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import execution_of
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.models.own_limits import model_problems
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.inputs import find_table_inputs
from graphmill.trainers.recipe.limits import Limit
from graphmill.trainers.recipe.options import CONDITIONS, OPTIONS
from graphmill.trainers.recipe.techniques import TECHNIQUES
from graphmill.trainers.recipe.together import useless_lines
from graphmill.trainers.run import train_table
from tests.laws.asked import ASKED, OTHERWISE, SAMPLING, WHEN, Ask, pipeline_text, write_beside
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import Stops, content, losses

SAME = {
    *(
        "cache",
        "features",
        "samplers",
        "queue",
        "workspace",
        "link_gbps",
        "stored",
        "io",
        "checkpoint_steps",
        "topology",
    ),
    *("booked", "packed", "unfused", "vanilla", "trainers", "devices", "ranks", "sharing", "presample", "probe"),
    *("sampling", "hotness", "memory", "device_cache", "peer"),
}
"""Options that change no weight of a technique. With the others an exact technique has the weights of "minibatch" with the same option, in
one part where it has parts; one that approximates has them where nothing is kept; and a pass over the whole graph has the losses of one
batch of everything."""
SAME |= {"self_term", "part_plan"}
DRAWN = {"own_fanouts", "weighted", "walks", "own_sampling", "by_relation", "schedule", "sampling_seed"}
"""Options that a pass over the whole graph reads in a sampled evaluation alone, so that its losses are those without them."""
UNREPEATABLE = {"staleness"}
"""Options with which two trainings differ, which the model says."""
EXACT = {"disk": Ask(), "factored": Ask(), "distributed": Ask(tables={"partitions": {"parts": 1}})}
EXACT |= {"fresh": Ask(own={"t_stale": 0}), "fresh-factored": Ask(own={"t_stale": 0})}
EXACT |= {"fresh-distributed": EXACT["distributed"] | Ask(own={"t_stale": 0})}
"""Technique -> what makes its weights those of "minibatch"."""
WHOLE = Ask(sampling={"fanouts": [-1, -1], "batch_size": 10_000}, keys={"accumulate": 1})


def limits(option: str, trainer: str) -> list[Limit]:
    """The limits of a cell."""
    return [limit for limit in TECHNIQUES[trainer].limits() if limit.option == option]


def cells() -> Iterator[Any]:
    """Every cell: option, technique, and the limit, None where it works."""
    for option in OPTIONS.values():
        for trainer, technique in TECHNIQUES.items():
            name = f"{option.name}-{trainer}"
            if not option.has_key(technique):
                continue
            found = limits(option.name, trainer)
            yield from (pytest.param(option.name, trainer, limit, id=f"{name}-{limit.when}") for limit in found)
            if all(limit.when for limit in found):
                slow = (
                    [pytest.mark.slow("options that change weights, with each technique")]
                    if is_slow(option.name, trainer)
                    else []
                )
                gpu = [pytest.mark.gpu] if option.name == "topology" else []
                yield pytest.param(option.name, trainer, None, id=name, marks=[*slow, *gpu])


def is_slow(option: str, trainer: str) -> bool:
    """Whether a cell has a test of its own elsewhere, too, and so is left to the long run."""
    return option not in SAME and trainer != "minibatch"


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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


def weights(model: Artifact) -> str:
    return content(model)["weights.safetensors"]


def plain_of(option: str, trainer: str) -> Ask:
    """What a file asks for in which the option works: none of the conditions of its limits holds."""
    asked = Ask()
    for limit in limits(option, trainer):
        asked |= OTHERWISE.get(limit.when, Ask())
    return asked


@pytest.mark.parametrize(("option", "trainer", "limit"), [*cells()])
def test_each_cell_is_what_the_table_says(made: Made, tmp_path: Path, option: str, trainer: str, limit: Any) -> None:
    if limit is not None:
        assert_refused(made, option, trainer, limit)
    elif option == "topology" and not num_gpus():
        pytest.skip("no GPU")
    else:
        assert_works(made, tmp_path, option, trainer)


def assert_refused(made: Made, option: str, trainer: str, limit: Limit) -> None:
    """The file is refused at a line that has a key of the option, of the condition, or the technique; or a shared table is noted."""
    text = pipeline_text(trainer, WHEN[limit.when] | ASKED[option] | WHEN[limit.when])
    with pytest.raises(InputError) as refused:
        made.parse(text)
    found = re.findall(r"mine\.toml:(\d+): (.*)", refused.value.problem)
    at = [text.splitlines()[int(number) - 1] for number, said in found if limit.why in said]
    keys = {key.rpartition(".")[2] for key in (*OPTIONS[option].keys, CONDITIONS[limit.when].key if limit.when else "")}
    assert any(line.startswith((f"{key} = ", f"[{key}]")) for line in at for key in {*keys, "trainer"} - {""})
    if OPTIONS[option].scope == "file" and limit.useless:
        other = '[[train]]\nname = "other"\n'
        shared = pipeline_text(trainer, Ask(sampling=SAMPLING) | WHEN[limit.when] | ASKED[option])
        pipeline = made.parse(f"{shared}{other}")
        notes = [each for each in useless_lines(pipeline.train, pipeline.tables) if limit.why in each]
        assert any(note.startswith(f"note: x: [{OPTIONS[option].keys[0].partition('.')[0]}]") for note in notes)


def assert_works(made: Made, folder: Path, option: str, trainer: str) -> None:
    """The file is taken, and its training has the promised weights, whether it is stopped or not, and predicts."""
    technique, ask = TECHNIQUES[trainer], asked_of(option, trainer)
    exact = EXACT.get(trainer, Ask()) if option not in SAME else Ask()
    keys: dict[str, Any] = {"epochs": 3} if technique.whole_graph else {"checkpoint_steps": 1}
    keys |= {"dtype": "float64"} if technique.whole_graph and option not in SAME else {}
    pipeline = made.parse(pipeline_text(trainer, ask | exact, **keys, trial=option))
    model = made.resumed(pipeline, after=1 if technique.whole_graph else 5)
    if option in UNREPEATABLE:
        assert model.summary["numbers"]["repeatable"] is False
    elif option in SAME:
        plain = plain_ask(option, trainer)
        assert weights(model) == weights(made.straight(trainer, plain, **keys))
    elif technique.whole_graph and option in DRAWN:
        model_keys = {name: value for name, value in ask.keys.items() if name == "model"}
        assert losses(model) == losses(made.straight(trainer, Ask(keys=model_keys, graph=ask.graph), **keys))
    elif technique.whole_graph:
        batch = made.straight("minibatch", ASKED[option] | WHOLE, dtype="float64", epochs=3)
        np.testing.assert_allclose(losses(model), losses(batch), rtol=1e-9)
    else:
        fanouts = {name: value for name, value in ask.keys.items() if name == "fanouts"}
        assert weights(model) == weights(made.straight("minibatch", ASKED[option] | Ask(keys=fanouts)))
    out = folder / "predicted.parquet"
    num_rows = predict_table(made.store, pipeline, "x", out, probabilities=True)[1]
    found = pl.read_parquet(out)
    assert len(found) == num_rows == json.loads(json.dumps(find_nodes(made, pipeline))) > 0
    assert found["probability"].is_finite().all()
    for check in model.summary["checks"]:
        assert check["passed"] or check["name"] in ("loss fell", "score above chance"), check


def asked_of(option: str, trainer: str) -> Ask:
    """What a file asks for in which the option works and is read."""
    if TECHNIQUES[trainer].whole_graph and option in DRAWN:
        return OTHERWISE["exact"] | ASKED[option]
    return ASKED[option] | plain_of(option, trainer)


def plain_ask(option: str, trainer: str) -> Ask:
    """What the plain training asks for that an option is compared with: the keys that change weights, and none of its own."""
    ask = ASKED[option] | plain_of(option, trainer)
    kept = {name: value for name, value in ask.keys.items() if name in ("accumulate", "device", "eval")}
    return Ask(keys=kept, sampling=ask.sampling, own={name: ask.own[name] for name in ("mode",) if name in ask.own})


def find_nodes(made: Made, pipeline: Pipeline) -> int:
    (table,) = pipeline.train
    return find_table_inputs(pipeline, table, made.store, {}).inputs["graph"].summary["numbers"]["num_nodes"]


def test_every_option_and_every_condition_is_asked_for() -> None:
    """What the tests write is what the table sees, so that no cell is tested by a file that does not ask for it."""
    assert {*ASKED} == {*OPTIONS} and {*WHEN} == {"", *CONDITIONS}


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS.values() if not option.has_key(TECHNIQUES["minibatch"])]
)
def test_a_technique_without_a_key_refuses_it(made: Made, option: Any) -> None:
    for trainer, technique in TECHNIQUES.items():
        if not option.has_key(technique) and option.scope == "settings":
            with pytest.raises(InputError, match=rf"mine\.toml:\d+: .* has no key ({option.keys[0]}|{trainer})"):
                made.parse(pipeline_text(trainer, ASKED[option.name]))


def test_every_limit_is_of_an_option_and_a_condition() -> None:
    for technique in TECHNIQUES.values():
        for limit in technique.limits():
            assert limit.option in OPTIONS and limit.when in {"", *CONDITIONS}
