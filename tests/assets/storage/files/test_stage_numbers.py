"""Numbers of manifests: every number that a stage publishes is declared, and a manifest with another one is damaged, not believed."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest

from graphmill.assets.building.labels import built_in_words
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.storage.files.documents import DIGEST, manifest_schema, seal, unseal
from graphmill.assets.storage.files.stage_numbers import NUMBERS
from graphmill.assets.storage.local.repair import find_damage, remove_damage
from graphmill.assets.storage.names.manifest import MANIFEST
from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.training import all_steps
from graphmill.trainers.inference.scoring.page import SCORE_PAGE
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.page import MODEL_PAGE
from graphmill.trainers.recipe.techniques import DEFAULT
from tests.adversary import workshop
from tests.adversary.forged import MISSING

ALWAYS_WRONG = (math.nan, math.inf, 1 << 70, 1e301)
WRONG = {
    bool: (None, 7, "true", [True], {}),
    int: (None, "7", [7], {"a": 7}, True, -1),
    float: (None, "0.5", [0.5], {"a": 0.5}, True),
    str: (None, 7, ["a"], {"a": "b"}, True, "a\ud800"),
    list: (None, 7, "a", {"a": 1}, [[[]]], [{"a": math.nan}]),
    dict: (None, 7, "a", [1]),
}
"""Kind of a number -> values that no number of this kind may have."""
COUNTED_BEYOND = 10**14


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workshop") / "home"
    for step in workshop.steps(folder):
        workshop.carry_out(folder, step)
    table = {"score": 'model = "scored/minibatch"'}
    text = workshop.text("scored", {name: workshop.TABLES[name] for name in ("graph", "sampling")} | table, [DEFAULT])
    pipeline = parse_pipeline(Path("scored.toml"), text.encode(), TrainTable)
    for step in all_steps(pipeline, folder):
        workshop.carry_out(folder, step, pipeline=pipeline)
    return folder


@pytest.fixture(scope="module")
def one_of_each(home):
    """Stage -> one artifact of it."""
    return {artifact.stage: artifact for artifact in Store(home).artifacts()}


def forgeries(artifact):
    """Yields (name of a number, value, manifest with this value); a value `MISSING` is left out."""
    sound = {name: value for name, value in artifact.manifest.items() if name != DIGEST}
    for name, value in sound["summary"]["numbers"].items():
        beyond = () if name.endswith("bytes") or not isinstance(value, int) else (COUNTED_BEYOND,)
        for wrong in (MISSING, *ALWAYS_WRONG, *WRONG[type(value)], *beyond):
            forged = copy.deepcopy(sound)
            forged["summary"]["numbers"][name] = wrong
            if wrong is MISSING:
                del forged["summary"]["numbers"][name]
            yield name, wrong, forged


def test_every_number_that_a_stage_publishes_is_declared(one_of_each):
    assert {stage.name for stage in stages()} | {
        "model",
        "score",
    } <= NUMBERS.keys() and one_of_each.keys() == NUMBERS.keys()
    for stage, artifact in one_of_each.items():
        undeclared = [name for name in artifact.summary["numbers"] if NUMBERS[stage].check_of(name) is None]
        assert not undeclared, f"{stage}: declare {undeclared}"
        assert {*NUMBERS[stage].always.split()} <= artifact.summary["numbers"].keys()
        assert all(map(NUMBERS[stage].check_of, (*NUMBERS[stage].always.split(), *NUMBERS[stage].lengths)))
        published = {name: each for name, each in NUMBERS[stage].lengths.items() if name in artifact.summary["numbers"]}
        assert {each for each, _, _ in published.values()} <= {n.removesuffix(".npy") for n in artifact.files}


def test_another_number_is_damage_or_every_page_gets_along_without_it(one_of_each):
    """Each number of each stage, each kind of forgery; only a number that readers may miss can be left out."""
    pages = {stage.name: stage.page for stage in stages()} | {"model": MODEL_PAGE, "score": SCORE_PAGE}
    tried = 0
    for artifact in one_of_each.values():
        for name, wrong, forged in forgeries(artifact):
            tried += 1
            try:
                manifest_schema(forged, "")
            except ValueError as error:
                assert name in str(error) and len(str(error)) < 300 and str(error).isprintable()
                continue
            assert wrong is MISSING, f"{artifact.stage}: {name} = {wrong!r} is believed"
            without = replace(artifact, manifest=forged)
            built_in_words(without, reused=True)
            if page := pages.get(artifact.stage):
                page.headline([without])
    assert tried > 1000


def test_a_forged_number_is_named_and_mended(home, one_of_each):
    store = Store(home)
    for artifact in one_of_each.values():
        name, value = next((name, value) for name, value in artifact.summary["numbers"].items() if type(value) is int)
        path = artifact.path / MANIFEST
        kept, document = path.read_bytes(), unseal(path)
        document["summary"]["numbers"][name] = f"{value}"
        path.write_bytes(seal(document))
        assert store.find(*artifact.address) is None
        found = next(each for each in find_damage(store) if each.path == artifact.path)
        assert name in found.problems[0]
        path.write_bytes(kept)
    artifact = one_of_each["graph"]
    path = artifact.path / MANIFEST
    document = unseal(path)
    document["summary"]["numbers"]["num_edges"] = COUNTED_BEYOND
    path.write_bytes(seal(document))
    (damage,) = (each for each in find_damage(store) if each.path == artifact.path)
    assert remove_damage(store, damage) and not artifact.path.exists()
