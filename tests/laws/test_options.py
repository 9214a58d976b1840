"""The law of options: every cell of the table of options x techniques, and no cell untested.

A cell that works is validated, trained, stopped in the middle, gone on with and predicted with. Its weights are those that the docstring of
`SAME` promises. Options that change no weight are asked for together, in as few files of each technique as may have them; alone they are
tried with "minibatch", and in the long run with each technique. A cell that does not work is refused by what `graphmill validate` calls,
at the line of one of its keys, or, where a file shares tables among trainings, noted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.inputs import find_table_inputs
from graphmill.trainers.recipe.option_table import CONDITIONS, OPTIONS, Limit
from graphmill.trainers.recipe.techniques import TECHNIQUES
from graphmill.trainers.recipe.together import useless_lines
from tests.laws.asked import ASKED, OTHERWISE, SAMPLING, WHEN, Ask, pipeline_text
from tests.laws.made import Made
from tests.trainers.runs import content, losses

SAME = {
    *(
        "cache",
        "features",
        "samplers",
        "queue",
        "workspace",
        "link",
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
ALONE_IN_FILE = {"cache", "features", "sharing"}
"""Options among them that a file has alone: they turn off what others ask for, or need more memory than others give."""
DRAWN = {"own_fanouts", "weighted", "walks", "own_sampling", "by_relation", "schedule", "sampling_seed"}
"""Options that a pass over the whole graph reads in a sampled evaluation alone, so that its losses are those without them."""
UNREPEATABLE = {"staleness"}
"""Options with which two trainings differ, which the model says."""
OVER_GRAPHS = {"graph_module", "subgraph"}
"""Options whose module gets a block per layer from a history and a batch as one graph else: from all neighbours it computes the same."""
EVERY = Ask(sampling={"fanouts": [-1, -1]})
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
                gpu = [pytest.mark.gpu] if option.name == "topology" else []
                yield pytest.param(option.name, trainer, None, id=name, marks=[*slow_marks(option.name, trainer), *gpu])


def slow_marks(option: str, trainer: str) -> list[pytest.MarkDecorator]:
    """The mark of a cell that is left to the long run, since its option is tried with the technique in another test, too."""
    if trainer == "minibatch" or option == "topology":
        return []
    same = option in SAME
    what = "options that change no weight, each alone" if same else "options that change weights"
    return [pytest.mark.slow(f"{what}, with each technique")]


def together(trainer: str, is_file: Callable[[Ask], bool]) -> list[tuple[list[str], Ask]]:
    """Groups the options that work with a technique and change no weight: the options of a file, and what it asks for.

    Args:
        trainer: the technique.
        is_file: whether a file may ask for all of it.
    """
    groups: list[tuple[list[str], Ask]] = []
    for option in sorted(SAME - {"topology"}):
        if not OPTIONS[option].has_key(TECHNIQUES[trainer]) or any(not limit.when for limit in limits(option, trainer)):
            continue
        asked = asked_of(option, trainer)
        for number, (names, ask) in enumerate(groups):
            if not ALONE_IN_FILE & {option, *names} and ask | asked == asked | ask and is_file(ask | asked):
                groups[number] = ([*names, option], ask | asked)
                break
        else:
            groups.append(([option], asked))
    return groups


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


@pytest.mark.parametrize("trainer", sorted({*TECHNIQUES} - {"minibatch"}))
def test_options_that_change_no_weight_change_none_together(made: Made, tmp_path: Path, trainer: str) -> None:
    groups = together(trainer, lambda ask: made.is_valid(pipeline_text(trainer, ask, **keys_of(trainer))))
    assert len(groups) < sum(len(names) for names, _ in groups)
    for names, ask in groups:
        assert_changes_nothing(made, tmp_path, trainer, ask, trial=f"together {' '.join(names)}")


def keys_of(trainer: str) -> dict[str, Any]:
    """Keys of the train table with which a training has checkpoints to be stopped behind."""
    return {"epochs": 3} if TECHNIQUES[trainer].whole_graph else {"checkpoint_steps": 1}


def assert_changes_nothing(made: Made, folder: Path, trainer: str, ask: Ask, trial: str) -> None:
    """The file is taken, and its training has the weights of the plain one, whether it is stopped or not, and predicts."""
    keys = keys_of(trainer)
    pipeline = made.parse(pipeline_text(trainer, ask, **keys, trial=trial))
    model = made.resumed(pipeline, after=1 if TECHNIQUES[trainer].whole_graph else 5)
    assert weights(model) == weights(made.straight(trainer, plain_ask(ask), **keys)), trial
    assert_predicts(made, folder, pipeline, model)


def assert_works(made: Made, folder: Path, option: str, trainer: str) -> None:
    """The file is taken, and its training has the promised weights, whether it is stopped or not, and predicts."""
    technique, ask = TECHNIQUES[trainer], asked_of(option, trainer)
    if option in SAME:
        assert_changes_nothing(made, folder, trainer, ask, trial=option)
        return
    over_graphs = technique.approximate and option in OVER_GRAPHS
    keys = keys_of(trainer) | ({"dtype": "float64"} if technique.whole_graph or over_graphs else {})
    ask |= EVERY if over_graphs else Ask()
    pipeline = made.parse(pipeline_text(trainer, ask | EXACT.get(trainer, Ask()), **keys, trial=option))
    model = made.resumed(pipeline, after=1 if technique.whole_graph else 5)
    if option in UNREPEATABLE:
        assert model.summary["numbers"]["repeatable"] is False
    elif technique.whole_graph and option in DRAWN:
        model_keys = {name: value for name, value in ask.keys.items() if name == "model"}
        assert losses(model) == losses(made.straight(trainer, Ask(keys=model_keys, graph=ask.graph), **keys))
    elif technique.whole_graph:
        batch = made.straight("minibatch", ASKED[option] | WHOLE, dtype="float64", epochs=3)
        np.testing.assert_allclose(losses(model), losses(batch), rtol=1e-9)
    elif over_graphs:
        batches = made.straight("minibatch", ASKED[option] | EVERY, dtype="float64")
        for name, values in load(batches.file("weights.safetensors").read_bytes()).items():
            torch.testing.assert_close(
                load(model.file("weights.safetensors").read_bytes())[name], values, rtol=1e-9, atol=1e-9
            )
    else:
        fanouts = {name: value for name, value in ask.keys.items() if name == "fanouts"}
        assert weights(model) == weights(made.straight("minibatch", ASKED[option] | Ask(keys=fanouts)))
    assert_predicts(made, folder, pipeline, model)


def assert_predicts(made: Made, folder: Path, pipeline: Pipeline, model: Artifact) -> None:
    """A model predicts every node, and the checks of its training passed."""
    out = folder / "predicted.parquet"
    how: Any = {"columns": Columns(probabilities=True), "types": ["all"]}
    if pipeline.sampling is not None and pipeline.sampling.before:
        how["evaluation"] = "sampled"
    num_rows = predict_table(made.store, pipeline, "x", out, **how)[1]
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


def plain_ask(ask: Ask) -> Ask:
    """What the plain training asks for that a file is compared with: the keys that change weights, and none of its own."""
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
