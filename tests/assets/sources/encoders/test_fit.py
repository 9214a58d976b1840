"""Encoders are fitted on training rows alone, exactly, at any number of threads and files."""

from __future__ import annotations

import datetime
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assets.sources.encoders.encoded import encode

RULES = {
    "standard": "standard", "log": "log", "minmax": "minmax", "rank": {"encoder": "rank", "quantiles": 11},
    "onehot": {"encoder": "onehot", "least": 2, "most": 3}, "ordinal": "ordinal", "hash": "hash",
    "time": "time", "text": {"encoder": "text", "buckets": 7, "ngrams": 2}, "list": {"encoder": "list", "least": 2},
    "gap": {"encoder": "standard", "missing": "flag"}, "auto": "auto", "auto_text": "auto", "auto_time": "auto",
}  # fmt: skip
NUMBER = st.floats(-1e15, 1e15)
WORDS = st.sampled_from(["red", "blue", "green", "7", "x y", "Ä"])
TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
VALUES = {
    **dict.fromkeys(("standard", "log", "minmax", "rank", "auto"), NUMBER), "gap": NUMBER | st.none(),
    **dict.fromkeys(("onehot", "ordinal", "hash", "text", "auto_text"), WORDS | st.text("ab c", min_size=1)),
    **dict.fromkeys(("time", "auto_time"), TIMES), "list": st.lists(WORDS, max_size=3),
}  # fmt: skip
TYPES = {"time": pl.Datetime("us"), "auto_time": pl.Datetime("us"), "list": pl.List(pl.String), "gap": pl.Float64}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame, np.ndarray]:
    """A table, the same with other values in some rows outside the training rows, and the training rows."""
    rows = draw(st.integers(2, 12))
    training = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    training[draw(st.integers(0, rows - 1))] = True
    columns, changed = {}, {}
    for name, values in VALUES.items():
        columns[name] = draw(st.lists(values, min_size=rows, max_size=rows))
        columns[name][int(np.flatnonzero(training)[0])] = draw(values.filter(lambda value: value is not None))
        other = draw(st.lists(values, min_size=rows, max_size=rows))
        changed[name] = [a if kept else b for a, b, kept in zip(columns[name], other, training, strict=True)]
    return *(pl.DataFrame(each, schema_overrides=TYPES) for each in (columns, changed)), training


@settings(max_examples=8, deadline=None)
@given(tables(), st.integers(1, 3))
def test_rows_outside_the_training_rows_change_no_fitted_number(drawn, files: int) -> None:
    frame, changed, training = drawn
    one, two = (encode(each, RULES, training, files=files) for each in (frame, changed))
    assert json.dumps(one.columns) == json.dumps(two.columns)
    assert one.rows[training].tobytes() == two.rows[training].tobytes()


MISSING = {
    f"{name}_{missing}": {"encoder": name, "missing": missing}
    for name in ("standard", "log", "minmax", "rank") for missing in ("mean", "zero", "flag")
} | {
    f"{name}_{missing}": {"encoder": name, "missing": missing}
    for name in ("onehot", "ordinal", "hash", "text", "time") for missing in ("zero", "flag")
}  # fmt: skip
CHANGES = 1000
STRANGE = {
    "numbers": [0.0, -0.0, 1e-300, 1e149, -1e149, 999.0],
    "texts": ["", " ", "nan", "None", "7", "07", "a" * 300, "x" + chr(0x1F600)],
    "times": [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)],
    "lists": [[], ["new"], ["red"] * 20],
}
"""Values that no training row has."""


def kind_of(name: str) -> str:
    """Returns the kind of the values of a column of this name."""
    encoder = "text" if name == "auto_text" else "time" if name == "auto_time" else name.partition("_")[0]
    return {"time": "times", "list": "lists"}.get(
        encoder, "texts" if encoder in ("onehot", "ordinal", "hash", "text") else "numbers"
    )


def drawn_value(rng: np.random.Generator, kind: str, *, strange: bool) -> object:
    if strange and rng.random() < 0.5:
        return STRANGE[kind][rng.integers(len(STRANGE[kind]))]
    if kind == "numbers":
        return float(rng.normal() * 10.0 ** rng.integers(-3, 9))
    if kind == "times":
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=int(rng.integers(-(10**9), 10**9)))
    words = [f"{['red', 'blue'][rng.integers(2)]}{rng.integers(4)}" for _ in range(rng.integers(1, 4))]
    return words if kind == "lists" else " ".join(words)


def test_a_thousand_drawn_changes_of_test_rows_change_no_fitted_number() -> None:
    """Each change is a column of its own, beside those of the same encoder, which all have the training rows in common."""
    rng, rows = np.random.default_rng(0), 30
    training = rng.permutation(rows) < 18
    rules = {**RULES, **MISSING}
    kinds = {name: kind_of(name) for name in rules}
    changes = -(-CHANGES // len(rules))
    columns: dict[str, pl.Series] = {}
    for name, kind in kinds.items():
        dtype = {"texts": pl.String, "times": pl.Datetime("us"), "lists": pl.List(pl.String), "numbers": pl.Float64}
        first = [drawn_value(rng, kind, strange=False) for _ in range(rows)]
        for number in range(changes + 1):
            values = list(first)
            changed = np.flatnonzero(~training & (rng.random(rows) < rng.random())) if number else ()
            for row in changed:
                gap = (name in MISSING or name == "gap") and rng.random() < 0.2
                values[row] = None if gap else drawn_value(rng, kind, strange=True)
            columns[f"{name}#{number}"] = pl.Series(f"{name}#{number}", values, dtype[kind])
    found = encode(pl.DataFrame([*columns.values()]), {f"{name}#*": rule for name, rule in rules.items()}, training)
    of_encoder: dict[str, set[str]] = {}
    for each in found.columns:
        name, _, number = each["column"].partition("#")
        told = {**each, "column": name, "columns": [text.replace(f"#{number}", "") for text in each["columns"]]}
        of_encoder.setdefault(name, set()).add(json.dumps(told))
    assert {name: len(told) for name, told in of_encoder.items()} == dict.fromkeys(rules, 1)
    assert len(found.columns) >= CHANGES


def large() -> tuple[pl.DataFrame, np.ndarray]:
    rng, rows = np.random.default_rng(0), 150_000
    frame = pl.DataFrame(
        {
            "a": rng.normal(size=rows) * 10 ** rng.uniform(-9, 9, rows),
            "b": np.exp(rng.normal(size=rows) * 5),
            "c": rng.integers(0, 300, rows).astype(str),
            "t": [f"w{a} w{b}" for a, b in rng.integers(0, 50, (rows, 2))],
            "when": pl.Series(rng.integers(0, 10**15, rows)).cast(pl.Datetime("us")),
        }
    )
    return frame, rng.random(rows) < 0.6


def test_fitted_numbers_and_rows_have_the_same_bytes_at_any_number_of_threads_and_files() -> None:
    frame, training = large()
    rules = {"a": "standard", "b": "rank", "c": "onehot", "t": {"encoder": "text", "buckets": 16}, "when": "time"}
    one, two = encode(frame, rules, training, threads=1), encode(frame, rules, training, threads=2, files=3)
    assert json.dumps(one.columns) == json.dumps(two.columns) and one.rows.tobytes() == two.rows.tobytes()
    frame = frame.drop("c")  # numbers, if they stand in a text file
    texts = encode(frame[:20_000], "auto", training[:20_000], threads=2, form="csv")
    typed = encode(frame[:20_000], "auto", training[:20_000], threads=1)
    assert [each["fitted"] for each in texts.columns] == [each["fitted"] for each in typed.columns]
    assert texts.rows.tobytes() == typed.rows.tobytes()


def test_shuffled_training_rows_have_the_same_fit() -> None:
    frame, training = large()
    order = np.random.default_rng(1).permutation(len(frame))
    one = encode(frame, "auto", training)
    assert encode(frame[order], "auto", training[order]).columns == one.columns


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_without_training_rows_all_rows_are_fitted(form: str) -> None:
    found = encode(pl.DataFrame({"x": [1.0, 3.0]}), {"x": "standard"}, form=form)
    assert found.fitted == {"x": {"mean": 2.0, "scale": 1.0}}
