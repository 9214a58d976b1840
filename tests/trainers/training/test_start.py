"""`[[train]] start`: a training begins with the weights of a trained model, in every trainer; what does not fit is one message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.pipeline.steps import Versions, recipe_hash
from graphmill.assets.score import model_name
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.training import all_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.__main__ import train
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.inputs import named_model
from graphmill.trainers.recipe.order import Order
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.adversary import workshop
from tests.recipes import recipe, sbm
from tests.trainers.runs import Stops

SMALL: dict[str, Any] = {"hidden": 8, "epochs": 2, "threads": 1, "lr": 0.02}
SAMPLING = {"fanouts": [4, 3], "batch_size": 32}


def write(folder: Path, name: str, *trains: Mapping[str, Any], graph: Mapping[str, Any] | None = None) -> Pipeline:
    tables = [SMALL | {"name": "sage"} | dict(each) for each in trains]
    path = folder / f"{name}.toml"
    path.write_text(recipe(*tables, graph=graph or sbm(), sampling=SAMPLING))
    return load_pipeline(path, TrainTable)


def carried_out(home: Path, pipeline: Pipeline, **how: Any) -> dict[str, Artifact]:
    """Builds and trains all steps; returns the artifacts by step."""
    steps = all_steps(pipeline, home)
    return {step.name: workshop.carry_out(home, step, pipeline=pipeline, **how) for step in steps}


def weights(model: Artifact) -> dict[str, torch.Tensor]:
    return load_file(model.file("weights.safetensors"))


def equal(first: Artifact, second: Artifact) -> bool:
    one, other = weights(first), weights(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_every_trainer_begins_with_the_weights(tmp_path: Path) -> None:
    """Steps too small to change a bit leave what was taken."""
    tables = {name: keys for name, keys in workshop.TABLES.items()} | {"hotness": "", "samples": "", "cache_plan": ""}
    base = workshop.text("base", {name: tables[name] for name in ("graph", "sampling")}, ["minibatch"])
    (tmp_path / "base.toml").write_text(base)
    (tmp_path / "base").mkdir()
    start = carried_out(tmp_path, load_pipeline(tmp_path / "base.toml", TrainTable))["minibatch"]
    text = workshop.text("tuned", tables, TECHNIQUES)
    small = text.replace("lr = 0.02", f'lr = 1e-30\nstart = "base/minibatch@{start.version[:12]}"')
    (tmp_path / "tuned.toml").write_text(small)
    tuned = load_pipeline(tmp_path / "tuned.toml", TrainTable)
    made = carried_out(tmp_path, tuned)
    for name in TECHNIQUES:
        assert equal(made[name], start), name
        assert made[name].inputs["start"]["version"] == start.version
        assert made[name].version != start.version


def test_the_version_is_that_of_the_start_and_not_its_name(tmp_path: Path) -> None:
    first = carried_out(tmp_path, write(tmp_path, "one", {}))["sage"]
    other = carried_out(tmp_path, write(tmp_path, "two", {"epochs": 3}))["sage"]

    def version(start: str) -> str:
        steps = {
            step.name: step for step in all_steps(write(tmp_path, "tuned", {"start": start} if start else {}), tmp_path)
        }
        return Versions().only(steps["sage"])

    named = {start: version(start) for start in ("", "one/sage", f"one/sage@{first.version[:8]}", "two/sage")}
    assert named["one/sage"] == named[f"one/sage@{first.version[:8]}"] and len({*named.values()}) == 3
    assert named[""] == first.version != other.version
    # The recipe of a step is known without the store.
    steps = [all_steps(write(tmp_path, "tuned", {"start": each}))[-1] for each in ("one/sage", "two/sage")]
    assert recipe_hash(steps[0]) != recipe_hash(steps[1])


def test_a_table_above_is_trained_first(tmp_path: Path) -> None:
    both = write(tmp_path, "both", {"name": "first"}, {"name": "second", "start": "both/first", "lr": 1e-30})
    steps = {step.name: step for step in all_steps(both, tmp_path)}
    assert steps["second"].inputs["start"] is steps["first"]
    made = carried_out(tmp_path, both)
    assert equal(made["first"], made["second"])
    # As a process of its own finds it.
    store = Store(tmp_path)
    assert [model.version for model in train(Order(pipeline=both, table="second", home=tmp_path))] == [
        made["second"].version
    ]
    inputs = {role: each["version"][:10] for role, each in made["second"].inputs.items()}
    assert "start" in inputs and store.find("model", made["second"].version) is not None
    order = Order(pipeline=both, table="second", home=tmp_path, inputs=inputs, retrain=True)
    assert [model.version for model in train(order)] == [made["second"].version]
    for start, said in (("both/second", "names no table of this file"), ("second", "names no trained model")):
        with pytest.raises(InputError, match=said):
            write(tmp_path, "both", {"name": "first", "start": start}, {"name": "second"})
    with pytest.raises(InputError, match="has several seeds"):
        write(tmp_path, "both", {"name": "first", "seeds": [1, 2]}, {"name": "second", "start": "both/first"})


def test_a_training_that_was_killed_goes_on_with_equal_bits(tmp_path: Path) -> None:
    carried_out(tmp_path, write(tmp_path, "one", {}))
    tuned = write(tmp_path, "tuned", {"start": "one/sage", "epochs": 4, "norm": "batch"})
    with pytest.raises(InputError, match="cannot be the start"):
        carried_out(tmp_path, tuned)  # it lacks the statistics
    carried_out(tmp_path, write(tmp_path, "one", {"norm": "batch"}))
    whole = carried_out(tmp_path, tuned)["sage"]
    found = whole.file("weights.safetensors").read_bytes(), whole.file("metrics.jsonl").read_bytes()
    Store(tmp_path).discard(*whole.address)
    with pytest.raises(ConnectionAbortedError):
        carried_out(tmp_path, tuned, progress=Stops(14))
    again = carried_out(tmp_path, tuned, resume=True)["sage"]
    assert (again.file("weights.safetensors").read_bytes(), again.file("metrics.jsonl").read_bytes()) == found
    assert len(again.run_record()["epoch_seconds"]["train"]) <= 4


def arrays(path: Path, num_nodes: int, columns: int = 6, classes: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, num_nodes, (2, 8 * num_nodes))
    np.savez(path, edge_index=edges, x=rng.random((num_nodes, columns), np.float32), y=np.arange(num_nodes) % classes)
    return {"source": "npz", "path": str(path)}


def test_another_graph_of_the_same_schema_is_trained_further(tmp_path: Path) -> None:
    start = carried_out(tmp_path, write(tmp_path, "one", {}, graph=arrays(tmp_path / "a.npz", 200)))["sage"]
    tuned = write(tmp_path, "tuned", {"start": "one/sage", "lr": 1e-30}, graph=arrays(tmp_path / "b.npz", 230))
    assert equal(carried_out(tmp_path, tuned)["sage"], start)


def test_what_does_not_fit_is_one_message_with_all_differences(tmp_path: Path) -> None:
    """Drawn tables and data: the message has a line for each weight and each fact of the schema that differs, and no other."""
    carried_out(tmp_path, write(tmp_path, "one", {}, graph=arrays(tmp_path / "a.npz", 200)))
    rng, refused = np.random.default_rng(3), 0
    for number in range(12):
        keys: dict[str, Any] = {}
        if rng.random() < 0.5:
            keys["hidden"] = int(rng.choice([4, 16]))
        if rng.random() < 0.3:
            keys["norm"] = "layer"
        columns, classes = int(rng.choice([6, 6, 5])), int(rng.choice([3, 3, 4]))
        graph = arrays(tmp_path / f"{number}.npz", 200, columns, classes)
        tuned = write(tmp_path, "tuned", keys | {"start": "one/sage"}, graph=graph)
        plain = carried_out(tmp_path, write(tmp_path, "plain", keys, graph=graph))["sage"]
        here, there = weights(plain), weights(Store(tmp_path).resolve(f"model/{start_of(tmp_path)}"))
        differing = {n for n in {*here, *there} if n not in here or n not in there or here[n].shape != there[n].shape}
        facts = (columns != 6) + 2 * (classes != 3)  # their number, and the class that the model does not know
        if not differing and not facts:
            assert carried_out(tmp_path, tuned)["sage"].inputs["start"]["stage"] == "model"
            continue
        with pytest.raises(InputError) as error:
            carried_out(tmp_path, tuned)
        lines = error.value.problem.splitlines()[1:]
        assert len(lines) == len(differing) + facts, error.value.problem
        assert all(any(f" {name} " in line for line in lines) for name in differing)
        refused += 1
    assert refused >= 6


def start_of(home: Path) -> str:
    return named_model(Store(home), model_name("one/sage", home)).version


def test_ranks_take_it_together(tmp_path: Path) -> None:
    start = carried_out(tmp_path, write(tmp_path, "one", {}))["sage"]
    path = tmp_path / "ranks.toml"
    table = SMALL | {"name": "two", "trainer": "distributed", "start": "one/sage", "lr": 1e-30}
    path.write_text(recipe(table, graph=sbm(), sampling=SAMPLING, partitions={"method": "ldg", "parts": 2}))
    pipeline = load_pipeline(path, TrainTable)
    for step in all_steps(pipeline, tmp_path)[:-1]:
        workshop.carry_out(tmp_path, step, pipeline=pipeline)
    (model,) = train(Order(pipeline=pipeline, table="two", home=tmp_path, ranks=2))
    assert equal(model, start)


def test_a_bundle_carries_the_start_to_another_machine(tmp_path: Path) -> None:
    from graphmill.jobs.commands.store.bundle import bundle_table
    from graphmill.trainers.__main__ import main

    here, there = tmp_path / "here", tmp_path / "there"
    graph = arrays(tmp_path / "a.npz", 200), arrays(tmp_path / "b.npz", 220)
    carried_out(here, write(tmp_path, "one", {}, graph=graph[0]))
    tuned = write(tmp_path, "tuned", {"start": "one/sage"}, graph=graph[1])
    whole = carried_out(here, tuned)["sage"]
    bundle_table(Store(here), tuned, "sage", tmp_path / "bundle", lambda line: None)
    for path in (tmp_path / "one.toml", tmp_path / "a.npz", tmp_path / "b.npz"):
        path.unlink()
    assert main(["--from", str(tmp_path / "bundle"), "--home", str(there), "--quiet"]) == 0
    assert equal(Store(there).open(*whole.address), whole)


def test_each_split_begins_with_one_chosen_model_or_with_its_own(tmp_path: Path) -> None:
    carried_out(tmp_path, write(tmp_path, "one", {}, graph=arrays(tmp_path / "a.npz", 200)))
    rng = np.random.default_rng(1)
    masks = np.stack([rng.permutation(200) for _ in range(2)])
    content = dict(np.load(tmp_path / "a.npz"))
    parts = {"train_masks": masks < 100, "val_masks": (masks >= 100) & (masks < 150), "test_masks": masks >= 150}
    np.savez(tmp_path / "splits.npz", **content, **parts)
    trains = [{"start": "one/sage"}, {"name": "own", "start": "swept/sage"}]
    graph = {"source": "npz", "path": str(tmp_path / "splits.npz"), "split": [0, 1]}
    tables = [SMALL | {"name": "sage"} | each for each in trains]
    path = tmp_path / "swept.toml"
    path.write_text(recipe(*tables, graph=graph, sampling=SAMPLING, score={"model": "swept/own"}))
    pipeline = load_pipeline(path, TrainTable)
    joined = {step.name: step for step in all_steps(pipeline, tmp_path)}
    versions = Versions()
    assert {name: len(versions.of(joined[name])) for name in ("sage", "own", "score")} == {
        "sage": 2,
        "own": 2,
        "score": 2,
    }
    assert {versions.only(each.inputs["start"]) for each in joined["sage"].apart} == {start_of(tmp_path)}
    for place, one in enumerate(pipeline.by_split):
        alone = {step.name: step for step in all_steps(one, tmp_path)}
        for name in ("sage", "own", "score"):
            assert versions.only(joined[name].apart[place]) == Versions().only(alone[name])
    made = [carried_out(tmp_path, one) for one in pipeline.by_split]
    assert made[0]["score"].inputs["model"]["version"] == made[0]["own"].version != made[1]["own"].version


@pytest.mark.parametrize(
    "begins", [(0,), (1, 0), (1, 2, 0), (1, 2, 1), (1, 2, None), (1, 1), (3, 0, 1, 2), (1, 2, 3, None)], ids=str
)
def test_models_that_begin_with_one_another_are_told(tmp_path: Path, begins: tuple[int | None, ...]) -> None:
    """File i begins with the model of file `begins[i]`."""
    for number, other in enumerate(begins):
        start = {} if other is None else {"start": f"file{other}/sage"}
        train = {"name": "sage", "model": "sage", "hidden": 8, "epochs": 1, **start}
        text = recipe(train, graph=sbm(), sampling={"fanouts": [3, 3], "batch_size": 64})
        (tmp_path / f"file{number}.toml").write_text(text)
    reached, place = [0], begins[0]
    while place is not None and place not in reached:
        reached.append(place)
        place = begins[place]
    # A file that begins with itself has a mistake, which ends the chain.
    ends = place is None or begins[place] == place
    said = "is not trained in" if ends else f"leads back to the same model: file{place}/sage -> "
    with pytest.raises(InputError, match=said):
        named_model(Store(tmp_path / "home"), model_name("file0/sage", tmp_path))
