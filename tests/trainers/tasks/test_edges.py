"""Labels of edges: from the tables to the stored graph, the loss, a training and its predictions, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.splits import PARTS
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.models.layer import initialise
from graphmill.trainers.models.links.heads import link_head
from graphmill.trainers.models.links.losses import LabelLoss
from graphmill.trainers.models.loss import CrossEntropy, TargetError
from graphmill.trainers.recipe.architecture import LABEL_HEADS, LinkHeadName
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe

USERS, ITEMS, EDGES = 40, 15, 1500
ROWS = {"name": "rows", "model": "rows", "layers": 1, "hidden": 32, "epochs": 30, "lr": 0.02, "threads": 1}
SAMPLING = {"fanouts": [1], "batch_size": 256}


def made(seed: int) -> pl.DataFrame:
    """Ratings with copies: the class and the number follow from the two ends; an eighth has neither."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, USERS, EDGES), rng.integers(0, ITEMS, EDGES)
    number, lacks = (user % 5 - item % 3) * 1.5, rng.random(EDGES) < 0.125
    word = pl.Series([["poor", "fair", "good"][(u + i) % 3] for u, i in zip(user, item, strict=True)])
    frame = pl.DataFrame(
        {"user": user, "item": item, "number": number, "word": word, "day": rng.integers(0, 99, EDGES)}
    )
    gone = pl.Series(lacks)
    parts = pl.Series([PARTS[(7 * u + i) % 3] for u, i in zip(user, item, strict=True)])
    gaps = [pl.when(~gone).then(pl.col(name)).alias(name) for name in ("number", "word")]
    return frame.with_columns(*gaps, part=parts)


def written(folder: Path, frame: pl.DataFrame, source: str, form: str, **keys: Any) -> dict[str, Any]:
    """Writes the tables in a form, and returns [graph]; keys are those of the edge table."""
    write = {"csv": pl.DataFrame.write_csv, "parquet": pl.DataFrame.write_parquet}[form]
    if source == "edges":
        frame = frame.with_columns(item=pl.col("item") + USERS)
    write(frame, folder / f"rated.{form}")
    ends = {"source_column": "user", "target_column": "item"}
    if source == "edges":
        return {"source": "edges", "edges": f"rated.{form}", "num_nodes": USERS + ITEMS} | ends | keys
    nodes = {"user": {"num_nodes": USERS}, "item": {"num_nodes": ITEMS}}
    rated = {"path": f"rated.{form}", "source_type": "user", "target_type": "item"} | ends | keys
    return {"source": "tables", "reverse_types": "own", "nodes": nodes, "edges": {"rated": rated}}


def opened(folder: Path, graph: dict[str, Any], task: dict[str, Any], **table: Any) -> Any:
    """The pipeline, its store and the built graph."""
    path = folder / "mine.toml"
    path.write_text(recipe(ROWS | table, graph=graph, sampling=SAMPLING, task=task))
    pipeline, store = load_pipeline(path, TrainTable), Store(folder / "home")
    return pipeline, store, build_config(store.home, pipeline.graph, threads=1)


@pytest.mark.parametrize("split", ["random", "time", "given"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("source", ["tables", "edges"])
@pytest.mark.parametrize("kind", ["edge_classes", "edge_regression"])
def test_each_labelled_edge_is_stored_with_its_label_and_those_of_one_link_in_one_part(
    tmp_path: Path, kind: str, source: str, form: str, split: str
) -> None:
    frame, column = made(len(split)), "word" if kind == "edge_classes" else "number"
    keys = {"label_column": column} | {"time": {"time_column": "day"}, "given": {"split_column": "part"}}.get(split, {})
    graph = opened(tmp_path, written(tmp_path, frame, source, form, **keys), {"kind": kind, "split": split})[2].opened
    links, names = graph.links, ["fair", "good", "poor"]
    assert graph.task == kind and list(graph.class_names) == (names if kind == "edge_classes" else ["number"])
    labels = [names[each] for each in links.labels] if kind == "edge_classes" else links.labels[:, 0].tolist()
    found = sorted(zip(links.source.tolist(), (links.target - USERS).tolist(), labels, strict=True))
    known = frame.drop_nulls("word")
    assert found == sorted(zip(known["user"], known["item"], known[column], strict=True))
    part = dict[tuple[int, int], set[int]]()
    for u, i, each in zip(links.source.tolist(), (links.target - USERS).tolist(), links.split.tolist(), strict=True):
        part.setdefault((u, i), set()).add(each)
    assert all(len(each) == 1 for each in part.values())
    if split == "given":
        assert all(PARTS[min(each)] == PARTS[(7 * u + i) % 3] for (u, i), each in part.items())
    topology = graph.topology
    targets = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    stored = set(zip(topology.indices.tolist(), targets.tolist(), strict=True))
    held_out = {ends for ends, each in part.items() if each != {0}}
    assert not {(u, USERS + i) for u, i in held_out} & stored
    everything = set(zip(frame["user"].to_list(), frame["item"].to_list(), strict=True))
    assert {(u, USERS + i) for u, i in everything - held_out} <= stored  # those without a label, too


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 99),
    st.sampled_from(["edge_classes", "edge_regression"]),
    st.sampled_from(LABEL_HEADS),
    st.sampled_from([0.0, 0.3]),
)
def test_the_loss_of_a_batch_is_that_of_its_edges(seed: int, kind: str, name: LinkHeadName, penalty: float) -> None:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    classes, count = kind == "edge_classes", int(rng.integers(1, 9))
    labels = rng.integers(0, 3, 20).astype(np.int32) if classes else rng.normal(3, 2, (20, 1)).astype(np.float32)
    edges = EdgeSeeds(source=rng.integers(0, 9, 20), target=rng.integers(9, 15, 20), labels=labels)
    chosen = rng.permutation(20)[:count]
    batch = edges.batch(BatchKey(Stream.TRAIN, 0, 0), chosen)
    head = link_head(name, 4, outputs=3 if classes else 1).double()
    initialise(head, seed)
    of_all = torch.randn(15, 4, generator=generator, dtype=torch.float64)
    mean, deviation = torch.tensor([3.0]).double(), torch.tensor([2.0]).double()
    inner = CrossEntropy() if classes else TargetError(mean, deviation)
    rows = of_all[torch.from_numpy(batch.nodes)].requires_grad_()
    loss = LabelLoss(inner, torch.int32 if classes else torch.float32, head, penalty)(
        rows, torch.from_numpy(batch.scored)
    )
    loss.backward()
    gradient, expected = torch.zeros_like(of_all), of_all.clone().requires_grad_()
    gradient[torch.from_numpy(batch.nodes)] = rows.grad
    u, v = (torch.from_numpy(each[chosen]) for each in (edges.source, edges.target))
    of_source, of_target = head.source(expected[u]), head.target(expected[v])
    outputs = (
        head.label(torch.relu(of_source + of_target))
        if name == "label"
        else head.label(expected[u] * expected[v]) + of_source + of_target
    )
    given_ones = torch.from_numpy(labels[chosen])
    if classes:
        reference = functional.cross_entropy(outputs, given_ones.long(), reduction="sum")
    else:
        reference = functional.mse_loss(outputs, (given_ones.double() - mean) / deviation, reduction="sum")
    reference = reference + penalty / 2 * (expected[u] ** 2 + expected[v] ** 2).sum()
    reference.backward()
    assert abs(loss.item() - reference.item()) < 1e-10
    torch.testing.assert_close(gradient, expected.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("kind", "column", "keys"),
    [
        ("edge_classes", "word", {}),
        ("edge_regression", "number", {}),
        ("edge_regression", "number", {"link_head": "product", "row_penalty": 1e-4}),
    ],
)
def test_a_model_learns_the_labels_of_edges_and_writes_a_row_for_each(
    tmp_path: Path, kind: str, column: str, keys: dict[str, Any]
) -> None:
    graph = written(tmp_path, made(0), "tables", "parquet", label_column=column)
    pipeline, store, built = opened(tmp_path, graph, {"kind": kind}, **keys)
    (model,) = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    numbers, checks = model.summary["numbers"], {each["name"]: each for each in model.summary["checks"]}
    assert numbers["test_accuracy" if kind == "edge_classes" else "test_r2"] > 0.9
    assert all(each["passed"] for each in checks.values()), checks
    assert any(
        f"{built.inputs['graph'].summary['numbers']['num_valid_links']} edges" in c["detail"] for c in checks.values()
    )
    out = tmp_path / "out.parquet"
    _, count = predict_table(store, pipeline, "rows", out)
    table = pl.read_parquet(out)
    assert count == len(table) == made(0)["word"].drop_nulls().len()
    assert set(table["split"]) == {"train", "valid", "test"} and set(table["relation"]) == {"user/rated/item"}
    test = table.filter(pl.col("split") == "test")
    if kind == "edge_classes":
        assert (test["class"] == test["label"]).mean() == numbers["test_accuracy"]
        predict_table(store, pipeline, "rows", out, columns=Columns(probabilities=True, top=2))
        assert {"probabilities", "class_1", "class_2"} < set(pl.read_parquet(out).columns)
    else:
        assert (test["prediction"] - test["label"]).abs().mean() == pytest.approx(numbers["test_mae"], rel=1e-5)
    pairs = table.select("source", "target", "relation").head(7)
    pairs.write_parquet(tmp_path / "pairs.parquet")
    predict_table(store, pipeline, "rows", out, pairs=tmp_path / "pairs.parquet")
    own = [name for name in ("class", "probability", "prediction") if name in table.columns]
    assert pl.read_parquet(out).equals(table.head(7).select("source", "target", *own))
    for more in (
        {"nodes": tmp_path / "pairs.parquet"},
        {"types": ["user"]},
        {"evaluation": "sampled"},
        {"relations": ["rated"]},
    ):
        with pytest.raises(InputError, match="of a model that predicts labels of edges"):
            predict_table(store, pipeline, "rows", out, **more)


def test_a_label_that_changes_makes_another_graph(tmp_path: Path) -> None:
    def version(frame: pl.DataFrame) -> str:
        graph = written(tmp_path, frame, "edges", "parquet", label_column="word")
        return opened(tmp_path, graph, {"kind": "edge_classes"})[2].inputs["graph"].version

    frame = made(1)
    other = frame.with_columns(word=pl.col("word").reverse())
    assert version(frame) == version(frame.with_columns(number=pl.col("number") + 1)) != version(other)


@pytest.mark.parametrize("source", ["tables", "edges"])
@pytest.mark.parametrize(
    ("kind", "column", "value", "said"),
    [
        ("edge_regression", "number", "many", r"row 8\b.*column 'number'.*not a finite number"),
        ("edge_regression", "number", "inf", r"row 8\b.*column 'number'.*not a finite number"),
        ("edge_regression", "number", "1e39", r"row 8\b.*column 'number'.*not a finite number"),
        ("edge_regression", "numbers", "", "column 'numbers'"),
        ("edge_classes", "words", "", "column 'words'"),
    ],
)
def test_a_wrong_label_is_told_with_its_row(
    tmp_path: Path, source: str, kind: str, column: str, value: str, said: str
) -> None:
    frame = made(2).with_columns(number=pl.col("number").cast(pl.String))
    if value:
        changed = pl.when(pl.int_range(pl.len()) == 8).then(pl.lit(value)).otherwise(pl.col("number"))
        frame = frame.with_columns(number=changed)
    graph = written(tmp_path, frame, source, "csv", label_column=column)
    with pytest.raises(InputError, match=said):
        opened(tmp_path, graph, {"kind": kind})


def test_columns_without_labels_or_with_too_many_classes_are_refused(tmp_path: Path) -> None:
    frame = made(3).with_columns(none=pl.lit(None, pl.String), many=pl.int_range(pl.len()) + 1000)
    for column, said in (
        ("none", "no edge of a predicted relation has a label"),
        ("many", "more than 256 classes of edges"),
    ):
        with pytest.raises(InputError, match=said):
            opened(
                tmp_path, written(tmp_path, frame, "tables", "parquet", label_column=column), {"kind": "edge_classes"}
            )


LABELLED = {"label_column": "word"}
MISTAKES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "no column": ({}, {}, {}, {}, "learns labels of edges: name their column"),
    "a head of links": (LABELLED, {}, {"link_head": "dot"}, {}, 'link_head = "dot" is not a head of'),
    "a metric of numbers": (LABELLED, {}, {"metric": "r2"}, {}, "is not a metric of"),
    "an error of classes": (LABELLED, {}, {"error": "huber"}, {}, "error = 'huber' is for .*edge_regression"),
    "a penalty below 0": (LABELLED, {}, {"row_penalty": -1.0}, {}, "row_penalty"),
    "a loss of links": (LABELLED, {}, {"link_loss": "margin"}, {}, "link_loss = 'margin' is for"),
    "negatives": (LABELLED, {}, {}, {"per_positive": 3}, "per_positive = 3 is for"),
    "candidates": (LABELLED, {"uniform_candidates": 9}, {}, {}, "uniform_candidates is a key of links"),
    "a sampled evaluation": (LABELLED, {}, {"eval": "sampled"}, {}, "reads the rows of all nodes"),
    "times": (LABELLED, {"split": "time"}, {}, {}, "gives the edges no times"),
}


@pytest.mark.parametrize("source", ["tables", "edges"])
@pytest.mark.parametrize("name", MISTAKES)
def test_keys_that_do_not_fit_are_told_when_a_file_is_checked(tmp_path: Path, name: str, source: str) -> None:
    keys, task, table, sampling, said = MISTAKES[name]
    graph = written(tmp_path, made(0), source, "parquet", **keys)
    text = recipe(ROWS | table, graph=graph, sampling=SAMPLING | sampling, task={"kind": "edge_classes"} | task)
    with pytest.raises(InputError, match=said):
        parse_pipeline(tmp_path / "mine.toml", text.encode(), TrainTable)


def test_labels_of_edges_beside_another_task_and_of_two_relations_are_refused(tmp_path: Path) -> None:
    graph = written(tmp_path, made(0), "tables", "parquet", label_column="word")
    both = graph | {"edges": graph["edges"] | {"seen": graph["edges"]["rated"]}}
    for tables, kind, said in (
        (graph, "links", "edges.rated.label_column has no effect"),
        (both, "edge_classes", "they would mix"),
    ):
        text = recipe({"name": "x"}, graph=tables, sampling={"fanouts": [2, 2], "batch_size": 64}, task={"kind": kind})
        with pytest.raises(InputError, match=said):
            parse_pipeline(tmp_path / "mine.toml", text.encode(), TrainTable)


def test_another_source_names_its_labels(tmp_path: Path) -> None:
    text = recipe(
        {"name": "x"}, graph={"source": "npz", "path": "graph.npz"}, sampling=SAMPLING, task={"kind": "edge_classes"}
    )
    with pytest.raises(InputError, match=r"source = 'npz' gives labels for .* alone"):
        parse_pipeline(tmp_path / "mine.toml", text.encode(), TrainTable)


def test_a_head_of_labels_is_not_one_of_links(tmp_path: Path) -> None:
    text = recipe(
        {"name": "x", "link_head": "label"},
        graph={"source": "npz", "path": "g.npz"},
        sampling=SAMPLING,
        task={"kind": "links"},
    )
    with pytest.raises(InputError, match='link_head = "label" is not a head of'):
        parse_pipeline(tmp_path / "mine.toml", text.encode(), TrainTable)
