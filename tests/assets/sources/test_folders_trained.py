"""A folder of tables from `graphmill new --from` to predictions without an edit: as right as scikit-learn on the table's own columns."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests import forks
from tests.assets.sources.folders import FOLDERS

IN_SUITE = "social"
SLACK = 0.03
"""Share of the test nodes by which a model may be worse."""


@pytest.mark.parametrize(
    "name",
    [
        name if name == IN_SUITE else pytest.param(name, marks=pytest.mark.slow("all folders of tables are trained"))
        for name in FOLDERS
    ],
)
def test_a_folder_of_tables_is_trained_and_predicted_as_it_stands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, column = FOLDERS[name](tmp_path, np.random.default_rng(2))
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GRAPHMILL_PIPELINES", raising=False)
    command(tmp_path, "new", "mine", "--from", ".")
    recipe = tomllib.loads((tmp_path / "pipelines/mine.toml").read_text())
    command(tmp_path, "run", "mine")
    model = recipe["train"][0]["name"]
    command(tmp_path, "predict", "mine", model, "--out", "found.parquet")
    keys = recipe["graph"]["nodes"][table]
    nodes = read(tmp_path / "pipelines" / keys["path"])
    truth = nodes.select(pl.col(keys["id_column"]).cast(pl.String), pl.col(column).cast(pl.String))
    truth = truth.filter(~pl.col(column).is_in(keys.get("no_label", [])))
    found = pl.read_parquet(tmp_path / "found.parquet")
    joined = truth.join(
        found.with_columns(pl.col("node_id").cast(pl.String)), left_on=keys["id_column"], right_on="node_id"
    )
    tested = joined.filter(pl.col("split") == "test").drop_nulls(column)
    right = (tested[column] == tested["class"].cast(pl.String)).mean()
    train = joined.filter(pl.col("split") == "train").drop_nulls(column)
    assert right is not None and len(tested) > 20
    assert right >= of_columns(nodes, keys, column, train, tested) - SLACK


def command(folder: Path, *words: str) -> None:
    done = forks.run(["-c", "from graphmill.jobs.cli import main; main()", *words], cwd=folder, imports=forks.COMMANDS)
    assert done.returncode == 0, done.stderr


def read(path: Path) -> pl.DataFrame:
    if path.is_dir():
        return pl.read_parquet(path / "*.parquet")
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    return pl.read_csv(path, separator={".tsv": "\t"}.get(path.suffix, ";" if ";" in path.open().readline() else ","))


def of_columns(
    nodes: pl.DataFrame, keys: dict[str, Any], column: str, train: pl.DataFrame, tested: pl.DataFrame
) -> float:
    """Returns the accuracy of a scikit-learn model on the table's own columns, encoded by hand: numbers, categories, words."""
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    parts = []
    for name in set(nodes.columns) - {column, keys["id_column"]}:
        values = nodes[name]
        if values.dtype.is_temporal():
            values = values.to_physical()
        if values.dtype == pl.String and values.n_unique() > 40:
            parts.append(text.TfidfVectorizer().fit_transform(values.to_list()).toarray())
        elif values.dtype == pl.String:
            parts.append(values.to_frame().to_dummies().to_numpy())
        else:
            numbers = values.cast(pl.Float64).fill_null(values.cast(pl.Float64).mean()).to_numpy()
            parts.append(((numbers - numbers.mean()) / (numbers.std() or 1))[:, None])
    rows = np.concatenate(parts, axis=1)
    place = {str(key): number for number, key in enumerate(nodes[keys["id_column"]].to_list())}
    trained, asked = ([place[key] for key in frame[keys["id_column"]]] for frame in (train, tested))
    model = linear.LogisticRegression(max_iter=1000).fit(rows[trained], train[column].to_list())
    return float(model.score(rows[asked], tested[column].to_list()))
