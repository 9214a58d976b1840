"""Texts become rows by a function of the user's; and encoders of one graph encode the tables of another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import graphmill
from graphmill.assets.building.materialize import stage_version
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.sources.encoders.encoded import encode
from tests.assets.sources.encoders.test_pipeline import CUSTOMERS, RECIPE, build, frames, load

MODULE = """
import numpy as np

BATCHES = []

def embed(texts):
    BATCHES.append(len(texts))
    return np.array([[len(text), len(text.encode()), text.count("a")] for text in texts], np.float32)

def wide(texts):
    return np.zeros((len(texts), 4))

def named(texts):
    return texts

def broken(texts):
    raise ValueError("no model")

number = 3
"""
TEXTS = ["abba", "", "größe", "日本", "a" * 5000, " blank "]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module on Python's path."""
    name = f"own_texts_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def rule(module: str, function: str = "embed", **more: object) -> dict[str, object]:
    return {"encoder": "embedding", "function": f"{module}:{function}", "width": 3, **more}


def expected(texts: list[str]) -> list[list[float]]:
    return [[len(text), len(text.encode()), text.count("a")] for text in texts]


@pytest.mark.parametrize("files", [1, 3])
def test_rows_are_those_of_the_function(module: str, files: int) -> None:
    found = encode(pl.DataFrame({"t": TEXTS, "n": range(6)}), {"t": rule(module)}, features=("n", "t"), files=files)
    assert found.rows[:, 1:].tolist() == expected(TEXTS) and found.rows[:, 0].tolist() == [*range(6)]
    assert found.names == ["n", "t[0]", "t[1]", "t[2]"] and found.fitted["t"] == {}


def test_text_files_have_the_same_rows(module: str) -> None:
    texts = ["abba", "größe", "a, b", '"quoted" a']
    assert encode(pl.DataFrame({"t": texts}), {"t": rule(module)}, form="csv").rows.tolist() == expected(texts)


def test_gaps_are_zeros_and_do_not_reach_the_function(module: str) -> None:
    frame = pl.DataFrame({"t": ["ab", None, "", None]})
    found = encode(frame, {"t": rule(module, missing="flag")})
    assert found.rows.tolist() == [[2, 2, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]]
    with pytest.raises(InputError, match="column 't' is empty"):
        encode(frame, {"t": rule(module)})


def test_the_function_is_called_in_batches(module: str) -> None:
    texts = [f"text {row}" for row in range(200_000)]
    rows = encode(pl.DataFrame({"t": texts}), {"t": rule(module)}).rows
    assert rows[:, 0].tolist() == [len(text) for text in texts]
    batches = __import__(module).BATCHES
    assert sum(batches) == len(texts) and max(batches) <= (8 << 20) // (3 * 8 * 4)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("wide", r"returned float64\[2, 4\]"),
        ("named", "returned <U4"),
        ("broken", "failed: ValueError: no model"),
        ("number", "is int, not a function"),
        ("embde", "has no embde"),
    ],
)
def test_other_results_are_refused(module: str, function: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        encode(pl.DataFrame({"t": TEXTS}), {"t": rule(module, function)})


def recipe(width: int = 3) -> str:
    old = '{ encoder = "text", buckets = 16 }'
    assert old in RECIPE
    return RECIPE.replace(old, f'{{ encoder = "embedding", function = "notes_of_shop:embed", width = {width} }}')


def version(pipeline) -> str:
    (config,) = FEATURES.configs(pipeline).values()
    return stage_version(FEATURES, config, {})


def test_the_module_stands_beside_the_pipeline_and_decides_the_version(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no module notes_of_shop"):
        load(tmp_path, recipe=recipe())
    source = tmp_path / "notes_of_shop.py"
    source.write_text(MODULE)
    pipeline = load(tmp_path, recipe=recipe())
    first = version(pipeline)
    notes = build(tmp_path, pipeline).features.array("rows")[:, -3:]
    rows = frames()["customers"]["note"].to_list()
    assert notes[: len(rows)].tolist() == expected(rows)
    assert version(load(tmp_path, recipe=recipe())) == first
    assert version(load(tmp_path, recipe=recipe(4))) != first
    source.write_text(MODULE + "# changed\n")
    assert version(load_pipeline(tmp_path / "shop.toml", TrainTable)) != first


def test_encoders_of_a_graph_encode_the_tables_of_another(tmp_path: Path) -> None:
    features = build(tmp_path, load(tmp_path)).features
    rows, (numbers,) = features.array("rows"), [features.summary["numbers"]]
    width = numbers["type_columns"][0]
    customers = frames()["customers"]
    again = graphmill.encode(features, tmp_path / "customers.parquet", node_type="customer")
    assert again.dtype == np.float32 and np.array_equal(again, rows[: len(customers), :width])
    customers[CUSTOMERS:].drop("segment", "part").write_csv(tmp_path / "later.csv")
    later = graphmill.encode(features, tmp_path / "later.csv", node_type="customer")
    assert np.array_equal(later, again[CUSTOMERS:])
    with pytest.raises(InputError, match=r"no encoders of 'customers' .did you mean 'customer'"):
        graphmill.encode(features, tmp_path / "later.csv", node_type="customers")
    customers.drop("age").write_parquet(tmp_path / "less.parquet")
    with pytest.raises(InputError, match="has no column 'age'"):
        graphmill.encode(features, tmp_path / "less.parquet", node_type="customer")
