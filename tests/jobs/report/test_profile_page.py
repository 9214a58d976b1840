"""The profile of tables as a page: every column with a chart of its own counts, texts escaped, and the section of a report."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.sources.folder.guess import guessed
from graphmill.assets.sources.profile.profile import MOST_BARS, column_bars
from graphmill.jobs.commands.options import Asked
from graphmill.jobs.report.profile_page import pipeline_profile, profile_page
from graphmill.kernels.errors import InputError
from tests.assets.sources.folders import FOLDERS
from tests.recipes import load_tiny, write_tiny


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    FOLDERS["purchases"](tmp_path, np.random.default_rng(1))
    return tmp_path


def test_a_folder_has_a_page_with_a_chart_for_each_column_that_has_one(shop: Path) -> None:
    users = pl.read_parquet(shop / "users.parquet")
    users.with_columns(country=pl.lit('<b>"x"</b>')).write_parquet(shop / "users.parquet")
    name, page = profile_page(Asked(str(shop)))
    assert name == shop.name and page.startswith("<!doctype html>") and page.count("<table") == 5
    charts = dict(re.findall(r'<svg class="bars"[^>]*aria-label="(\w+): ([^"]*)"', page))
    assert charts.keys() == {"age", "signed_up", "income", "segment", "country", "price", "brand", "time", "event"}
    assert "&lt;b&gt;" in charts["country"] and "<b>" not in page
    assert {f"{segment} {rows:,}" for segment, rows in users["segment"].value_counts().iter_rows()} == {
        *charts["segment"].split(", ")
    }


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_bars_count_every_value_once(shop: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    values = {"x": rng.normal(size=1500), "few": rng.integers(0, 5, 1500), "same": np.full(1500, 7.5)}
    gaps = pl.DataFrame(values).with_columns(x=pl.when(pl.int_range(pl.len()) % 7 > 0).then("x"))
    users = pl.read_parquet(shop / "users.parquet")
    wide = pl.concat([users, gaps], how="horizontal")
    (shop / "users.parquet").unlink()
    wide.write_parquet(shop / "users.parquet") if kind == "parquet" else wide.write_csv(shop / "users.csv")
    with guessed(shop) as guess:
        table = next(each for each in guess.tables if each.name == "users")
        bars = {each.name: column_bars(table, each) for each in table.columns}
    known = gaps["x"].drop_nulls().to_numpy()
    counts, _ = np.histogram(known, MOST_BARS)
    assert [rows for _, rows in bars["x"]] == counts.tolist()
    assert bars["few"] == [(str(value), int((values["few"] == value).sum())) for value in range(5)]
    assert bars["same"] == [("7.5", 1500)] and bars["user_id"] == []


def test_a_pipeline_without_tables_has_no_profile(tmp_path: Path) -> None:
    assert pipeline_profile(load_tiny(tmp_path)) is None
    with pytest.raises(InputError, match="reads no tables with columns"):
        profile_page(Asked(str(write_tiny(tmp_path))))


def test_a_report_is_written_when_its_tables_are_gone(shop: Path) -> None:
    from graphmill.assets.pipeline.file import load_pipeline

    text = (
        '[graph]\nsource = "edges"\nedges = "clicks-*.parquet"\nsource_column = "user_id"\ntarget_column = "item_id"\n'
    )
    (shop / "mine.toml").write_text(text)
    pipeline = load_pipeline(shop / "mine.toml")
    found = pipeline_profile(pipeline)
    assert found is not None and [table.title.partition(":")[0] for table, _ in found.columns] == ["edges"]
    for path in shop.glob("clicks-*"):
        path.unlink()
    assert pipeline_profile(pipeline) is None
