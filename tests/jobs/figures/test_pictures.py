"""The pictures of a training are drawn once, and again where what they show has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from graphmill.assets.definitions import Surroundings
from graphmill.assets.storage.files.documents import seal
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.figures import curves as pictures
from tests.jobs.trained import trained_home
from tests.recipes import load_tiny


def refuse(*_: Any) -> bytes:
    raise AssertionError("drawn again")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return trained_home(tmp_path_factory.mktemp("home"))


def test_a_reused_model_shows_the_pictures_of_its_last_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = build_defs([load_tiny(tmp_path)], Surroundings(store=store)).resolve_job_def("tiny__train")

    def shown(instance: dg.DagsterInstance) -> dict[str, dict[str, Any]]:
        result = job.execute_in_process(instance=instance)
        found = {event.asset_key.path[-1]: event for event in result.get_asset_materialization_events()}
        return {
            name: {key: value.value for key, value in event.step_materialization_data.materialization.metadata.items()}
            for name, event in found.items()
        }

    drawing = (
        "graphmill.jobs.figures.curves.draw_curves",
        "graphmill.jobs.figures.cost.draw_cost",
        "graphmill.jobs.figures.timeline.draw_timeline",
    )
    with dg.instance_for_test() as instance:
        first = shown(instance)
        with monkeypatch.context() as patched:
            for name in drawing:
                patched.setattr(name, refuse)
            second = shown(instance)
        assert first == second
        for name in ("sage", "gcn"):
            titles = [picture[1] for picture in pictures.PICTURE.finditer(first[name]["summary"])]
            assert titles == ["learning curve", "cost of an epoch", "time-line"], name
            assert "**scores by class, test**" in first[name]["summary"] and "| macro mean |" in first[name]["summary"]
        model = next(each for each in store.artifacts() if each.label == first["sage"]["artifacts"])
        record = model.run_record()
        record["epoch_seconds"]["train"] = [2 * seconds for seconds in record["epoch_seconds"]["train"]]
        (model.path / "run.json").write_bytes(seal(record))
        third = shown(instance)
    assert third["sage"]["summary"] != first["sage"]["summary"], "trained again, with other times"
    titles = [picture[1] for picture in pictures.PICTURE.finditer(third["sage"]["summary"])]
    assert titles == ["learning curve", "cost of an epoch", "time-line"] and third["gcn"] == first["gcn"]
