"""The table of techniques: a technique is one file and one row, and no other file of the project names one."""

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.building.stage import Silent
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.names.version import canonical
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import TECHNIQUES, Technique
from graphmill.trainers.run import train_table
from tests.recipes import recipe, sbm
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.runs import SAMPLING, TABLE, content
from tests.trainers.techniques import replicas

TOYS = {
    "whole-graph": Technique(name="whole-graph", module="tests.trainers.techniques.whole_graph", predicts=False),
    "replicas": Technique(
        name="replicas",
        module="tests.trainers.techniques.replicas",
        needs=("sampling",),
        settings="tests.trainers.techniques.replicas:ReplicaSettings",
        predicts=False,
    ),
    "pruning": Technique(
        name="pruning",
        module="tests.trainers.techniques.pruning",
        needs=("sampling",),
        reads=("hotness", "budgets"),
        asks={"hotness": {"layers": "inputs"}},
        predicts=False,
    ),
}


@pytest.fixture(autouse=True)
def with_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, row in TOYS.items():
        monkeypatch.setitem(TECHNIQUES, name, row)


class Stop(Exception):
    pass


class Stopping(Silent):
    """Ends the training after so many batches."""

    def __init__(self, after: int):
        self.left = after

    def advance(self, n: int) -> None:
        self.left -= n
        if self.left <= 0:
            raise Stop


@pytest.mark.parametrize(
    ("trainer", "scheme", "why"),
    [
        ("fullgraph", "", "has no mini-batches"),
        ("distributed", "vanilla", "draws batches with the other ranks"),
        ("fresh-distributed", "unfused", "draws batches by a sampler of its own"),
    ],
)
def test_stored_batches_are_refused_where_nobody_would_read_them(trainer: str, scheme: str, why: str) -> None:
    settings = TECHNIQUES[trainer].settings_type()
    assert settings is not None
    own = {"settings": settings(scheme=scheme)} if scheme else {}
    with pytest.raises(InputError, match=f'samples = "stored", but trainer = "{trainer}".* {why}'):
        TrainTable(name="x", trainer=trainer, samples="stored", **own)
    assert TrainTable(name="x", trainer=trainer).stored is False


def train(home: Path, trainer: str, **options: Any) -> Artifact:
    store = Store(home)
    run = {name: options.pop(name) for name in ("resume", "progress") if name in options}
    table = TrainTable(**(TABLE | {"trainer": trainer, "checkpoint_steps": 1} | options))
    graph = random_graph_artifacts(home)
    (model,) = train_table(store, graph.inputs, table, SAMPLING, 5, report=lambda line: None, **run)
    return model


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("stop_after", [1, 4, 5])
def test_a_technique_from_outside_trains_and_resumes_to_the_same_bits(
    tmp_path: Path, name: str, stop_after: int
) -> None:
    straight = train(tmp_path / "straight", name, epochs=6)
    losses = [json.loads(line)["loss"] for line in straight.file("metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    with pytest.raises(Stop):
        train(tmp_path / "stopped", name, epochs=6, progress=Stopping(stop_after))
    resumed = train(tmp_path / "stopped", name, epochs=6, resume=True)
    assert content(resumed) == content(straight) and resumed.version == straight.version


def test_replicas_whose_gradients_are_added_in_batch_order_have_the_bits_of_one_model(tmp_path: Path) -> None:
    one, two = (train(tmp_path / name, name, accumulate=3) for name in ("minibatch", "replicas"))
    for name in ("weights.safetensors", "metrics.jsonl", "ledger.json"):
        assert one.files[name]["digest"] == two.files[name]["digest"]


def test_a_source_that_prunes_gathers_fewer_rows(tmp_path: Path) -> None:
    rows = {}
    for name in ("minibatch", "pruning"):
        counts = json.loads(train(tmp_path / name, name).file("ledger.json").read_text())["counts"]
        rows[name] = next(row["n"] for row in counts if (row["name"], row["layer"]) == ("inputs", 0))
    assert 0 < rows["pruning"] < rows["minibatch"]


def test_a_technique_without_sampling_needs_no_such_table(tmp_path: Path) -> None:
    graph = random_graph_artifacts(tmp_path)

    def run(**options: Any) -> Artifact:
        table = TrainTable(**(TABLE | options))
        return train_table(Store(tmp_path), graph.inputs, table, None, 5, report=lambda line: None)[0]

    model = run(trainer="whole-graph")
    assert model.config["sampling"] is None
    with pytest.raises(InputError, match=r'trainer = "minibatch" samples neighbours\n.*add a table'):
        run(trainer="minibatch")
    with pytest.raises(InputError, match='eval = "sampled" samples neighbours'):
        run(trainer="whole-graph", eval="sampled")


RECIPE = recipe(
    {"name": "two", "trainer": "replicas"},
    seed=5,
    graph=sbm(nodes=100, edges=400),
    sampling={"fanouts": [4, 3], "batch_size": 32},
)


def recipe(tmp_path: Path, tail: str, trainer: str = "replicas") -> TrainTable:
    text = RECIPE.replace('"replicas"', f'"{trainer}"') + tail
    return parse_pipeline(tmp_path / "toy.toml", text.encode(), TrainTable).train[0]


def test_the_settings_of_a_technique_stand_in_a_sub_table_and_are_hashed(tmp_path: Path) -> None:
    plain, three = recipe(tmp_path, ""), recipe(tmp_path, "[train.replicas]\ncount = 3\n")
    assert plain.config.settings == replicas.ReplicaSettings() and three.config.settings == replicas.ReplicaSettings(
        count=3
    )
    assert canonical(three.config)["settings"] == {"count": 3}
    assert plain.config == recipe(tmp_path, f"[train.replicas]\ncount = {replicas.ReplicaSettings().count}\n").config
    assert "settings" not in canonical(recipe(tmp_path, "", "minibatch").config)
    for tail, problem in (
        ("[train.replicas]\ncount = 0\n", "18: count = 0 is below 1"),
        ("[train.replicas]\ncont = 3\n", "18: .* has no key cont .did you mean count"),
        ("[train.minibatch]\n", "has no key minibatch"),
    ):
        with pytest.raises(InputError, match=problem):
            recipe(tmp_path, tail)


@pytest.mark.parametrize("tables", ["[memory]\n", '[hotness]\npolicy = "degree"\n', '[hotness]\nlayers = "visits"\n'])
def test_a_technique_asks_for_what_it_needs_of_a_stage(tmp_path: Path, tables: str) -> None:
    def hotness(trainer: str) -> Any:
        text = RECIPE.replace("replicas", trainer) + tables
        pipeline = parse_pipeline(tmp_path / "toy.toml", text.encode(), TrainTable)
        return next(step for step in preprocessing_steps(pipeline) if step.name == "hotness").configs[0].hotness

    asked, plain = hotness("pruning"), hotness("minibatch")
    assert asked == replace(plain, layers="inputs") != plain


@pytest.mark.parametrize("trainer", ["disk", "fullgraph"])
def test_a_topology_that_a_trainer_would_not_use_is_refused(trainer: str) -> None:
    with pytest.raises(InputError, match=f'topology = "uva", but trainer = "{trainer}"'):
        TrainTable(name="x", trainer=trainer, topology="uva", device="cuda")


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        ("schedule = [{ epoch = 2, fanouts = [2, 2] }]", "schedule"),
        ('method = "pipeline:mine"', 'method = "pipeline:mine"'),
    ],
)
def test_batches_that_no_device_samples_are_a_mistake_of_the_file(tmp_path: Path, sampling: str, problem: str) -> None:
    (tmp_path / "pipeline.py").write_text("def mine(graph, seeds, fanouts, seed):\n    return []\n")
    text = RECIPE.replace("batch_size = 32", f"batch_size = 32\n{sampling}").replace('"replicas"', '"minibatch"')

    def parse(more: str) -> Any:
        return parse_pipeline(tmp_path / "toy.toml", (text + more).encode(), TrainTable)

    assert parse('device = "cuda"\n').train
    with pytest.raises(InputError, match=rf"18: \[sampling\] {problem}, but .* with its topology on the device"):
        parse('topology = "device"\ndevice = "cuda"\n')


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        ('method = "weighted"', "would count twice"),
        ('method = "random_walk"', "draws nodes that walks visit"),
        ('method = "pipeline:mine"', "says itself what the weights of its edges are"),
    ],
)
def test_batches_without_weights_of_the_data_are_a_mistake_of_a_file_whose_model_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: str, problem: str
) -> None:
    (tmp_path / "pipeline.py").write_text("def mine(graph, seeds, fanouts, seed):\n    return []\n")
    # As of a source that may have weights.
    monkeypatch.setattr("graphmill.assets.sources.interface.GraphConfig.never", frozenset())

    def parse(drawn: str, more: str, trainer: str = "minibatch") -> Any:
        text = RECIPE.replace("batch_size = 32", f"batch_size = 32\n{drawn}").replace('"replicas"', f'"{trainer}"')
        return parse_pipeline(tmp_path / "toy.toml", (text + more).encode(), TrainTable)

    with pytest.raises(InputError, match=f"18: edge_weight = true multiplies .*{problem}"):
        parse(sampling, "edge_weight = true\n")
    assert parse("", "edge_weight = true\n").train and parse(sampling, "").train
    other = '[[train]]\nname = "other"\nlayers = 2\n'
    assert parse(sampling, f'edge_weight = true\neval = "exact"\n{other}', "fullgraph").train
    with pytest.raises(InputError, match=problem):
        parse(sampling, 'edge_weight = true\neval = "sampled"\n', "fullgraph")
    assert "edge_weight" not in canonical(recipe(tmp_path, "", "minibatch").config)


def test_an_unknown_technique_is_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match="trainer = 'minibach' is not one of minibatch, disk"):
        TrainTable(name="x", trainer="minibach")


def test_no_file_outside_the_techniques_names_one() -> None:
    """ "disk" is also a link and a level of memory, so it counts where a `trainer` is compared with it; other names count everywhere.

    `jobs/scaling` is a table by technique of what crosses a network, on paper.
    """
    named = {*TECHNIQUES} - {"disk", *TOYS}
    wrong = []
    for path in sorted(
        p for layer in ("kernels", "assets", "trainers", "jobs", "graphmill") for p in (ROOT / layer).rglob("*.py")
    ):
        if (
            path.is_relative_to(ROOT / "trainers" / "techniques")
            or path.is_relative_to(ROOT / "jobs" / "scaling")
            or path == ROOT / "trainers" / "recipe" / "techniques.py"
        ):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in named:
                wrong.append((path.relative_to(ROOT), node.lineno, node.value))
            if isinstance(node, ast.Compare) and "trainer" in ast.dump(node.left):
                wrong.append((path.relative_to(ROOT), node.lineno, "a trainer is compared"))
    assert not wrong
