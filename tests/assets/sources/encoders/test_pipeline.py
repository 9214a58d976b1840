"""A shop whose tables have texts, categories, dates and gaps is built, trained and predicted on customers that came later."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.building.materialize import stage_version
from graphmill.assets.features.config import features_config
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.pipelines.checked import report_pipeline
from graphmill.kernels.errors import InputError, each_mistake
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config

CUSTOMERS, NEW, ITEMS = 240, 30, 60
RECIPE = """\
[graph]
source = "tables"
reverse_types = "own"

[graph.nodes.customer]
path = "customers.FORM"
features = ["age", "income", "city", "joined", "note"]
label_column = "segment"
labels = "names"
split_column = "part"
encode = { note = { encoder = "text", buckets = 16 }, age = { encoder = "standard", missing = "flag" } }

[graph.nodes.item]
path = "items.FORM"
features = ["price", "kind"]

[graph.edges.buys]
path = "buys.FORM"
source_type = "customer"
target_type = "item"

[features.encode]
income = "log"
city = { encoder = "onehot", least = 10 }
price = "rank"
"*" = "auto"

[sampling]
fanouts = [5, 5]
batch_size = 64

[[train]]
name = "rgcn"
model = "rgcn"
input = "typed"
hidden = 16
epochs = 12
lr = 0.02
"""


def frames() -> dict[str, pl.DataFrame]:
    """Customers whose segment shows in city, note and date; the last ones are new: no label, unknown cities, gaps."""
    rng, rows = np.random.default_rng(0), CUSTOMERS + NEW
    segment = rng.integers(0, 3, rows)
    cities = np.array(["Bern", "Rom", "Wien"])[np.where(rng.random(rows) < 0.8, segment, rng.integers(0, 3, rows))]
    cities[rng.integers(0, CUSTOMERS, 5)] = "Lugano"
    cities[CUSTOMERS:][::3] = "Atlantis"
    part = rng.choice(["train", "valid", "test"], rows, p=[0.6, 0.2, 0.2]).tolist()
    notes = np.array(["likes red shoes", "wants cheap tools", "reads old books"])[segment]
    years = [datetime.date(2020 + int(each), 1, 1) for each in segment]
    days = [datetime.timedelta(days=int(each)) for each in rng.integers(0, 360, rows)]
    return {
        "customers": pl.DataFrame(
            {
                "id": [f"c{row:04d}" for row in range(rows)],
                "age": [None if row % 11 == 0 else float(row % 70) for row in range(rows)],
                "income": np.exp(rng.normal(size=rows) + 8),
                "city": cities,
                "joined": [year + day for year, day in zip(years, days, strict=True)],
                "note": notes,
                "segment": [f"s{each}" for each in segment[:CUSTOMERS]] + [None] * NEW,
                "part": part[:CUSTOMERS] + [None] * NEW,
            }
        ),
        "items": pl.DataFrame(
            {"id": np.arange(ITEMS), "price": rng.random(ITEMS) * 50, "kind": rng.choice(["a", "b"], ITEMS)}
        ),
        "buys": pl.DataFrame(
            {"src": [f"c{each:04d}" for each in rng.integers(0, rows, 900)], "dst": rng.integers(0, ITEMS, 900)}
        ),
    }


def load(
    folder: Path, form: str = "parquet", recipe: str = RECIPE, tables: dict[str, pl.DataFrame] | None = None
) -> Pipeline:
    for name, frame in (tables or frames()).items():
        (frame.write_parquet if form == "parquet" else frame.write_csv)(folder / f"{name}.{form}")
    (folder / "shop.toml").write_text(recipe.replace("FORM", form))
    return load_pipeline(folder / "shop.toml", TrainTable, files=True)


def build(folder: Path, pipeline: Pipeline, threads: int = 2):
    (config,) = FEATURES.configs(pipeline).values()
    return build_config(folder / "home", pipeline.graph, threads=threads, table=config.table)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_tables_as_they_are_are_trained_and_new_rows_predicted(tmp_path: Path, form: str) -> None:
    pipeline, store = load(tmp_path, form), Store(tmp_path / "home")
    report, errors = report_pipeline(pipeline, store.home)
    assert not errors and report is not None
    assert any(
        "age standard, income log, city onehot, joined auto, note text" in line for line in report.survey.contents
    )
    built = build(tmp_path, pipeline)
    assert built.table.width <= report.survey.num_features
    encoders = json.loads((built.features.path / "encoders.json").read_text(encoding="utf-8"))
    assert {name: [each["encoder"] for each in columns] for name, columns in encoders.items()} == {
        "customer": ["standard", "log", "onehot", "time", "text"], "item": ["rank", "onehot"],
    }  # fmt: skip
    assert encoders["customer"][2]["columns"] == ["city = Bern", "city = Rom", "city = Wien", "city = other"]
    assert pipeline.sampling is not None
    train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    predict_table(store, pipeline, "rgcn", out := tmp_path / "found.parquet")
    found = pl.read_parquet(out).filter(pl.col("node_type") == "customer").sort("node_id")
    wanted = np.random.default_rng(0).integers(0, 3, CUSTOMERS + NEW)[CUSTOMERS:]
    right = [name == f"s{each}" for name, each in zip(found["class"][CUSTOMERS:], wanted, strict=True)]
    assert sum(right) > 0.8 * NEW


def test_threads_and_the_form_of_the_tables_change_no_byte(tmp_path: Path) -> None:
    found = []
    for form, threads in (("parquet", 1), ("parquet", 2), ("csv", 2)):
        (folder := tmp_path / f"{form}-{threads}").mkdir()
        built = build(folder, load(folder, form), threads)
        found.append({name: (built.features.path / name).read_bytes() for name in ("rows.npy", "encoders.json")})
    assert found[0] == found[1] == found[2]


def test_other_labels_and_other_test_rows_change_no_fitted_number(tmp_path: Path) -> None:
    """With a column of splits labels do not decide the fit, and the version of the features does not depend on them."""
    tables, found, versions = frames(), [], []
    held_out = pl.col("part").is_null() | (pl.col("part") != "train")
    changes = {
        "none": {},
        "labels": {"segment": pl.col("segment").replace("s0", "s1")},
        "test rows": {"income": pl.when(held_out).then(pl.lit(1e9)).otherwise("income"),
                      "city": pl.when(held_out).then(pl.lit("Ur")).otherwise("city")},
        "split": {"part": pl.col("part").replace("test", "train")},
    }  # fmt: skip
    for name, change in changes.items():
        (folder := tmp_path / name).mkdir()
        pipeline = load(folder, tables={**tables, "customers": tables["customers"].with_columns(**change)})
        (config,) = FEATURES.configs(pipeline).values()
        versions.append(stage_version(FEATURES, config, {}))
        found.append((build(folder, pipeline).features.path / "encoders.json").read_text())
    assert found[0] == found[1] == found[2] != found[3]
    assert versions[0] == versions[1] and len({versions[0], *versions[2:]}) == 3


def test_a_drawn_split_is_that_of_the_graph(tmp_path: Path) -> None:
    recipe = RECIPE.replace('split_column = "part"\n', "").replace(
        "encode = { note", 'encode = { income = "standard", note'
    )
    built = build(tmp_path, load(tmp_path, recipe=recipe))
    train = built.graph.array("train_ids")
    (income,) = (
        each
        for each in json.loads((built.features.path / "encoders.json").read_text())["customer"]
        if each["column"] == "income"
    )
    values = frames()["customers"]["income"].to_numpy()[train]
    assert income["fitted"] == {
        "mean": pytest.approx(values.mean(), rel=1e-12),
        "scale": pytest.approx(values.std(), rel=1e-12),
    }


def test_tables_of_edges_and_nodes_are_encoded_too(tmp_path: Path) -> None:
    table, rng = frames()["customers"], np.random.default_rng(1)
    table = table.with_columns(pl.Series("id", rng.permutation(len(table))), pl.col("age").fill_null(0))
    table.write_parquet(tmp_path / "n.parquet")
    pl.DataFrame({"src": rng.integers(0, 270, 500), "dst": rng.integers(0, 270, 500)}).write_parquet(
        tmp_path / "e.parquet"
    )
    (tmp_path / "p.toml").write_text("""
[graph]
source = "edges"
edges = "e.parquet"
nodes = "n.parquet"
features = ["age", "city"]
label_column = "segment"
labels = "names"
split_column = "part"
[features]
encode = { city = "onehot" }
[features.scaled]
columns = "age"
encode = "auto"
""")
    pipeline = load_pipeline(tmp_path / "p.toml")
    plain, scaled = (
        build_config(tmp_path / "home", pipeline.graph, table=each.table)
        for each in FEATURES.configs(pipeline).values()
    )
    ordered = table.sort("id")
    rows = plain.features.array("rows")
    assert np.array_equal(rows[:, 0], ordered["age"]) and np.array_equal(rows[:, 1:].sum(axis=1), np.ones(270))
    train = ordered.filter(pl.col("part") == "train")["age"].to_numpy()
    np.testing.assert_allclose(
        scaled.features.array("rows")[:, 0],
        (ordered["age"].to_numpy() - train.mean()) / train.std(),
        rtol=1e-6,
        atol=1e-6,
    )
    survey, errors = report_pipeline(pipeline, tmp_path / "home")
    assert not errors and survey is not None and survey.survey.num_features >= rows.shape[1]


def test_without_encode_versions_stay(tmp_path: Path) -> None:
    recipe = RECIPE.replace('["age", "income", "city", "joined", "note"]', '"income"').replace(
        '["price", "kind"]', '"price"'
    )
    recipe = "\n".join(line for line in recipe.splitlines() if not line.startswith("encode ="))
    begin, end = recipe.index("[features.encode]"), recipe.index("[sampling]")
    encoded, plain = (load(tmp_path, recipe=each) for each in (recipe, recipe[:begin] + recipe[end:]))
    assert stage_version(GRAPH, encoded.graph, {}) == stage_version(GRAPH, plain.graph, {})
    one, two = (features_config(each.graph, TableConfig()) for each in (encoded, plain))
    assert stage_version(FEATURES, one, {}) == stage_version(FEATURES, two, {})
    assert "encode" not in json.dumps(two.read)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('income = "log"', 'incom = "log"', "[features]: encode names 'incom'"),
        ('income = "log"', 'income = "lag"', "encode.income: 'lag' is not one of"),
        ('"standard", missing = "flag"', '"standard"', "column 'age' is empty"),
        ('age = { encoder = "standard"', 'aga = { encoder = "standard"', "[graph.nodes.customer]: encode names 'aga'"),
        ('"note"]', '"note", "segment"]', "is the label_column"),
        ('price = "rank"', 'price = "text"', "column 'price' is DOUBLE, and text encodes text"),
        ('features = ["price", "kind"]', 'encode = "auto"', "encode needs `features`"),
    ],
)
def test_validate_tells_mistakes(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in RECIPE
    try:
        errors = report_pipeline(load(tmp_path, recipe=RECIPE.replace(old, new)), tmp_path / "home")[1]
    except InputError as error:
        errors = [error]
    assert any(words in each.problem for error in errors for each in each_mistake(error)), errors


def test_a_type_without_training_nodes_in_its_split_is_refused(tmp_path: Path) -> None:
    tables = frames()
    tables["customers"] = tables["customers"].with_columns(pl.col("part").replace("train", "test"))
    with pytest.raises(InputError, match="no row is a training row"):
        build(tmp_path, load(tmp_path, tables=tables))
