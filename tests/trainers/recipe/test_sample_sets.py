"""Several sample sets in one file: its artifacts and models are those of one file for each set, and mistakes are said at their lines."""

import random
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.settings import with_settings
from graphmill.assets.pipeline.steps import Step, Versions, preprocessing_steps
from graphmill.jobs.operations.sound import unread_lines
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.recipes import recipe, sbm

OF_SAMPLING = ("fanouts", "batch_size", "reuse", "sampling_seed")
TABLES: dict[str, Any] = {
    "graph": sbm(),
    "partitions": {"parts": 2},
    "hotness": {"policy": "presample"},
    "memory": {"device": "10%", "host": "20%", "disk": "9x"},
    "cache_plan": {},
}
ONLINE = {"name": "of-none", "model": "sage", "epochs": 1, "fanouts": [2, 2]}
"""A training that reads every table which some trainings do not."""
BY_PARTS = ("distributed", "fresh-distributed")


def pipeline_of(text: str) -> Pipeline:
    return parse_pipeline(Path("sets.toml"), text.encode(), TrainTable)


def trainings(pipeline: Pipeline) -> list[Step]:
    return training_steps(pipeline, preprocessing_steps(pipeline))


def drawn_train(draw: random.Random, name: str, depth: int, **keys: Any) -> dict[str, Any]:
    """A train table of a technique that takes batches of the plan; `keys` has the plan."""
    by_parts = keys.pop("plan") == "parts"
    fit = [each for each in TECHNIQUES if (each in BY_PARTS) == by_parts and each != "fullgraph"]
    trainer = draw.choice(fit)
    packed = {"rows": "packed"} if trainer in ("factored", "fresh", "distributed") and draw.random() < 0.5 else {}
    table = {"name": name, "trainer": trainer, "layers": depth, "model": "sage", "epochs": 1, "seeds": [0], **keys}
    return table | ({trainer: packed} if packed else {})


def drawn_sets(draw: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """A `[sampling]` table, sets of it, and trainings of those and of none."""
    sampling = {"fanouts": draw.choice([4, [5, 3]]), "batch_size": 64, "reuse": 1}
    sets, trains = [], []
    for number in range(draw.choice((1, 2, 3))):
        depth, name = draw.choice((1, 2, 3)), f"set-{number}"
        own: dict[str, Any] = {"name": name, "fanouts": draw.choice([3, [3] * depth])}
        own |= {key: value for key, value in {"reuse": 2, "batch_size": 32, "epochs": 3}.items() if draw.random() < 0.5}
        own["sampling_seed"] = draw.choice((0, 7))
        own["plan"] = draw.choice(("shuffled", "parts"))
        sets.append(own)
        for each in range(draw.choice((0, 1, 2))):
            trains.append(drawn_train(draw, f"of-{number}-{each}", depth, samples=name, plan=own["plan"]))
    return sampling, sets, draw.sample(trains, len(trains))


@pytest.mark.parametrize("number", range(20))
def test_a_file_with_sets_asks_for_what_one_file_for_each_set_does(number: int) -> None:
    sampling, sets, trains = drawn_sets(random.Random(number))
    whole = pipeline_of(recipe(ONLINE, *trains, **TABLES, sampling=sampling, samples=sets))
    found, versions = {step.name: step for step in trainings(whole)}, Versions()
    for own in sets:
        chosen = [each | {"samples": "stored"} for each in trains if each["samples"] == own["name"]]
        samples = {key: value for key, value in own.items() if key not in ("name", *OF_SAMPLING)}
        drawn = sampling | {key: own[key] for key in OF_SAMPLING if key in own}
        if chosen and not isinstance(
            drawn["fanouts"], list
        ):  # one number is a list as long as the set's trainings are deep
            drawn["fanouts"] = [drawn["fanouts"]] * chosen[0]["layers"]
        alone = pipeline_of(recipe(ONLINE, *chosen, **TABLES, sampling=drawn, samples=samples))
        for step in trainings(alone)[1:]:
            same = found[step.name]
            assert versions.of(same) == versions.of(step)
            assert {role: versions.of(each) for role, each in same.sources.items()} == {
                role: versions.of(each) for role, each in step.sources.items()
            }


FILE = recipe(
    {"name": "shallow", "samples": "flat", "epochs": 1},
    {"name": "below", "trainer": "disk", "samples": "deep", "layers": 3, "epochs": 1},
    **TABLES,
    sampling={"fanouts": 4, "batch_size": 64, "reuse": 1},
    samples=[{"name": "flat"}, {"name": "deep", "fanouts": [3, 3, 3]}, {"name": "unread", "plan": "parts"}],
)


def test_each_set_has_the_steps_that_its_trainings_read() -> None:
    pipeline = pipeline_of(FILE)
    steps = {step.name: step for step in preprocessing_steps(pipeline)}
    sampled = {
        name for name in steps if name.partition(".")[0] in ("hotness", "samples", "cache_plan", "packed_chunks")
    }
    assert sampled == {
        *("hotness.flat", "samples.flat", "samples.deep", "samples.unread", "cache_plan.deep", "packed_chunks.deep")
    }
    assert steps["packed_chunks.deep"].inputs["samples"] is steps["samples.deep"]
    lines = FILE.splitlines()
    assert [lines[steps[f"samples.{name}"].origin.line] for name in ("flat", "deep")] == [
        'name = "flat"',
        'name = "deep"',
    ]
    assert "note: [samples]: samples.unread is built, and no training of this file reads it" in [
        *unread_lines(pipeline)
    ]


def test_a_key_of_a_set_is_set_from_the_command_line() -> None:
    pipeline = pipeline_of(with_settings(FILE, ["samples.deep.reuse=5", "samples.sampling_seed=3"]))
    tables = {table.name: pipeline.sampling_of(table) for table in pipeline.train}
    assert [(each.reuse, each.sampling_seed) for each in tables.values() if each] == [(1, 3), (5, 3)]
    with pytest.raises(InputError, match=r"no \[\[samples\]\] table is named dep"):
        with_settings(FILE, ["samples.dep.reuse=5"])


ONE_OF = "needs the name of one of [[samples]]: give samples = one of flat, deep, unread"
FLAT, DEEP = 'samples = "flat"', 'name = "deep"\nfanouts = [3, 3, 3]'
STEPPED = "batch_size = 64\nschedule = [{epoch = 2, fanouts = [2, 2, 2]}]"
MISTAKES = {
    "a misspelt set": (FLAT, 'samples = "flatt"', 'samples = "flatt" is not one of online, stored, flat, deep, unread'),
    "no set": (FLAT, 'samples = "stored"', f'samples = "stored" {ONE_OF}'),
    "no set of disk": ('trainer = "disk"\nsamples = "deep"', 'trainer = "disk"', f'trainer = "disk" {ONE_OF}'),
    "a taken name": ('name = "unread"', 'name = "flat"', 'name = "flat" is taken by the [[samples]]'),
    "a name of a step": ('name = "shallow"', 'name = "hotness_deep"', '"hotness_deep" is taken by the [[samples]]'),
    "a word": ('name = "unread"', 'name = "online"', '"online" is what `samples` of a training says without a set'),
    "no name": ('name = "unread"\n', "", "[[samples]] lacks the key name"),
    "an unknown key": (DEEP, f"{DEEP}\nfoo = 1", "[[samples]] has no key foo"),
    "another depth": ("layers = 3", "layers = 2", 'layers = 2, but samples = "deep" has 3 fanouts'),
    "nothing stored": (DEEP, f"{DEEP}\nreuse = 0", "[[samples]] would store no epoch"),
    "few epochs": (DEEP, f"{DEEP}\nreuse = 3\nepochs = 2", "epochs = 2, but reuse = 3"),
    "a schedule": ("batch_size = 64\nreuse = 1", STEPPED, "schedule has fanouts of other lengths"),
    "other fan-outs": (FLAT, f"{FLAT}\nfanouts = [2, 2]", "give `samples` the name of a [[samples]] table that has"),
    "another plan": ('samples = "deep"', 'samples = "unread"', '[[samples]] unread: plan = "parts"'),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_said(what: str) -> None:
    old, new, said = MISTAKES[what]
    assert old in FILE
    with pytest.raises(InputError) as caught:
        pipeline_of(FILE.replace(old, new))
    assert said in str(caught.value)
