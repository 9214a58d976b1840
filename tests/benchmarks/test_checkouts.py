"""The comparison of two checkouts says what differs between their homes, and its recipes are sound."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.checkouts.homes import Home, compare_homes
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.trainers.runs import train_small

RECIPES = Path(sys.modules["benchmarks.checkouts.homes"].__file__ or "").parent / "recipes"


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same graph and model, built twice."""
    made = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for home in made:
        train_small(home, epochs=1)
    return made[0], made[1]


def differences(one: Path, other: Path) -> list[str]:
    found = compare_homes(Home(one, {}), Home(other, {}))
    return [text for _, outcome in found for text in outcome.differences]


def test_what_was_built_twice_is_equal(homes: tuple[Path, Path]) -> None:
    stages = dict(compare_homes(Home(homes[0], {}), Home(homes[1], {})))
    assert {stage: outcome.counts["artifacts"] for stage, outcome in stages.items()} == dict.fromkeys(
        ("features", "graph", "model"), 1
    )
    assert differences(*homes) == []


def test_a_changed_number_a_changed_element_and_a_missing_artifact_are_named(
    homes: tuple[Path, Path], tmp_path: Path
) -> None:
    changed = shutil.copytree(homes[1], tmp_path / "changed")
    _, graph, model = sorted(Store(changed).artifacts(), key=lambda artifact: artifact.stage)
    for path in (graph.file("labels.npy"), model.file("ledger.json")):
        path.chmod(0o644)
    labels = np.load(graph.file("labels.npy"), mmap_mode="r+")
    labels[7] += 1
    ledger = json.loads(model.file("ledger.json").read_text())
    ledger["counts"][0]["n"] += 1
    model.file("ledger.json").write_text(json.dumps(ledger))
    element, number = differences(homes[0], changed)
    assert "labels.npy: 1 of 400 elements differ, first at [7]" in element
    assert "ledger.json: 1 values differ: counts.0.n is" in number
    shutil.rmtree(model.path)
    assert any(text.startswith("model/") and text.endswith(str(homes[0])) for text in differences(homes[0], changed))


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_is_sound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPARE_DATA", "/nowhere")
    monkeypatch.setenv("GRAPHMILL_TEST_DATA", "/nowhere")
    try:
        assert load_pipeline(path, TrainTable).name == path.stem
    except InputError as error:  # pragma: no cover
        pytest.fail(str(error))
