"""The table `[score]` as a step: predictions by a stored model, which model that is, drift from the training, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from graphmill.assets.building.materialize import materialize
from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import open_graph
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.pipeline.steps import Step, Versions, find_inputs
from graphmill.assets.score import model_name
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.training import all_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.inference.scoring.columns import MOST_NODES
from graphmill.trainers.inference.scoring.page import ANSWERS_ALIKE, EVERY_NODE, FEATURES_ALIKE, SCORE_PAGE
from graphmill.trainers.inference.scoring.stage import ScoreExecution
from graphmill.trainers.inference.trained import load_model, stored_recipe
from graphmill.trainers.recipe.config import TrainTable, find_recipe
from graphmill.trainers.recipe.inputs import named_model
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.run import train_table
from tests.adversary import workshop
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe
from tests.trainers.inference.infer import infer_exact
from tests.trainers.inference.test_other_graph import MORE, NODES, arrays


class House:
    """A home with the pipeline `mine`, whose models are trained, and pipelines that score."""

    def __init__(self, folder: Path):
        self.folder, self.store = folder, Store(folder / "home")
        self.mine = self.write("mine", arrays(NODES, 5000), *MODELS, sampling={"fanouts": [5, 5], "batch_size": 128})
        self.models = self.train(self.mine)

    def write(self, name: str, content: Mapping[str, np.ndarray], *trains: dict[str, Any], **tables: Any) -> Pipeline:
        np.savez(self.folder / f"{name}.npz", **content)
        text = recipe(*trains, graph={"source": "npz", "path": f"{name}.npz"}, **tables)
        (self.folder / f"{name}.toml").write_text(text)
        return load_pipeline(self.folder / f"{name}.toml", TrainTable)

    def train(self, pipeline: Pipeline, **how: Any) -> list[Artifact]:
        built = build_config(self.store.home, pipeline.graph, threads=1)
        asked = {"report": lambda line: None, **how}
        return [
            model
            for table in pipeline.train
            for model in train_table(
                self.store, built.inputs, table, pipeline.sampling, 0, asked_by=f"{pipeline.name}/{table.name}", **asked
            )
        ]

    def step(self, pipeline: Pipeline) -> Step:
        return next(step for step in all_steps(pipeline, self.store.home) if step.name == "score")

    def score(self, pipeline: Pipeline) -> Artifact:
        build_config(self.store.home, pipeline.graph, threads=1)
        step = self.step(pipeline)
        found = find_inputs(self.store, step, Versions())
        return materialize(self.store, step.recipe, step.configs[0], ScoreExecution(), found, asked_by="x/score")


MODELS = (
    {"name": "sage", "hidden": 16, "epochs": 2, "norm": "batch", "threads": 2},
    {"name": "gcn", "model": "gcn", "hidden": 16, "epochs": 2, "threads": 2, "dtype": "float64", "betas": [0.8, 0.99]},
)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("scoring"))


def checks(score: Artifact) -> dict[str, bool]:
    return {each["name"]: each["passed"] for each in score.summary["checks"]}


@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_a_grown_graph_has_the_numbers_of_inference_by_hand(house: House, name: str) -> None:
    grown = house.write("grown", arrays(NODES + MORE, 5500), score={"model": f"mine/{name}", "probabilities": True})
    score = house.score(grown)
    data = build_config(house.store.home, grown.graph, threads=1).inputs
    graph, features = open_graph(data["graph"]), open_features(data["features"])
    model = named_model(house.store, model_name(f"mine/{name}", house.folder))
    semantic = find_recipe(house.mine, name, None)[1]
    by_hand = load_model(model, semantic, graph, features)
    logits = infer_exact(by_hand, graph.topology, open_source(features, "auto"), dtype=semantic.train.dtype)
    found = polars.read_parquet(score.file("predictions.parquet"))
    assert len(found) == NODES + MORE == score.summary["numbers"]["num_predicted"]
    assert np.array_equal(found["probabilities"].to_numpy(), logits.softmax(dim=1).float().numpy())
    right = (found["class"] == found["label"]).mean()
    assert score.summary["numbers"]["known_accuracy"] == right
    # The artifact names what it was made of, and so does the file.
    assert {role: each["version"] for role, each in score.inputs.items()} == {
        "graph": data["graph"].version, "features": data["features"].version, "model": model.version,
    }  # fmt: skip
    record = polars.read_parquet_metadata(score.file("predictions.parquet"))
    assert record["graphmill.model"] == model.version and record["graphmill.graph"] == data["graph"].version
    assert record["graphmill.trained_graph"] == model.inputs["graph"]["version"]
    assert checks(score) == dict.fromkeys((EVERY_NODE, FEATURES_ALIKE, ANSWERS_ALIKE), True)
    assert "rows** by model" in SCORE_PAGE.headline([score])


def test_the_recipe_of_a_stored_model_is_that_of_its_file(house: House) -> None:
    for model, table in zip(house.models, house.mine.train, strict=True):
        assert stored_recipe(model) == find_recipe(house.mine, table.name, None)[1]


def test_drift_is_a_warning_that_names_the_columns(house: House) -> None:
    content = arrays(NODES + MORE, 5500)
    content["x"][:, 2] += 3.0
    content["x"][:, 4] *= 5.0
    content["x"][:, 0] += 4.0  # speaks for the first class
    moved = house.write("moved", content, score={"model": "mine/sage"})
    score = house.score(moved)
    assert checks(score) == {EVERY_NODE: True, FEATURES_ALIKE: False, ANSWERS_ALIKE: False}
    numbers, trained = score.summary["numbers"], arrays(NODES, 5000)["x"].astype(np.float64)
    assert numbers["num_drifted_columns"] == 3
    rows = {each["column"]: each for each in numbers["drifted_columns"]}
    for place in range(6):
        now, row = content["x"][:, place].astype(np.float64), rows[str(place)]
        expected = (now.mean(), now.std(), trained[:, place].mean(), trained[:, place].std())
        found = (row["mean"], row["deviation"], row["training_mean"], row["training_deviation"])
        assert np.allclose(found, expected)
        assert row["shift"] == pytest.approx(abs(now.mean() - trained[:, place].mean()) / trained[:, place].std())
    (said,) = (each["detail"] for each in score.summary["checks"] if each["name"] == FEATURES_ALIKE)
    assert said.startswith("3 of 6 columns") and "column 4: mean" in said
    # Shares of the classes beside those of the training, by hand.
    given = polars.read_parquet(score.file("predictions.parquet"))["class"].value_counts(normalize=True)
    shares = {str(row["answer"]): row["now"] for row in numbers["answers"]}
    assert all(shares[str(name)] == pytest.approx(share) for name, share in given.rows())
    apart = sum(abs(row["now"] - row["training"]) for row in numbers["answers"]) / 2
    assert numbers["moved_share"] == pytest.approx(apart) and apart > 0.1
    # The bounds are keys.
    wide = {"most_mean_shift": 100.0, "most_deviation_factor": 100.0, "most_class_shift": 1.0}
    loose = house.score(house.write("loose", content, score={"model": "mine/sage", **wide}))
    assert all(checks(loose).values())


def test_many_nodes_are_compared_by_some_at_equal_distances(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmill.trainers.inference.scoring import columns
    from graphmill.trainers.inference.trained import open_data

    assert MOST_NODES == 65_536
    monkeypatch.setattr(columns, "MOST_NODES", 100)
    monkeypatch.setattr(columns, "BLOCK_VALUES", 60)  # ten rows of six values
    content = arrays(NODES, 5000)
    (moments,) = columns.column_moments(open_data(build_config(house.store.home, house.mine.graph, threads=1).inputs))
    some = content["x"][np.arange(100) * NODES // 100].astype(np.float64)
    assert np.allclose(moments.mean, some.mean(axis=0)) and np.allclose(moments.deviation, some.std(axis=0))


def test_which_model_a_name_means(house: House, tmp_path: Path) -> None:
    own = House(tmp_path)
    first, _ = own.models

    def model(text: str) -> str:
        return named_model(own.store, model_name(text, tmp_path)).version

    assert model("mine/sage") == first.version == model(f"mine/sage@{first.version[:9]}")
    # Data that are not trained yet: yesterday's model, while the file asks for another one.
    np.savez(tmp_path / "mine.npz", **arrays(NODES + MORE, 5500))
    assert model("mine/sage") == first.version
    (second, _) = own.train(load_pipeline(own.mine.path, TrainTable))
    assert model("mine/sage") == second.version != first.version
    assert model(f"mine/sage@{first.version[:9]}") == first.version
    # The file as it was: its own model, though another one was trained later.
    np.savez(tmp_path / "mine.npz", **arrays(NODES, 5000))
    assert model("mine/sage") == first.version
    # No data, and no file: the last one that was trained.
    (tmp_path / "mine.npz").unlink()
    assert model("mine/sage") == second.version
    own.mine.path.unlink()
    assert model("mine/sage") == second.version
    for text in ("mine/gat", "yours/sage"):
        with pytest.raises(InputError, match=f"{text} is not trained") as error:
            model(text)
        assert f"graphmill train {text.replace('/', ' ')}" in error.value.remedy


def test_what_does_not_fit_is_the_message_of_predict(house: House, tmp_path: Path) -> None:
    strange = house.write("strange", arrays(NODES, 5000, columns=5, classes=4), score={"model": "mine/sage"})
    with pytest.raises(InputError) as error:
        house.score(strange)
    with pytest.raises(InputError) as predicted:
        predict_table(house.store, house.mine, "sage", tmp_path / "a.parquet", other=strange)
    assert error.value.problem == predicted.value.problem
    assert "it has 4 classes, and the model 3 classes" in error.value.problem
    assert "nodes have 5 columns of features" in error.value.problem
    assert house.store.find("score", Versions().only(house.step(strange))) is None


@pytest.mark.parametrize(
    "score, said",
    [
        ({"model": "sage"}, "names no trained model"),
        ({"model": "mine/sage@x1"}, "names no trained model"),
        ({"model": "mine/sage", "eval": "none"}, "is not one of exact, sampled"),
        ({"model": "mine/sage", "workspace": "much"}, "workspace"),
        ({"model": "mine/sage", "most_class_shift": 2.0}, "most_class_shift = 2.0 is above 1"),
        ({}, "[score] lacks the key model"),
        ({"model": "wrong/sage"}, "names no table of this file"),
    ],
)
def test_wrong_tables_are_mistakes_with_their_lines(house: House, score: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        house.write("wrong", arrays(NODES, 5000), score=score)
    assert said in str(error.value) and "wrong.toml:" in str(error.value)


def test_sampled_and_own_models(house: House) -> None:
    """The model of a table of the same file comes from the same run; sampled predictions need [sampling] of the training."""
    trains, sampling = MODELS[:1], {"fanouts": [5, 5], "batch_size": 128}
    both = house.write(
        "both", arrays(NODES, 5000), *trains, sampling=sampling, score={"model": "both/sage", "eval": "sampled"}
    )
    step = house.step(both)
    assert step.inputs["model"].key == ("both", "sage") and step.inputs["model"].recipe.name == "model"
    house.train(both)
    score = house.score(both)
    assert score.summary["numbers"]["num_predicted"] == NODES
    assert step.inputs["model"].configs[0] == stored_recipe(
        named_model(house.store, model_name("mine/sage", house.folder))
    )


def scored(
    folder: Path, train: dict[str, Any], score: dict[str, Any], changed: dict[str, Any], **tables: Any
) -> Artifact:
    """Trains a model on a generated graph and scores the graph that other keys of [graph] give."""
    store = Store(folder / "home")
    sampling = {"fanouts": [4, 4], "batch_size": 128}
    table = {"name": "x", "hidden": 8, "epochs": 2, "threads": 1} | train
    graph = tables.pop("graph")
    (folder / "day.toml").write_text(recipe(table, graph=graph, sampling=sampling, **tables))
    (folder / "night.toml").write_text(recipe(graph=graph | changed, score={"model": "day/x"} | score, **tables))
    for name in ("day", "night"):
        pipeline = load_pipeline(folder / f"{name}.toml", TrainTable)
        steps = all_steps(pipeline, store.home)
        made = [workshop.carry_out(store.home, step, pipeline=pipeline) for step in steps]
    return made[-1]


def test_columns_of_node_types_are_compared_apart(tmp_path: Path) -> None:
    graph = {"source": "typed_citation", "nodes": 400, "edges": 3000, "classes": 4}
    keys = {"model": "rgcn", "bases": 2, "input": "typed"}
    score = scored(tmp_path, keys, {"types": ["all"]}, {"nodes": 480}, graph=graph)
    found = open_features(score.neighbour(score.inputs["features"]))
    opened = open_graph(score.neighbour(score.inputs["graph"]))
    assert score.summary["numbers"]["num_predicted"] == opened.topology.num_nodes
    widths = dict(zip(opened.node_types, found.type_columns or (found.width,) * len(opened.node_types), strict=True))
    rows = {each["column"]: each for each in score.summary["numbers"]["drifted_columns"]}
    assert {name.split()[0] for name in rows} <= {name for name, width in widths.items() if width}
    starts = opened.topology.node_type_ptr
    for name, row in rows.items():
        node_type, place = name.split()
        kind = opened.node_types.index(node_type)
        ids = found.rows_of(np.arange(starts[kind], starts[kind + 1]))
        values = found.open()[ids[ids >= 0], int(place)].astype(np.float64)
        assert row["mean"] == pytest.approx(values.mean(), abs=1e-6)


def test_several_labels_and_numbers_have_answers_of_their_own(tmp_path: Path) -> None:
    graph = {"source": "sbm", "nodes": 600, "edges": 6000, "features": 8, "classes": 4}
    for kind in ("multilabel", "regression"):
        folder = tmp_path / kind
        folder.mkdir()
        score = scored(folder, {"model": "gcn"}, {}, {"nodes": 660}, graph=graph, task={"kind": kind})
        numbers = score.summary["numbers"]
        table = polars.read_parquet(score.file("predictions.parquet"))
        trained = score.neighbour(score.neighbour(score.inputs["model"]).inputs["graph"])
        rows = {each["answer"]: each for each in numbers["answers"]}
        if kind == "multilabel":
            names = open_graph(trained).class_names
            shares = {name: table["labels"].list.contains(name).mean() for name in names}
            assert all(rows[name]["now"] == pytest.approx(share) for name, share in shares.items())
            assert "known_f1_micro" in numbers and "moved_share" in numbers
            continue
        # Numbers are in the unit of the training, and so are their scores.
        learnt = open_graph(trained)
        labels = learnt.labels[np.array(learnt.train_ids)].astype(np.float64)
        mean, deviation = labels.mean(), labels.std()
        (row,) = rows.values()
        assert row["now"] == pytest.approx(
            (table["prediction"].cast(polars.Float64).mean() - mean) / deviation, abs=1e-4
        )
        known = table.drop_nulls("label")
        error = (known["prediction"].cast(polars.Float64) - known["label"].cast(polars.Float64)).abs().mean()
        assert numbers["known_mae"] == pytest.approx(error, rel=1e-5)
        assert "answer_shift" in numbers and "moved_share" not in numbers


def test_links_have_their_best_ends(tmp_path: Path) -> None:
    graph = {"source": "sbm", "nodes": 300, "edges": 3000, "features": 8, "classes": 4}
    task = {"kind": "links"}
    score = scored(tmp_path, {"model": "sage"}, {"top": 3}, {"nodes": 330}, graph=graph, task=task)
    table = polars.read_parquet(score.file("predictions.parquet"))
    assert len(table) == 3 * 330 == score.summary["numbers"]["num_predicted"] and set(table["rank"]) == {1, 2, 3}
    assert checks(score)[ANSWERS_ALIKE] and "moved_share" not in score.summary["numbers"]


KINDS = {"fewer": 2, "same": 3, "more": 4}
"""Numbers of classes."""


def typed_data(folder: Path, name: str, draw: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a small graph with node types, relations and weights as PyG does, with what a draw changes; returns its table [graph]."""
    made = torch.Generator().manual_seed(1)
    papers, authors = 60, 20
    labels = torch.arange(papers) % KINDS[draw.get("classes", "same")]
    kind = getattr(torch, draw.get("dtype", "float32"))
    part = torch.arange(papers) % 10
    masks = {"train_mask": part < 6, "val_mask": (part >= 6) & (part < 8), "test_mask": part >= 8}
    x = torch.randn(papers, draw.get("paper", 8), generator=made).to(kind)
    data: dict[Any, Any] = {
        "paper": {"x": x, "y": labels, **masks},
        "author": {"x": torch.randn(authors, draw.get("author", 3), generator=made).to(kind)},
    }
    if draw.get("venue"):
        data["venue"] = {"x": torch.randn(5, 2, generator=made).to(kind)}
    likes = draw.get("likes", "likes")
    for relation, ends in (("cites", ("paper", papers)), (likes, ("paper", papers)), ("writes", ("author", authors))):
        if relation:
            edges = torch.stack([torch.randint(0, n, (120,), generator=made) for n in (ends[1], papers)])
            data[ends[0], relation, "paper"] = {"edge_index": edges, "w": torch.rand(120, generator=made) + 0.5}
    torch.save({"_global_store": {}, **data}, folder / f"{name}.pt")
    return {"source": "pyg", "path": f"{name}.pt"} | ({} if draw.get("unweighted") else {"weight": "w"})


FACETS: dict[str, tuple[Any, ...]] = {
    "classes": ("same", "fewer", "more"),
    "paper": (8, 7),
    "author": (3, 4),
    "venue": (False, True),
    "likes": ("likes", "loves", ""),
    "dtype": ("float32", "float16", "float64"),
    "unweighted": (False, True),
}
"""What is drawn -> its value in the training, then others."""


def expected(draw: Mapping[str, Any]) -> list[str]:
    """Returns how each sentence about what a draw changes begins."""
    classes = KINDS[draw["classes"]]
    found = [f"it has {classes} classes, and the model 3 classes"] * (classes != 3)
    found += ["it lacks the classes 2"] * (classes == 2) + ["the model does not know the classes 3"] * (classes == 4)
    found += ["the model does not know the node types venue"] * draw["venue"]
    found += ["it lacks the relations"] * (draw["likes"] != "likes")
    found += ["the model does not know the relations"] * (draw["likes"] == "loves")
    found += [f"paper have {draw['paper']} columns of features, and"] * (draw["paper"] != 8)
    found += [f"author have {draw['author']} columns of features, and"] * (draw["author"] != 3)
    found += [f"its features are {draw['dtype']}, and"] * (draw["dtype"] != "float32")
    return found + ["its edges have no weights"] * draw["unweighted"]


def test_fifty_drawn_graphs_that_do_not_fit_are_refused_with_all_differences(tmp_path: Path) -> None:
    store, sampling = Store(tmp_path / "home"), {"fanouts": [4, 4], "batch_size": 32}
    table = {"name": "x", "model": "rgcn", "bases": 2, "input": "typed", "hidden": 8, "epochs": 1, "threads": 1}
    (tmp_path / "day.toml").write_text(recipe(table, graph=typed_data(tmp_path, "day", {}), sampling=sampling))
    day = load_pipeline(tmp_path / "day.toml", TrainTable)
    for step in all_steps(day, store.home):
        workshop.carry_out(store.home, step, pipeline=day)
    rng, refused, seen = np.random.default_rng(11), 0, set[tuple[str, Any]]()
    while refused < 50:
        draw = {
            name: values[int(rng.integers(len(values))) if rng.random() < 0.5 else 0] for name, values in FACETS.items()
        }
        graph, name = typed_data(tmp_path, "night", draw), f"night{refused % 2}"
        (tmp_path / f"{name}.toml").write_text(recipe(graph=graph, score={"model": "day/x"}))
        night = load_pipeline(tmp_path / f"{name}.toml", TrainTable)
        build_config(store.home, night.graph, threads=1)
        step = next(step for step in all_steps(night, store.home) if step.name == "score")
        wanted = expected(draw)
        if not wanted:
            workshop.carry_out(store.home, step, pipeline=night)
            continue
        with pytest.raises(InputError, match="does not fit model/") as error:
            workshop.carry_out(store.home, step, pipeline=night)
        lines = [line.strip() for line in error.value.problem.splitlines()[1:]]
        assert len(lines) == len(wanted), (draw, lines)
        assert all(any(line.startswith(each) for line in lines) for each in wanted), (draw, lines)
        refused, seen = refused + 1, seen | {*draw.items()}
    assert seen >= {(name, value) for name, values in FACETS.items() for value in values}
