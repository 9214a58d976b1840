"""One file with several sample sets: models of two depths, sampled, from disk and on ranks with packed rows, on one leaderboard."""

from pathlib import Path

import pytest

from graphmill.assets.definitions import Surroundings
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.pipelines.checked import report_pipeline
from graphmill.jobs.commands.results.leaderboard import leaderboard_rows, stored_entries
from graphmill.jobs.commands.results.status import pipeline_states
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.launch import Launch, launch
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe, sbm

pytestmark = pytest.mark.usefixtures("quick_launches")


def trains(samples: str, layers: int) -> list[dict]:
    """The three ways to train a model of one depth."""
    common = {"layers": layers, "model": "sage", "hidden": 8, "epochs": 2}
    packed = {"rows": "packed", "ranks": 2}
    return [
        {"name": f"{samples}-batches", "samples": samples, **common},
        {"name": f"{samples}-disk", "trainer": "disk", "trial": "disk", "samples": samples, **common},
        {
            "name": f"{samples}-ranks",
            "trainer": "distributed",
            "samples": f"{samples}-parts",
            "distributed": packed,
            **common,
        },
    ]


TEXT = recipe(
    *trains("flat", 2),
    *trains("deep", 3),
    name="depths",
    graph=sbm(),
    partitions={"parts": 2},
    sampling={"fanouts": 4, "batch_size": 64, "reuse": 1},
    hotness={"policy": "degree"},
    memory={"device": "10%", "host": "20%", "disk": "9x"},
    cache_plan={},
    samples=[
        {"name": "flat"},
        {"name": "deep", "fanouts": 3},
        {"name": "flat-parts", "plan": "parts"},
        {"name": "deep-parts", "plan": "parts", "fanouts": 3},
    ],
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    (folder / "depths.toml").write_text(TEXT)
    return folder / "home"


def test_two_depths_from_memory_disk_and_packed_ranks_stand_on_one_leaderboard(home: Path) -> None:
    pipeline = load_pipeline(home.parent / "depths.toml", TrainTable)
    report, errors = report_pipeline(pipeline, home)  # of a home without anything: what `validate` and `inspect` say
    assert report is not None and not errors
    needs = {each.name for each in report.needs.steps}
    of_deep = {"hotness.deep", "samples.deep", "cache_plan.deep", "packed_chunks.deep", "packed_chunks.deep-parts"}
    assert of_deep <= needs and "samples" not in needs
    made = launch(Launch(pipeline=pipeline, home=home, report=lambda line: None, in_process=True)).artifacts
    rows = leaderboard_rows(stored_entries(pipeline, home))
    assert {row["name"] for row in rows} == {table.name for table in pipeline.train} and len(rows) == 6
    results = {each.table.name: each.results() for each in stored_entries(pipeline, home)}
    for depth in ("flat", "deep"):
        assert results[f"{depth}-batches"] == results[f"{depth}-disk"] != results[f"{depth}-ranks"]
        assert made[f"samples.{depth}"][0].config["fanouts"] == ([4, 4] if depth == "flat" else [3, 3, 3])
    (ranks,) = [row for row in rows if row["name"] == "deep-ranks"]
    assert ranks["bytes_per_epoch"]["disk"] > 0
    assert all(each.artifact for each in pipeline_states(pipeline, home))


def test_a_set_is_in_the_keys_of_its_assets(home: Path) -> None:
    pipeline = load_pipeline(home.parent / "depths.toml", TrainTable)
    definitions = build_defs([pipeline], Surroundings(store=Store(home)))
    keys = {key.path[-1] for key in definitions.get_repository_def().asset_graph.get_all_asset_keys()}
    assert {f"samples.{name}" for name in ("flat", "deep", "flat-parts", "deep-parts")} <= keys
    assert {"cache_plan.deep", "packed_chunks.flat-parts", "hotness.flat"} <= keys and "samples" not in keys
