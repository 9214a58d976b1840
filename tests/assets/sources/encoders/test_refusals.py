"""What `encode` cannot do is refused in one sentence with the place, by the pipeline file, by the headers, or by the value."""

from __future__ import annotations

import datetime

import polars as pl
import pytest

from graphmill.assets.sources.encoders.rules import encode_problems
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.kernels.errors import InputError
from tests.assets.sources.encoders.encoded import encode

FRAME = pl.DataFrame(
    {
        "id": [0, 1, 2], "x": [1.0, None, 2.0], "n": [1, 2, 3], "c": ["a", None, "b"], "y": ["u", "v", "u"],
        "d": [datetime.date(2024, 1, 1)] * 3, "clock": [datetime.time(1)] * 3,
        "v": [[1.0, 2.0], [3.0], [4.0, 5.0]], "empty": pl.Series([None] * 3, dtype=pl.Float64),
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("encode", "words"),
    [
        ({"x": "standart"}, "encode.x: 'standart' is not one of auto, standard, .* (did you mean 'standard'?)"),
        ({"x": {"least": 3}}, "encode.x: lacks the key encoder"),
        ({"x": {"encoder": "onehot", "leest": 3}}, "encode.x: onehot has no option leest (did you mean least?)"),
        ({"x": {"encoder": "standard", "least": 3}}, "standard has no option least; it has missing"),
        ({"x": {"encoder": "onehot", "least": "3"}}, "least = '3' is not a whole number"),
        ({"x": {"encoder": "onehot", "least": 0}}, "least = 0 is below 1"),
        ({"x": {"encoder": "onehot", "missing": "mean"}}, "missing = 'mean' is not one of zero, flag"),
        (
            {"x": {"encoder": "log", "missing": "men"}},
            "missing = 'men' is not one of mean, zero, flag (did you mean 'mean'?)",
        ),
        (
            {"x": {"encoder": "time", "parts": ["weak"]}},
            "parts: 'weak' is not one of age, year, week, day (did you mean 'week'?)",
        ),
        ({"x": {"encoder": "time", "unit": "h"}}, "unit: 'h' is not one of s, ms, us"),
    ],
)
def test_mistakes_of_the_key(encode, words: str) -> None:
    found = [each.text for each in encode_problems(encode)]
    assert len(found) == 1 and all(part in found[0] for part in words.split(".*"))
    with pytest.raises(InputError):
        TableConfig(encode=encode)


@pytest.mark.parametrize(
    ("features", "rules", "words"),
    [
        (["x"], {"x": "onehot", "z": "log"}, "encode names 'z', which fits no feature column"),
        (["x", "n"], {"n_*": "log"}, "encode names 'n_*'"),
        (["n", "c"], {"n": "log"}, "column 'c' is VARCHAR, not numbers, and `encode` does not name it"),
        (["c"], {"c": "standard"}, "column 'c' is VARCHAR, and standard encodes numbers"),
        (["d"], {"d": "log"}, "column 'd' is DATE, and log encodes numbers"),
        (["n"], {"n": "text"}, "column 'n' is BIGINT, and text encodes text"),
        (["n"], {"n": "time"}, "column 'n' is BIGINT, and time needs the unit of numbers"),
        (["c"], {"c": "list"}, "column 'c' is text, and list needs its separator"),
        (["v"], {"v": "onehot"}, "column 'v' is DOUBLE[], and onehot encodes text or numbers or times"),
        (["clock"], "auto", "which no encoder reads"),
        (["y"], "auto", "column 'y' is among the features and is the label_column of [graph]"),
        (["x"], {"x": "log"}, "row 1: column 'x' is empty"),
        (["c"], {"c": "onehot"}, "row 1: column 'c' is empty"),
        (["v"], "auto", "row 1: column 'v' holds '[3.0]', which encoder vector does not read"),
        (["empty"], "auto", "column 'empty' is empty in every training row"),
    ],
)
def test_mistakes_of_columns_and_values(features: list[str], rules, words: str) -> None:
    with pytest.raises(InputError) as caught:
        encode(FRAME, rules, features=features, taken={"y": "label_column"})
    assert words in caught.value.problem and caught.value.remedy


@pytest.mark.parametrize(
    ("rule", "value", "words"),
    [
        ("standard", "12,5", "holds '12,5'"),
        ("log", "inf", "holds 'inf', which encoder log does not read"),
        ("rank", "1e200", "holds '1e200', which encoder rank does not read"),
        ("time", "yesterday", "holds 'yesterday', which encoder time does not read"),
    ],
)
def test_a_text_that_is_not_a_value_is_refused_with_its_line(rule: str, value: str, words: str) -> None:
    frame = pl.DataFrame({"x": ["2024-01-01" if rule == "time" else "1", value]})
    with pytest.raises(InputError) as caught:
        encode(frame, {"x": rule}, form="csv")
    assert words in caught.value.problem and "row 1 (line 3)" in caught.value.problem


def test_sources_without_named_columns_and_files_refuse_encode(tmp_path) -> None:
    with pytest.raises(InputError, match="arrays without names of columns"):
        config_class("npz")(path=tmp_path / "g.npz").for_table(TableConfig(encode="auto"))
    with pytest.raises(InputError, match="encode beside a file"):
        TableConfig(encode="auto", file=tmp_path / "x.npy")
    edges = config_class("edges")(edges=tmp_path / "e.csv", nodes=tmp_path / "n.csv")
    with pytest.raises(InputError, match="encode without columns"):
        edges.for_table(TableConfig(encode="auto"))
