"""Numbers that look like a mark for a missing value are told with the way out, and the way out works."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.sources.encoders.columns import sentinel_words
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.jobs.commands.pipelines.inspect_pipeline import survey_pipeline
from tests.assets.sources.encoders.encoded import encode

RNG = np.random.default_rng(0)


def told(folder: Path, form: str = "parquet", **columns: object) -> list[str]:
    frame = pl.DataFrame(columns)
    path = folder / f"n.{form}"
    (frame.write_parquet if form == "parquet" else frame.write_csv)(path)
    with Duck(None, 1 << 28, 1) as duck:
        return sentinel_words(TableFiles(duck, [path], "nodes"), frame.columns)


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("mark", [-999, 999, -9999, 9999, 99999, -(2**31)])
def test_marks_are_told(tmp_path: Path, form: str, mark: int) -> None:
    values = [mark if row % 10 == 3 else float(row % 90) for row in range(200)]
    (words,) = told(tmp_path, form, age=values, other=RNG.normal(size=200))
    assert words.startswith(f"column 'age' of n.{form}: 20 of 200 rows are {mark}, and all others lie from 0 to 89")
    assert words.endswith(f'age = {{ encoder = "standard", missing = "flag", no_value = [{mark}] }} in `encode`')


def test_two_marks_of_small_answers(tmp_path: Path) -> None:
    (words,) = told(tmp_path, answer=[1, 2, 3, 4, 5, 99, 99, 1, 2, 3])
    assert "2 of 10 rows are 99" in words


@pytest.mark.parametrize(
    "values",
    [
        RNG.integers(0, 10_000, 500).tolist() + [9999, 9999],  # like its neighbours
        [0.0] * 50 + [999.0],  # once
        [999] * 50,  # nothing else
        [1, 2, 3, 17, 17],  # no mark
        ["a", "999", "999"],
        [True, False],
        [None, None],
        [float("nan"), 1.0, 2.0],
    ],
)
def test_other_values_are_not_told(tmp_path: Path, values: list) -> None:
    assert told(tmp_path, v=values) == []


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_marks_become_gaps(form: str) -> None:
    frame = pl.DataFrame({"age": [1.0, -999.0, 3.0, 9999.0]})
    found = encode(frame, {"age": {"encoder": "standard", "missing": "flag", "no_value": [-999, 9999.0]}}, form=form)
    assert found.rows.tolist() == [[-1, 0], [0, 1], [1, 0], [0, 1]]


RECIPE = """
[graph]
source = "edges"
edges = "e.parquet"
nodes = "n.parquet"
features = ["age"]
[features.encode]
age = ENCODER
"""


def test_inspect_tells_it_and_what_it_says_works(tmp_path: Path) -> None:
    pl.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3]}).write_parquet(tmp_path / "e.parquet")
    pl.DataFrame({"id": range(20), "age": [-999 if row % 5 == 0 else row for row in range(20)]}).write_parquet(
        tmp_path / "n.parquet"
    )

    def notes(encoder: str) -> tuple[list[str], list[str]]:
        text = RECIPE.replace("ENCODER", encoder)
        found = survey_pipeline(parse_pipeline(tmp_path / "p.toml", text.encode()))
        return [note for note in found.notes if "-999" in note], [*found.problems]

    (said,), problems = notes('"standard"')
    assert not problems
    way = said.rpartition("set age = ")[2].removesuffix(" in `encode`")
    assert notes(way) == ([], [])
    typed = RECIPE.replace(
        'source = "edges"\nedges = "e.parquet"\nnodes = "n.parquet"\nfeatures = ["age"]', 'source = "tables"'
    )
    typed += '[graph.nodes.a]\npath = "n.parquet"\nfeatures = "age"\n'
    typed += '[graph.edges.to]\npath = "e.parquet"\nsource_type = "a"\ntarget_type = "a"\n'
    for encoder, said in (('"log"', True), (way, False)):
        survey = survey_pipeline(parse_pipeline(tmp_path / "p.toml", typed.replace("ENCODER", encoder).encode()))
        assert any("4 of 20 rows are -999" in note for note in survey.notes) is said and not survey.problems
