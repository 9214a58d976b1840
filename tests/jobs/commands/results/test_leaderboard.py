"""The leaderboard: the order, what each model cost, and which models are equal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.labels import built_in_words
from graphmill.assets.building.materialize import materialize_together
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.sources.targets import CLASSIFIES
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.results.leaderboard import (
    _listed,
    equal_models,
    leaderboard_rows,
    print_leaderboard,
    remarks,
    shared_models,
    stored_entries,
)
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.jobs.trained import trained_home
from tests.recipes import write_tiny


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the models of `compared`."""
    folder = tmp_path_factory.mktemp("leaderboard")
    store, pipeline = trained_home(folder), compared(folder)
    graph, features = (
        next(each for each in store.artifacts() if each.stage == stage) for stage in ("graph", "features")
    )
    for table in pipeline.train:
        inputs = {"graph": graph, "features": features}
        train_table(store, inputs, table, pipeline.sampling, pipeline.seed, report=lambda line: None)
    return store.home


def compared(folder: Path) -> Pipeline:
    """The tiny pipeline with two tables more: one that means the model of `sage`, one with an equal model of its own."""
    path = write_tiny(folder / "compared")
    more = "".join(
        f'[[train]]\nname = "{name}"\nhidden = 8\nepochs = 2\nfeatures = "memory"\n{key}\n'
        for name, key in {"again": "", "apart": 'trial = "x"'}.items()
    )
    path.write_text(f"{path.read_text()}\n{more}")
    return load_pipeline(path, TrainTable)


def test_best_epochs_of_many_seeds_are_a_range() -> None:
    assert [_listed(epochs) for epochs in ([7], [7, 0, 9], [9, 3, 7, 12])] == ["7", "7, -, 9", "3 to 12"]
    assert [_listed(epochs) for epochs in ([2] * 4, [0] * 4, [0, 1, 1, 2])] == ["2", "-", "- to 2"]


def test_costs_are_those_of_an_epoch(home: Path, tmp_path: Path) -> None:
    entries = stored_entries(compared(tmp_path), home)
    rows = {row["name"]: row for row in leaderboard_rows(entries)}
    assert set(rows) == {"sage", "again", "apart", "gcn"}
    valid = [row["valid"][0] for row in leaderboard_rows(entries)]
    assert valid == sorted(valid, reverse=True)
    (model,) = next(entry.models for entry in entries if entry.table.name == "sage")
    ledger = json.loads(model.file("ledger.json").read_text())
    inputs = next(row["n"] for row in ledger["counts"] if row["name"] == "inputs" and row["layer"] == 0)
    row_bytes, epochs = 4 * 8, 2
    assert rows["sage"]["bytes_per_epoch"]["h2d"] == inputs * row_bytes // epochs
    assert rows["sage"]["bytes_per_epoch"]["mapped"] == inputs * row_bytes // epochs
    assert "mapped" not in rows["apart"]["bytes_per_epoch"]
    assert rows["sage"]["peak_memory_bytes"] > 10 << 20 and rows["sage"]["epoch_seconds"] > 0
    assert rows["sage"]["best_epochs"] == [model.summary["numbers"]["best_epoch"]]


def test_equal_models_are_told_from_one_model_with_two_names(home: Path, tmp_path: Path) -> None:
    entries = stored_entries(compared(tmp_path), home)
    assert shared_models(entries) == [["sage", "again"]]
    assert equal_models(entries) == [["sage", "apart"]]


def test_it_is_printed_with_what_is_equal(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_leaderboard("tiny", stored_entries(compared(tmp_path), home))
    said = capsys.readouterr().out
    assert "Equal to the bit, weights and every epoch's loss: sage = apart." in said
    assert "One model, trained once: sage = again." in said and "mapped = asked of a mapped file" in said


def test_the_command_prints_what_there_is(home: Path, tmp_path: Path) -> None:
    compared(tmp_path)
    path = str(tmp_path / "compared" / "tiny.toml")
    shown = CliRunner().invoke(graphmill, ["--home", str(home), "leaderboard", path, "--json"])
    found = json.loads(shown.output)
    assert found["equal_to_the_bit"] == [["sage", "apart"]] and len(found["rows"]) == 4
    empty = CliRunner().invoke(graphmill, ["--home", str(tmp_path / "none"), "leaderboard", path])
    assert isinstance(empty.exception, InputError) and f"graphmill run {path} trains them" in str(empty.exception)


def test_another_metric_than_accuracy_is_named(home: Path, tmp_path: Path) -> None:
    entries = stored_entries(compared(tmp_path), home)
    asked = [replace(entry, table=replace(entry.table, metric="f1_macro")) for entry in entries]
    assert next(remarks(asked)) == "valid and test are macro F1 in percent."
    assert (
        next(remarks([*entries[:1], *asked[1:2]]))
        == "valid and test: accuracy in percent of sage, macro F1 in percent of gcn."
    )
    assert "valid and test" not in " ".join(remarks(entries))


def test_a_cache_can_be_left_out_where_there_is_one() -> None:
    assert TrainTable(name="x", cache="none").reads == ()
    assert TrainTable(name="x", cache="none", samples="stored").reads == ("samples",)
    with pytest.raises(InputError, match=r'trainer = "disk" has no cache that could be left out'):
        TrainTable(name="x", trainer="disk", cache="none")


def test_a_warning_about_the_labels_stays_on_the_leaderboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    numbers = {"y": rng.integers(0, 90, 200), "x": rng.standard_normal((200, 4)).astype(np.float32)}
    np.savez(tmp_path / "prices.npz", edge_index=rng.integers(0, 200, (2, 900)), **numbers)
    table = '[sampling]\nfanouts = [3, 3]\nbatch_size = 64\n[[train]]\nname = "m"\nhidden = 4\nepochs = 1\n'
    path = tmp_path / "prices.toml"
    path.write_text(f'[graph]\nsource = "npz"\npath = "prices.npz"\n{table}')
    pipeline = load_pipeline(path, TrainTable)
    store = Store(tmp_path / "home")
    asked = [(FEATURES, features_config(pipeline.graph)), (GRAPH, pipeline.graph)]
    features, graph = materialize_together(store, asked, Threads(threads=1))
    assert "classes; " in built_in_words(graph, reused=False) and " train, " in built_in_words(graph, reused=False)
    inputs = {"graph": graph, "features": features}
    train_table(store, inputs, pipeline.train[0], pipeline.sampling, pipeline.seed, report=lambda line: None)
    entries = stored_entries(pipeline, store.home)
    print_leaderboard("prices", entries)
    assert 'Warning (m): failed check of the graph "nodes share classes": ' in capsys.readouterr().out
    assert any(CLASSIFIES in sentence for sentence in leaderboard_rows(entries)[0]["warnings"])
