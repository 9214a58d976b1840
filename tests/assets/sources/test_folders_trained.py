"""A folder of tables from `graphmill new --from` to predictions without an edit: as right as scikit-learn with the graph's gain."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests import forks
from tests.assets.sources.folder_scores import known_scores, read_table
from tests.assets.sources.folders import FOLDERS, Folder
from tests.docs.own_data_page import printed_scores

IN_SUITE = "social"
SLACK = 0.03
"""Share of the test nodes by which a model may be worse than the linear one, or better than the best one, which is not of these nodes."""
PRINTED = 0.02
"""Share of the test nodes by which the page may differ: sums of other machines have other last bits."""


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
    """The linear model has the same split, columns that are encoded by hand, and their means over neighbours."""
    pytest.importorskip("sklearn")
    folder = FOLDERS[name](tmp_path, np.random.default_rng(2))
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GRAPHMILL_PIPELINES", raising=False)
    command(tmp_path, "new", "mine", "--from", ".")
    recipe = tomllib.loads((tmp_path / "pipelines/mine.toml").read_text())
    command(tmp_path, "run", "mine")
    command(tmp_path, "predict", "mine", recipe["train"][0]["name"], "--out", "found.parquet")
    places, right = answered(folder, tmp_path)
    known = known_scores(folder, tmp_path, places)
    assert len(places["test"]) >= 200 and known.columns + SLACK < known.graph <= known.best + SLACK
    assert known.graph - SLACK <= right <= known.best + SLACK
    assert [*known, right] == pytest.approx(printed_scores()[name], abs=PRINTED)


def answered(folder: Folder, path: Path) -> tuple[dict[str, np.ndarray], float]:
    """Returns the rows of each part of the split, by what `predict` wrote, and the share of the test rows that it has right."""
    table = read_table(path, folder.table)
    rows = table.select(pl.col(table.columns[0]).cast(pl.String).alias("node_id")).with_row_index("row")
    found = pl.read_parquet(path / "found.parquet").with_columns(pl.col("node_id", "class", "label").cast(pl.String))
    joined = rows.join(found, on="node_id")
    assert len(found) == len(joined) == len(rows)
    parts = {part: joined.filter(pl.col("split") == part) for part in ("train", "valid", "test")}
    tested = parts["test"]
    assert tested["label"].to_list() == table[folder.column].cast(pl.String)[tested["row"]].to_list()
    return {part: each["row"].to_numpy() for part, each in parts.items()}, float(
        (tested["class"] == tested["label"]).mean()
    )  # pyright: ignore


def command(folder: Path, *words: str) -> None:
    done = forks.run(["-c", "from graphmill.jobs.cli import main; main()", *words], cwd=folder, imports=forks.COMMANDS)
    assert done.returncode == 0, done.stderr
