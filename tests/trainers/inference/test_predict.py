"""Prediction: every node once, under its original name, the same numbers whatever the workspace; a failure leaves no file."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.answers.kinds import ROW_GROUP, ClassAnswers, Columns, class_column
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.gathered import ExactRange
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.assets.storage.damage import flip
from tests.recipes import recipe
from tests.trainers.inference.infer import infer_exact

RECIPE = recipe(
    {"name": "sage", "hidden": 16, "epochs": 2, "norm": "batch", "seeds": [3, 4]},
    {"name": "other"},
    graph={"source": "npz", "path": "mine.npz"},
    sampling={"fanouts": [5, 5], "batch_size": 256},
)
NODES = ROW_GROUP + 100


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, Store, Any]:
    folder = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, NODES)
    x = (rng.standard_normal((NODES, 6)) + 2 * np.eye(3, 6)[labels]).astype(np.float32)
    labels[rng.permutation(NODES)[:50]] = -1
    np.savez(folder / "mine.npz", edge_index=rng.integers(0, NODES, (2, 30_000)), x=x, y=labels)
    (folder / "mine.toml").write_text(RECIPE)
    pipeline, store = load_pipeline(folder / "mine.toml", TrainTable), Store(folder / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    assert pipeline.sampling is not None
    models = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    return pipeline, store, (built, models)


def test_it_computes_inside_torch_threads(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So with functions that were called before (test_torch_threads.py), on as many threads as were asked for."""
    pipeline, store, _ = trained
    before, seen = torch.get_num_threads(), []

    def recorded(inference: Inference, needed: None) -> Iterator[ExactRange]:
        for each in ranges(inference, needed):
            seen.append(torch.get_num_threads())
            yield each

    ranges = Inference.ranges
    monkeypatch.setattr(Inference, "ranges", recorded)
    predict_table(store, pipeline, "sage", tmp_path / "a.parquet", threads=before + 1)
    assert set(seen) == {before + 1} and torch.get_num_threads() == before


def test_every_node_has_its_row_whatever_the_workspace(trained: Any, tmp_path: Path) -> None:
    pipeline, store, _ = trained
    model, rows = predict_table(store, pipeline, "sage", tmp_path / "a.parquet")
    assert rows == NODES and model.config["seed"] == 3
    table = polars.read_parquet(tmp_path / "a.parquet")
    assert dict(table.schema) == {
        "node_id": polars.Int64, "class": polars.Int64, "probability": polars.Float32,
        "label": polars.Int64, "split": polars.String, "embedding": polars.Array(polars.Float32, 16),
    }  # fmt: skip
    assert table["node_id"].to_list() == list(range(NODES))
    predict_table(store, pipeline, "sage", tmp_path / "b.parquet", workspace="300KB", threads=1)
    small = polars.read_parquet(tmp_path / "b.parquet")
    assert (small["class"] == table["class"]).mean() > 0.999
    np.testing.assert_allclose(small["embedding"].to_numpy(), table["embedding"].to_numpy(), atol=1e-4)
    np.testing.assert_allclose(small["probability"], table["probability"], atol=1e-4)
    assert not list((store.home / "spill").iterdir()) and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", ["parquet", "csv", "txt"])
@pytest.mark.parametrize("workspace", ["1GiB", "300KB"])
def test_named_nodes_get_the_rows_that_all_nodes_get(trained: Any, tmp_path: Path, kind: str, workspace: str) -> None:
    pipeline, store, _ = trained
    named = polars.DataFrame({"node_id": [5, NODES - 1, 17, 5, 900]})
    path = tmp_path / f"some.{kind}"
    if kind == "txt":
        path.write_text("5\n1999\n 17\n5\n900\n".replace("1999", str(NODES - 1)))
    else:
        named.write_parquet(path) if kind == "parquet" else named.write_csv(path)
    predict_table(store, pipeline, "sage", tmp_path / "all.parquet", workspace=workspace)
    _, rows = predict_table(store, pipeline, "sage", tmp_path / "a.parquet", workspace=workspace, nodes=path)
    whole, table = polars.read_parquet(tmp_path / "all.parquet"), polars.read_parquet(tmp_path / "a.parquet")
    assert rows == 4 and table.equals(whole.filter(polars.col("node_id").is_in([5, 17, 900, NODES - 1])))


def test_files_that_name_no_nodes_of_the_graph_are_refused(trained: Any, tmp_path: Path) -> None:
    pipeline, store, _ = trained
    texts = {
        "a.txt": "1 2 no",
        "b.txt": "",
        "c.csv": "id\n1\n",
        "d.txt": "1\n-4\n987654",
        "e.npy": "x",
        "g.parquet": "x",
    }
    words = {"a": "cannot be read", "b": "names no node", "c": "cannot be read", "d": "2 nodes .*(-4|987654)"}
    words |= {"e": "is no file of nodes", "f": "cannot be read", "g": "cannot be read"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name in (*texts, "f.txt"):
        with pytest.raises(InputError, match=words[name[0]]):
            predict_table(store, pipeline, "sage", tmp_path / "out.parquet", nodes=tmp_path / name)
    with pytest.raises(InputError, match="--ranks predicts all nodes of a type"):
        predict_table(
            store, pipeline, "sage", tmp_path / "out.parquet", nodes=tmp_path / "d.txt", by_ranks=lambda *given: 0
        )


def test_the_rows_are_the_models(trained: Any, tmp_path: Path) -> None:
    """Class and probability follow from the logits of exact inference, the test accuracy from the classes."""
    pipeline, store, (built, models) = trained
    _, rows = predict_table(
        store, pipeline, "sage", tmp_path / "a.parquet", seed=4, columns=Columns(probabilities=True)
    )
    table = polars.read_parquet(tmp_path / "a.parquet")
    from graphmill.trainers.inference.trained import load_model
    from graphmill.trainers.run import model_configs

    opened, config = built.opened, model_configs(pipeline.train[0], pipeline.sampling, 0)[1]
    model = load_model(models[1], config, opened, built.table)
    logits = infer_exact(model, opened.topology, MemorySource(built.table), 2**30, 2)
    names = np.array(opened.class_names).astype(np.int64)  # classes are numbers
    assert (names[logits.argmax(1).numpy()] == table["class"].to_numpy()).all()
    np.testing.assert_allclose(table["probability"], logits.softmax(1).max(1).values, rtol=1e-5)
    np.testing.assert_allclose(table["probabilities"].to_numpy(), logits.softmax(1), rtol=1e-4, atol=1e-6)
    labels = [None if label < 0 else int(names[label]) for label in opened.labels.tolist()]
    assert table["label"].to_list() == labels and labels.count(None) == 50
    for name in ("train", "valid", "test"):
        ids = getattr(opened, f"{name}_ids")
        assert table.with_row_index().filter(polars.col("split") == name)["index"].to_list() == sorted(ids.tolist())
    assert table["split"].null_count() == NODES - sum(
        len(getattr(opened, f"{name}_ids")) for name in ("train", "valid", "test")
    )
    test = np.array(opened.test_ids)
    right = (table["class"].to_numpy()[test] == names[opened.labels[test]]).mean()
    assert right == pytest.approx(models[1].summary["numbers"]["test_accuracy"], abs=2e-3)
    assert rows == NODES


def test_what_training_only_reads_need_not_be_there(trained: Any, tmp_path: Path) -> None:
    """A cache of rows changes no weight, so hotness and budgets are of no use to a prediction."""
    pipeline, store, _ = trained
    cached = pipeline.path.with_name("cached.toml")
    cached.write_text(RECIPE + '[hotness]\npolicy = "degree"\n[memory]\ndevice = "25%"\nhost = 0\n')
    model, rows = predict_table(store, load_pipeline(cached, TrainTable), "sage", tmp_path / "a.parquet")
    assert rows == NODES and model.config["seed"] == 3
    assert {each.stage for each in store.artifacts()} == {"graph", "features", "model"}


@pytest.mark.parametrize("missing", ["graph", "features"])
def test_a_missing_artifact_is_named_with_what_brings_it(trained: Any, tmp_path: Path, missing: str) -> None:
    pipeline, store, (built, _) = trained
    home = tmp_path / "home"
    shutil.copytree(store.home / "store", home / "store", ignore=shutil.ignore_patterns(missing, ".staging"))
    label = f"{missing}/{built.inputs[missing].version[:12]}"
    with pytest.raises(InputError, match=f"{label} is not in .*\n.*graphmill build {pipeline.path}; or copy it"):
        predict_table(Store(home), pipeline, "sage", tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sag"}, "has no .* table 'sag'"),
        ({"seed": 9}, "has no seed 9"),
        ({"name": "other"}, "is not trained in .*\n.*graphmill train .* other"),
        ({"out": Path("/nowhere/x.parquet")}, "does not exist"),
        ({"out": Path("x.csv")}, r"x.csv does not end with .parquet"),
        ({"workspace": "lots"}, "lots"),
    ],
)
def test_what_is_missing_is_named(trained: Any, tmp_path: Path, options: dict, message: str) -> None:
    pipeline, store, _ = trained
    settings: dict[str, Any] = {"name": "sage", "out": tmp_path / "a.parquet"} | options
    with pytest.raises(InputError, match=message):
        predict_table(store, pipeline, settings.pop("name"), settings.pop("out"), **settings)
    assert not list(tmp_path.iterdir())


def test_a_failure_on_the_way_leaves_no_file(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, store, _ = trained
    (tmp_path / "a.parquet").write_text("before")

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("graphmill.trainers.inference.predict.write_frames", broken)
    with pytest.raises(InputError, match="file system is full"):
        predict_table(store, pipeline, "sage", tmp_path / "a.parquet")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.parquet", "before")]


@pytest.mark.parametrize("where", ["weights.safetensors", "rows.npy", "indices.npy", "nodes.parquet"])
def test_nothing_is_predicted_from_damaged_bytes(trained: Any, tmp_path: Path, where: str) -> None:
    pipeline, store, (built, models) = trained
    path = next(each.path / where for each in (*built.inputs.values(), models[0]) if where in each.files)
    bit = 8 * path.stat().st_size - 3
    flip(path, bit)
    with pytest.raises(InputError, match=rf"{where} is damaged(?s:.*)graphmill repair"):
        predict_table(store, pipeline, "sage", tmp_path / "a.parquet")
    flip(path, bit)
    assert not list(tmp_path.iterdir())
    predict_table(store, pipeline, "sage", tmp_path / "a.parquet")


def test_a_table_of_numbers_has_the_same_types_whatever_the_model_computes_in() -> None:
    schemas, answers = [], ClassAnswers(list("abcd"), Columns(probabilities=True))
    for dtype in (torch.float32, torch.float64):
        logits = torch.randn(ROW_GROUP + 3, 4, dtype=dtype)
        found = ExactRange(low=0, high=len(logits), logits=logits)
        frames = [frame for _, frame in answers.frames(found)]
        assert len(frames) == 2 and frames[0].schema == frames[1].schema
        schemas.append(frames[0].schema)
    assert schemas[0] == schemas[1] and schemas[0]["probability"] == polars.Float32


def answers_of(probabilities: list[list[float]], **columns: Any) -> polars.DataFrame:
    logits = torch.tensor(probabilities, dtype=torch.float64).log()
    names = ["a", "b", "c"][: logits.shape[1]]
    found = ClassAnswers(names, Columns(**columns)).frames(ExactRange(low=0, high=len(logits), logits=logits))
    return polars.concat([frame for _, frame in found])


def test_the_most_probable_classes_stand_in_columns_of_their_own() -> None:
    found = answers_of([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.1, 0.1, 0.8]], top=2)
    assert found["class_1"].to_list() == ["b", "a", "c"] == found["class"].to_list()
    assert found["class_2"].to_list() == ["c", "c", "a"]
    np.testing.assert_allclose(found["probability_2"], [0.3, 0.4, 0.1], rtol=1e-6)
    assert found.columns == [
        "class",
        "probability",
        "class_1",
        "probability_1",
        "class_2",
        "probability_2",
        "embedding",
    ]
    with pytest.raises(InputError, match="--top 4 of 3 classes"):
        answers_of([[0.2, 0.5, 0.3]], top=4)


@pytest.mark.parametrize(
    ("thresholds", "classes", "probabilities"),
    [
        (["0.5"], ["b", None, "c"], [0.6, 0.4, 0.8]),
        (["a=0.2"], ["a", "a", "c"], [0.3, 0.4, 0.8]),
        (["b=0.7"], ["a", "a", "c"], [0.3, 0.4, 0.8]),
        (["a=0.05", "b=0.6"], ["a", "a", "a"], [0.3, 0.4, 0.1]),
        (["a=0.35", "b=0.35", "c=0.9"], ["b", "a", None], [0.6, 0.4, 0.8]),
        (["a=0", "0.35"], [None, "a", None], [0.3, 0.4, 0.1]),
    ],
)
def test_thresholds_give_a_class_or_none(thresholds: list[str], classes: list[Any], probabilities: list[float]) -> None:
    """One class is given from its threshold on; of several the one that is most above; others only where none of these is."""
    found = answers_of([[0.3, 0.6, 0.1], [0.4, 0.2001, 0.3999], [0.1, 0.1, 0.8]], thresholds=thresholds)
    assert found["class"].to_list() == classes
    np.testing.assert_allclose(found["probability"], probabilities, atol=1e-6)


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ("1.5", "no probability from 0 to 1"),
        ("a=x", "no probability"),
        ("nan", "no probability"),
        ("d=0.5", "no class"),
    ],
)
def test_thresholds_that_mean_nothing_are_refused(threshold: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        answers_of([[0.2, 0.5, 0.3]], thresholds=[threshold])


def test_types_of_a_graph_without_any_are_refused(trained: Any, tmp_path: Path) -> None:
    pipeline, store, _ = trained
    with pytest.raises(InputError, match=r"no node type 'user'\n.*its nodes have no types"):
        predict_table(store, pipeline, "sage", tmp_path / "a.parquet", types=["user"])


def test_classes_that_are_numbers_stay_numbers() -> None:
    assert class_column(["0", "7", "-3"]).to_list() == [0, 7, -3]
    for texts in (["0", "01"], ["1", "b"], ["+1"], ["1.5"], ["1" * 25], []):
        assert class_column(texts).to_list() == texts and class_column(texts).dtype == polars.String
