"""A trained model on another graph: the numbers of inference by hand, and one message with all that does not fit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from graphmill.assets.building.stage import Silent
from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import open_graph
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.inference.trained import is_trained, load_model
from graphmill.trainers.recipe.config import TrainTable, find_recipe
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.run import train_table
from graphmill.trainers.tasks.schema import Schema, differences, read_schema, require_schema
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe
from tests.trainers.inference.infer import infer_exact

NODES, MORE = 600, 60
RECIPE = recipe(
    {"name": "sage", "hidden": 16, "epochs": 2, "norm": "batch", "threads": 2},
    {"name": "gcn", "model": "gcn", "hidden": 16, "epochs": 2, "threads": 2},
    graph={"source": "npz", "path": "mine.npz"},
    sampling={"fanouts": [5, 5], "batch_size": 128},
)


class Told(Silent):
    """Keeps the lines that a prediction tells."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)


def arrays(num_nodes: int, num_edges: int, columns: int = 6, classes: int = 3) -> dict[str, np.ndarray]:
    """A graph whose first nodes and edges are those of every smaller one."""
    rng = np.random.default_rng(0)
    labels = np.arange(2 * NODES) * 7919 % 97 % classes
    x = rng.standard_normal((2 * NODES, 12))[:, :columns] + 2 * np.eye(classes, columns)[labels]
    edges = np.random.default_rng(1).integers(0, NODES, (2, num_edges))
    edges[:, num_edges * 10 // 11 :] += num_nodes - NODES
    return {"edge_index": edges, "x": x[:num_nodes].astype(np.float32), "y": labels[:num_nodes]}


def written(folder: Path, name: str, **content: np.ndarray) -> Pipeline:
    np.savez(folder / f"{name}.npz", **content)
    (folder / f"{name}.toml").write_text(RECIPE.replace("mine.npz", f"{name}.npz"))
    return load_pipeline(folder / f"{name}.toml", TrainTable)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Pipeline, Pipeline, Callable[..., Pipeline]]:
    """A store with two models of one graph; its pipeline, that of a graph with a tenth more, and a function that makes others."""
    folder = tmp_path_factory.mktemp("other")
    store = Store(folder / "home")

    def another(name: str, **content: np.ndarray) -> Pipeline:
        pipeline = written(folder, name, **content)
        build_config(store.home, pipeline.graph, threads=1)
        return pipeline

    mine = written(folder, "mine", **arrays(NODES, 5000))
    built = build_config(store.home, mine.graph, threads=1)
    for table in mine.train:
        train_table(store, built.inputs, table, mine.sampling, 0, report=lambda line: None)
    return store, mine, another("grown", **arrays(NODES + MORE, 5500)), another


@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_a_grown_graph_has_the_numbers_of_inference_by_hand(made: Any, tmp_path: Path, name: str) -> None:
    store, mine, grown, _ = made
    told = Told()
    model, rows = predict_table(store, mine, name, tmp_path / "a.parquet", other=grown, columns=_all(), progress=told)
    assert rows == NODES + MORE
    data = build_config(store.home, grown.graph, threads=1).inputs
    graph, features = open_graph(data["graph"]), open_features(data["features"])
    _, semantic = find_recipe(mine, name, None)
    by_hand = load_model(model, semantic, graph, features)
    logits = infer_exact(by_hand, graph.topology, open_source(features, "auto"))
    found = polars.read_parquet(tmp_path / "a.parquet")
    assert torch.equal(torch.from_numpy(found["probabilities"].to_numpy()), logits.softmax(dim=1))
    right = (found["class"] == found["label"]).mean()
    assert f"accuracy {100 * right:.2f} % of {rows} nodes whose label is known" in told.lines
    record = polars.read_parquet_metadata(tmp_path / "a.parquet")
    assert record["graphmill.model"] == model.version and record["graphmill.graph"] == data["graph"].version
    assert record["graphmill.trained_graph"] == model.inputs["graph"]["version"] != record["graphmill.graph"]
    # Those of some nodes, and those of the graph of the training, are the same rows.
    (tmp_path / "some.txt").write_text("\n".join(map(str, range(0, rows, 50))))
    predict_table(store, mine, name, tmp_path / "b.parquet", other=grown, nodes=tmp_path / "some.txt")
    some = polars.read_parquet(tmp_path / "b.parquet")
    assert some["class"].equals(found["class"].gather(range(0, rows, 50)))
    predict_table(store, mine, name, tmp_path / "c.parquet")
    predict_table(store, mine, name, tmp_path / "d.parquet", other=mine)
    assert polars.read_parquet(tmp_path / "c.parquet").equals(polars.read_parquet(tmp_path / "d.parquet"))


def _all() -> Any:
    from graphmill.trainers.inference.answers.kinds import Columns

    return Columns(probabilities=True)


def test_sampled_predictions_of_all_neighbours_are_the_exact_ones(made: Any, tmp_path: Path) -> None:
    store, mine, grown, _ = made
    every = load_pipeline(mine.path, TrainTable, settings=["sampling.fanouts=[-1, -1]"])
    built = build_config(store.home, every.graph, threads=1)
    train_table(store, built.inputs, every.train[0], every.sampling, 0, report=lambda line: None)
    (tmp_path / "some.txt").write_text("\n".join(map(str, range(3, NODES + MORE, 7))))
    for nodes in (None, tmp_path / "some.txt"):
        found = {}
        for pipeline in (every, mine):
            for evaluation in ("exact", "sampled"):
                out = tmp_path / "out.parquet"
                how: dict[str, Any] = {"columns": _all(), "nodes": nodes, "evaluation": evaluation}
                predict_table(store, pipeline, "sage", out, other=grown, **how)
                found[pipeline is every, evaluation] = polars.read_parquet(out)
        exact, sampled = (found[True, each] for each in ("exact", "sampled"))
        assert exact["node_id"].equals(sampled["node_id"]) and len(exact) == (94 if nodes else NODES + MORE)
        assert np.allclose(exact["probabilities"].to_numpy(), sampled["probabilities"].to_numpy(), atol=1e-5)
        drawn = [found[False, each]["probabilities"].to_numpy() for each in ("exact", "sampled")]
        assert not np.allclose(*drawn, atol=1e-5)  # five neighbours of about nine


def test_labels_may_be_missing(made: Any, tmp_path: Path) -> None:
    store, mine, _, another = made
    content = arrays(NODES, 5000)
    told = Told()
    unknown = another("unlabelled", **content | {"y": np.full(NODES, -1)})
    predict_table(store, mine, "gcn", tmp_path / "a.parquet", other=unknown, progress=told)
    found = polars.read_parquet(tmp_path / "a.parquet")
    assert found["label"].is_null().all() and found["class"].is_in([0, 1, 2]).all()
    assert "no node that is predicted has a label, so there are no scores" in told.lines


def test_what_does_not_fit_is_one_message(made: Any, tmp_path: Path) -> None:
    store, mine, _, another = made
    other = another("strange", **arrays(NODES, 5000, columns=5, classes=4))
    with pytest.raises(InputError) as error:
        predict_table(store, mine, "sage", tmp_path / "a.parquet", other=other)
    said = error.value.problem
    assert "it has 4 classes, and the model 3 classes" in said and "does not know the classes 3" in said
    assert "nodes have 5 columns of features, and the model was trained with 6" in said
    missing = replace(mine, tables={**mine.tables, "graph": replace(mine.graph, path=tmp_path / "none.npz")})
    with pytest.raises(InputError, match=r"none\.npz"):
        predict_table(store, mine, "sage", tmp_path / "a.parquet", other=missing)
    with pytest.raises(InputError, match="--ranks predicts exactly"):
        predict_table(store, mine, "sage", tmp_path / "a.parquet", other=mine, by_ranks=lambda *_: 0)
    assert not list(tmp_path.glob("*.parquet"))


def test_keys_of_the_data_that_are_set_name_another_graph(made: Any, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from graphmill.jobs.command import graphmill as group

    store, mine, grown, _ = made
    assert is_trained(store, mine, "sage", None) and not is_trained(store, grown, "sage", None)
    for more in (["--graph", str(grown.path)], ["--set", f"graph.path={grown.graph.path}"]):  # pyright: ignore
        out = tmp_path / "out.parquet"
        words = ["--home", str(store.home), "predict", str(mine.path), "sage", "--out", str(out), *more]
        done = CliRunner().invoke(group, words)
        assert done.exit_code == 0 and f"{NODES + MORE} nodes of" in done.output, done.output
        assert len(polars.read_parquet(out)) == NODES + MORE
        out.unlink()


@pytest.mark.parametrize("embedding", ["type", "node"])
def test_types_of_nodes_have_other_numbers_and_rows_of_nodes_are_refused(tmp_path: Path, embedding: str) -> None:
    store, found = Store(tmp_path / "home"), {}
    for name, nodes in (("mine", 400), ("more", 480)):
        text = recipe(
            {
                "name": "rgcn",
                "model": "rgcn",
                "bases": 2,
                "input": "typed",
                "embedding": embedding,
                "hidden": 8,
                "epochs": 1,
            },
            graph={"source": "typed_citation", "nodes": nodes, "edges": 3000, "classes": 4},
            sampling={"fanouts": [4, 4], "batch_size": 64},
        )
        (tmp_path / f"{name}.toml").write_text(text)
        found[name] = load_pipeline(tmp_path / f"{name}.toml", TrainTable)
    built = {name: build_config(store.home, each.graph, threads=1) for name, each in found.items()}
    mine, more = found["mine"], found["more"]
    (model,) = train_table(store, built["mine"].inputs, mine.train[0], mine.sampling, 0, report=lambda line: None)
    out = tmp_path / "out.parquet"
    if embedding == "node":
        with pytest.raises(InputError, match="has learnt a row for each node"):
            predict_table(store, mine, "rgcn", out, other=more)
        return
    _, rows = predict_table(store, mine, "rgcn", out, other=more, columns=_all())
    graph, features = open_graph(built["more"].inputs["graph"]), open_features(built["more"].inputs["features"])
    by_hand = load_model(model, find_recipe(mine, "rgcn", None)[1], graph, features)
    logits = infer_exact(by_hand, graph.topology, open_source(features, "auto"))[:rows]  # papers come first
    assert np.array_equal(polars.read_parquet(out)["probabilities"].to_numpy(), logits.softmax(dim=1).numpy())
    assert graph.node_types[0] == "paper" and rows == graph.topology.node_type_ptr[1]


# Drawn schemas.

TRAINED = Schema(
    task="classes",
    classes=("a", "b", "c", "d"),
    node_types=("author", "paper", "venue"),
    relations=("cites", "writes", "appears"),
    columns={"author": 0, "paper": 12, "venue": 3},
    dtype="float32",
    weighted=True,
    encoders={"paper": [{"column": "year", "mean": 2000.0}]},
)


def _shuffled(names: tuple[str, ...], rng: np.random.Generator) -> tuple[str, ...]:
    return (*names[1:], names[0]) if rng.random() < 0.5 else (names[1], names[0], *names[2:])


CHANGES: dict[str, Callable[[Schema, np.random.Generator], tuple[Schema, list[str]]]] = {
    "fewer classes": lambda s, rng: (
        replace(s, classes=s.classes[: (n := int(rng.integers(1, 4)))]),
        [f"it has {n} classes, and the model 4 classes", f"it lacks the classes {', '.join('abcd'[n:])}"],
    ),
    "other classes": lambda s, rng: (
        replace(s, classes=(*s.classes[:3], "z")),
        ["it lacks the classes d", "the model does not know the classes z"],
    ),
    "classes in another order": lambda s, rng: (
        replace(s, classes=_shuffled(s.classes, rng)),
        ["its classes stand in another order"],
    ),
    "another task": lambda s, rng: (replace(s, task="multilabel"), ["its task is multilabel, and the model's classes"]),
    "a type less": lambda s, rng: (
        replace(s, node_types=s.node_types[:2], columns={name: s.columns[name] for name in s.node_types[:2]}),
        ["it lacks the node types venue"],
    ),
    "a type more": lambda s, rng: (
        replace(s, node_types=(*s.node_types, "reader"), columns={**s.columns, "reader": 4}),
        ["the model does not know the node types reader"],
    ),
    "relations in another order": lambda s, rng: (
        replace(s, relations=_shuffled(s.relations, rng)),
        ["its relations stand in another order"],
    ),
    "another relation": lambda s, rng: (
        replace(s, relations=(*s.relations[:2], "sold")),
        ["it lacks the relations appears", "the model does not know the relations sold"],
    ),
    "columns": lambda s, rng: (
        replace(s, columns={**s.columns, "paper": (n := int(rng.integers(0, 12)))}),
        [f"paper have {n} columns of features, and the model was trained with 12"],
    ),
    "type of features": lambda s, rng: (
        replace(s, dtype="float16"),
        ["its features are float16, and those of the training float32"],
    ),
    "no weights": lambda s, rng: (replace(s, weighted=False), ["its edges have no weights"]),
    "encoders": lambda s, rng: (
        replace(s, encoders={"paper": [{"column": "year", "mean": float(rng.integers(3000))}]}),
        ["the encoders of paper were fitted to other values"],
    ),
}
APART = (
    ("fewer classes", "other classes", "classes in another order", "another task"),
    ("a type less", "a type more"),
    ("relations in another order", "another relation"),
)
"""Changes of one thing, of which a schema has one."""


def test_drawn_schemas_are_refused_with_all_their_differences(made: Any) -> None:
    store, _, grown, _ = made
    graph = build_config(store.home, grown.graph, threads=1).inputs["graph"]
    rng, seen = np.random.default_rng(7), set[str]()
    for number in range(60):
        names = [list(CHANGES)[number % len(CHANGES)], *rng.choice(list(CHANGES), rng.integers(0, 6))]
        names = [*dict.fromkeys(names)]
        for group in APART:
            of_group = [name for name in names if name in group]
            names = [name for name in names if name not in of_group[1:]]
        other, wanted = TRAINED, []
        for name in names:
            other, said = CHANGES[name](other, rng)
            wanted += said
        found = [*differences(TRAINED, other)]
        assert len(found) == len(wanted) and all(any(each.startswith(text) for each in found) for text in wanted), names
        with pytest.raises(InputError) as error:
            require_schema(TRAINED, other, graph, graph)
        assert all(each in error.value.problem for each in found)
        seen |= {*names}
    assert seen == set(CHANGES)


def test_the_schema_of_another_size_is_the_same(made: Any) -> None:
    store, mine, grown, _ = made
    schemas = []
    for pipeline in (mine, grown):
        schemas.append(read_schema(build_config(store.home, pipeline.graph, threads=1).inputs))
    assert schemas[0] == schemas[1] and not [*differences(*schemas)]
    assert not [*differences(TRAINED, replace(TRAINED, classes=(), task="classes"))]  # without labels
