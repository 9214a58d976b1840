"""A list of splits: each is trained once, with the versions of the single split, and the scores are averaged as those of seeds are."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from click.testing import CliRunner

from graphmill import calls
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.pipeline.steps import Versions, preprocessing_steps
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.collect import find_garbage
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.names import find_artifact
from graphmill.jobs.commands.pipelines.inspect_source import survey_of
from graphmill.jobs.commands.results.leaderboard import leaderboard_rows, print_leaderboard, stored_entries
from graphmill.jobs.commands.results.sql import query
from graphmill.jobs.commands.results.status import pipeline_states, status_json
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.operations.difference import find_difference
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe

SPLITS = 3


def write(folder: Path, split: str) -> Path:
    """Writes an archive with three splits, and a recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    parts = np.stack([rng.permutation(90) for _ in range(SPLITS)])
    masks: dict[str, Any] = {
        "train_masks": parts < 50,
        "val_masks": (parts >= 50) & (parts < 70),
        "test_masks": parts >= 70,
    }
    labels = np.arange(90) % 3
    x = rng.normal(size=(90, 6)).astype(np.float32) + labels[:, None]
    np.savez(folder / "graph.npz", edge_index=rng.integers(0, 90, (2, 400)), x=x, y=labels, **masks)
    text = recipe(
        {"name": "sage", "layers": 1, "epochs": 2, "seeds": [3, 4]},
        graph={"source": "npz", "path": "graph.npz", "split": json.loads(split)},
        sampling={"fanouts": [4], "batch_size": 32},
        hotness={},
    )
    (folder / "mine.toml").write_text(text)
    return folder / "mine.toml"


def load(folder: Path, split: str) -> Pipeline:
    return load_pipeline(write(folder, split), TrainTable)


def versions(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    known, data = Versions(), preprocessing_steps(pipeline)
    return {step.name: known.of(step) for step in [*data, *training_steps(pipeline, data)]}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, quick_launches: None) -> tuple[Path, Path]:
    """(recipe, home): split 1 was trained alone, then all three."""
    folder = tmp_path_factory.mktemp("swept")
    quiet = {"home": folder / "home", "report": lambda line: None}
    launch(Launch(pipeline=load(folder, "1"), **quiet))
    outcome = launch(Launch(pipeline=load(folder, "[0, 1, 2]"), **quiet))
    assert [len(outcome.artifacts[name]) for name in ("graph", "features", "hotness", "sage")] == [3, 1, 3, 6]
    return folder / "mine.toml", folder / "home"


def test_a_split_of_a_list_has_the_versions_of_the_split_alone(tmp_path: Path) -> None:
    listed = versions(load(tmp_path / "all", "[0, 1, 2]"))
    for place in range(SPLITS):
        alone = versions(load(tmp_path / "one", str(place)))
        for name, found in alone.items():
            whole = listed[name] * SPLITS if name in ("features", "budgets") else listed[name]
            assert whole[place * len(found) : (place + 1) * len(found)] == found, name
    assert len({*listed["graph"]}) == SPLITS and len({*listed["sage"]}) == 2 * SPLITS
    assert versions(load(tmp_path / "one", "[1]")) == versions(load(tmp_path / "two", "1")), "a list of one is no list"


def test_a_split_that_was_trained_alone_is_not_trained_again(swept: tuple[Path, Path]) -> None:
    store = Store(swept[1])
    trained = [each for each in store.artifacts() if each.stage == "model"]
    assert len(trained) == 2 * SPLITS
    assert {each.run_record()["execution"]["asked_by"] for each in trained} == {"mine/sage"}
    lines: list[str] = []
    launch(Launch(pipeline=load_pipeline(swept[0], TrainTable), home=swept[1], report=lines.append))
    assert len(lines) == 3 + 1 + 3 + 1 + 6 and all("reused" in line for line in lines), lines


def test_the_leaderboard_averages_over_splits_and_seeds(swept: tuple[Path, Path], capsys) -> None:
    entries = stored_entries(load_pipeline(swept[0], TrainTable), swept[1])
    (row,) = leaderboard_rows(entries)
    assert row["splits"] == ["0", "0", "1", "1", "2", "2"] and row["seeds"] == [3, 4] * 3
    print_leaderboard("mine", entries)
    out = capsys.readouterr().out
    assert f"{100 * statistics.fmean(row['test']):.2f} ± {100 * statistics.stdev(row['test']):.2f}" in out
    assert "sage: mean ± deviation over 6 models, 2 per split; splits 0, 1, 2." in out


def test_a_sweep_that_was_stopped_shows_what_is_there_and_goes_on(
    swept: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], quick_launches: None
) -> None:
    """Of six models three are taken away; what is trained again has the same bits."""
    home = tmp_path / "home"
    shutil.copytree(swept[1], home)
    pipeline = load_pipeline(swept[0], TrainTable)
    (whole,) = stored_entries(pipeline, home)
    for model in whole.models[3:]:
        shutil.rmtree(model.path)
    entries = stored_entries(pipeline, home)
    (row,) = leaderboard_rows(entries)
    assert row["splits"] == ["0", "0", "1"] and len(row["test"]) == 3 and row["models_wanted"] == 6
    print_leaderboard("mine", entries)
    assert "sage: 3 of 6 models are trained, of the splits 0, 1;" in capfd.readouterr().out
    launch(Launch(pipeline=pipeline, home=home, report=lambda line: None))
    (again,) = stored_entries(pipeline, home)
    assert again.results() == whole.results()


def test_a_run_may_go_split_by_split(tmp_path: Path, quick_launches: None) -> None:
    """All models of a split come before the next split, and the lines say which split they are about."""
    path = write(tmp_path, "[0, 1]")
    path.write_text(
        path.read_text() + '\n[[train]]\nname = "second"\nlayers = 1\nepochs = 1\nfanouts = [2]\nhidden = 4\n'
    )
    words = ["--home", str(tmp_path / "home"), "run", str(path), "--order", "splits"]
    done = CliRunner().invoke(graphmill, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    trained = re.findall(r"(sage|second): trained .*\(split (\d), seed", done.output)
    assert [split for _, split in trained] == sorted(split for _, split in trained) and len(trained) == 6
    assert {name for name, split in trained if split == "0"} == {"sage", "second"}
    assert "mean ± deviation over 4 models, 2 per split; splits 0, 1." in done.output


def test_scores_are_of_the_nodes_of_their_own_split(swept: tuple[Path, Path]) -> None:
    """The test nodes of the graph that each model names are those of the split that the leaderboard puts beside it."""
    masks, store = np.load(swept[0].parent / "graph.npz")["test_masks"], Store(swept[1])
    (entry,) = stored_entries(load_pipeline(swept[0], TrainTable), swept[1])
    for model, split in zip(entry.models, entry.splits, strict=True):
        graph = store.open("graph", model.inputs["graph"]["version"])
        assert np.array_equal(graph.array("test_ids"), np.flatnonzero(masks[int(split)]))


def test_sql_says_the_split_of_each_model_and_epoch(swept: tuple[Path, Path]) -> None:
    found = query(Store(swept[1]), "SELECT train_table, split, count(*) FROM models GROUP BY ALL ORDER BY ALL").rows
    assert found == [("sage", str(split), 2) for split in range(SPLITS)]
    found = query(Store(swept[1]), "SELECT split, count(*) FROM metrics GROUP BY ALL ORDER BY ALL").rows
    assert found == [(str(split), 4) for split in range(SPLITS)]


def test_status_names_splits(swept: tuple[Path, Path]) -> None:
    pipeline = load_pipeline(swept[0], TrainTable)
    states = pipeline_states(pipeline, swept[1])
    assert all(state.artifact is not None for state in states)
    assert [state.name for state in states if state.step in ("graph", "features")] == [
        *[f"graph, split {split}" for split in range(SPLITS)],
        "features",
    ]
    assert {row["split"] for row in status_json(pipeline, swept[1]) if row["step"] == "sage"} == {"0", "1", "2"}


def test_a_collection_counts_by_split(swept: tuple[Path, Path]) -> None:
    garbage = find_garbage(Store(swept[1]), keep=1)
    assert not garbage.artifacts, [item.address for item in garbage.artifacts]
    assert any("mine/sage, seed 4, split 2" in item.why for item in garbage.kept)


def test_an_asset_has_one_materialisation_for_all_splits(swept: tuple[Path, Path]) -> None:
    pipeline, store, known = load_pipeline(swept[0], TrainTable), Store(swept[1]), Versions()
    data = preprocessing_steps(pipeline, store.home)
    steps = [*data, *training_steps(pipeline, data)]
    with open_instance(store.home) as instance:
        assert find_difference(instance, store, steps, known) == []
        record = instance.fetch_materializations(dg.AssetKey(["mine", "sage"]), limit=1).records[0]
        assert record.asset_materialization is not None and record.asset_materialization.tags is not None
        tags = record.asset_materialization.tags
        assert tags["dagster/input_data_version/mine/graph"] == known.joint(steps[0])
        text = json.dumps(record.asset_materialization.metadata["headline"].value)
        assert "3 splits of 2 seeds" in text, text
        # One more split is another difference, of what depends on it.
        fewer = load(swept[0].parent / "fewer", "[0, 2]")
        data = preprocessing_steps(fewer, store.home)
        wanted = find_difference(instance, store, [*data, *training_steps(fewer, data)], Versions())
        assert [each.step.name for each in wanted] == ["graph", "hotness", "sage"]


def test_python_opens_the_model_of_one_split(swept: tuple[Path, Path]) -> None:
    path, home = swept
    one, other = (calls.open(path, f"sage/{split}/4", home=home) for split in (0, 2))
    assert (one.graph.train_ids != other.graph.train_ids).any() and one.semantic.seed == 4
    assert one.artifact.version == calls.artifact(f"{path}/sage/0/4", home=home).version
    assert len(other.classes()) == 90
    with pytest.raises(InputError, match="is 6 artifacts, of the splits 0, 1, 2"):
        calls.open(path, "sage", home=home)


def test_what_is_about_one_graph_asks_for_a_split(swept: tuple[Path, Path]) -> None:
    runner, out = CliRunner(), swept[1].parent / "nodes.parquet"
    arguments = ["--home", str(swept[1]), "predict", str(swept[0]), "sage", "--out", str(out)]
    refused = str(runner.invoke(graphmill, arguments).exception)
    assert "lists the splits 0, 1, 2" in refused and "--set graph.split=0" in refused
    done = runner.invoke(graphmill, [*arguments, "--set", "graph.split=2"])
    assert done.exit_code == 0, done.output


def test_an_artifact_is_named_by_split_and_seed(swept: tuple[Path, Path]) -> None:
    store, (entry,) = Store(swept[1]), stored_entries(load_pipeline(swept[0], TrainTable), swept[1])
    assert find_artifact(store, f"{swept[0]}/sage/2/4").version == entry.models[5].version
    assert find_artifact(store, f"{swept[0]}/graph/2").version == entry.models[5].inputs["graph"]["version"]
    assert find_artifact(store, f"{swept[0]}/features").stage == "features"
    for name, said in (
        ("sage", "6 artifacts, of the splits 0, 1, 2"),
        ("sage/2", "2 models, with the seeds 3, 4"),
        ("sage/7/3", "has no split 7"),
        ("sage/2/5", "has no seed 5"),
    ):
        with pytest.raises(InputError, match=said):
            find_artifact(store, f"{swept[0]}/{name}")


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("[]", "split = [] names no split"),
        ("[0, 1, 0]", "split = [0, 1, 0] names a split twice"),
        ("[0, -1]", "split = -1 is negative"),
        ('["a"]', "split = "),
    ],
)
def test_lists_that_mean_nothing_are_mistakes(tmp_path: Path, split: str, said: str) -> None:
    with pytest.raises(InputError, match="mistake") as caught:
        load(tmp_path, split)
    assert said in str(caught.value)


def test_columns_and_folders_are_splits_too(tmp_path: Path) -> None:
    by_column = config_class("dgl")(path=tmp_path, split=(0, 2)).by_split()  # pyright: ignore[reportCallIssue]
    assert [each.split for each in by_column] == [0, 2]  # pyright: ignore[reportAttributeAccessIssue]
    by_folder = config_class("ogb")(path=tmp_path, split=("time", "degree")).by_split()  # pyright: ignore[reportCallIssue]
    assert [each.split for each in by_folder] == ["time", "degree"]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InputError, match="is drawn and not a folder"):
        config_class("ogb")(path=tmp_path, split=("time", "random"))  # pyright: ignore[reportCallIssue]


def test_inspect_names_the_splits(tmp_path: Path) -> None:
    assert "one graph for each of the splits 0, 1, 2" in "\n".join(survey_of(str(write(tmp_path, "[0, 1, 2]"))).lines())


def test_a_split_that_the_source_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train_masks: split = 7, but there are 3, counted from 0"):
        launch(Launch(pipeline=load(tmp_path, "[0, 7]"), home=tmp_path / "home", report=lambda line: None))


def test_a_bare_machine_trains_every_split(swept: tuple[Path, Path], tmp_path: Path) -> None:
    from graphmill.trainers.__main__ import main

    text = swept[0].read_text().replace("seeds = [3, 4]", "lr = 0.1")
    (swept[0].parent / "other.toml").write_text(text)
    assert main([str(swept[0].parent / "other.toml"), "sage", "--home", str(swept[1])]) == 0
    (entry,) = stored_entries(load_pipeline(swept[0].parent / "other.toml", TrainTable), swept[1])
    assert len(entry.models) == SPLITS
    version = entry.models[0].inputs["graph"]["version"]
    given = [str(swept[0].parent / "other.toml"), "sage", "--home", str(swept[1]), "--input", f"graph={version}"]
    assert main(given) == 1
