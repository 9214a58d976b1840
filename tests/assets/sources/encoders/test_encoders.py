"""Each encoder gives the numbers of its definition, here written with NumPy and Python's own library."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections import Counter
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest

from tests.assets.sources.encoders.encoded import encode

RNG = np.random.default_rng(5)
ROWS = 400
TRAINING = RNG.random(ROWS) < 0.5
AMOUNTS = np.exp(RNG.normal(size=ROWS) * 2)
CITIES = RNG.choice(["Bern", "Rom", "Wien", "Åbo"], ROWS, p=[0.5, 0.3, 0.19, 0.01])
FORMS = pytest.mark.parametrize("form", ["parquet", "csv"])


def close(found, wanted) -> bool:
    wanted = np.asarray(wanted, np.float64)
    return np.allclose(found, wanted if wanted.ndim == 2 else wanted[:, None], rtol=1e-6, atol=1e-6)


@FORMS
@pytest.mark.parametrize("name", ["standard", "log", "minmax", "rank", "number"])
def test_numbers(name: str, form: str) -> None:
    found = encode(pl.DataFrame({"x": AMOUNTS}), {"x": name}, TRAINING, form=form)
    fitted, logs = AMOUNTS[TRAINING], np.log1p(AMOUNTS)
    wanted = {
        "standard": (AMOUNTS - fitted.mean()) / fitted.std(),
        "log": (logs - logs[TRAINING].mean()) / logs[TRAINING].std(),
        "minmax": (AMOUNTS - fitted.min()) / (fitted.max() - fitted.min()),
        "rank": ranked(fitted, AMOUNTS, 1000),
        "number": AMOUNTS,
    }
    assert close(found.rows, wanted[name]) and found.names == ["x"]


def ranked(fitted, values, most: int):
    """scikit-learn's QuantileTransformer with output_distribution="normal", without subsampling."""
    shares = np.linspace(0, 1, min(most, len(fitted)))
    quantiles = np.percentile(fitted, shares * 100)
    share = 0.5 * (np.interp(values, quantiles, shares) - np.interp(-values, -quantiles[::-1], -shares[::-1]))
    share[values + 1e-7 > quantiles[-1]], share[values - 1e-7 < quantiles[0]] = 1, 0
    least = 1e-7 - np.spacing(1)
    return np.vectorize(NormalDist().inv_cdf)(np.clip(share, least, 1 - least))


@pytest.mark.parametrize("quantiles", [2, 7, 150, 1000])
def test_ranks_of_few_quantiles_and_of_repeated_values(quantiles: int) -> None:
    values = np.round(AMOUNTS)
    found = encode(pl.DataFrame({"x": values}), {"x": {"encoder": "rank", "quantiles": quantiles}}, TRAINING)
    assert close(found.rows, ranked(values[TRAINING], values, quantiles))


def test_equal_values_have_scale_one_and_gaps_the_value_that_missing_says() -> None:
    frame = pl.DataFrame({"same": [7.0] * 4, "x": [1.0, 3.0, None, float("nan")]})
    for missing, gap in (("mean", 0.0), ("zero", -2.0), ("flag", 0.0)):
        found = encode(frame, {"same": "standard", "x": {"encoder": "standard", "missing": missing}})
        flags = [[0, 0, 1, 1]] if missing == "flag" else []
        assert found.rows.T.tolist() == [[0] * 4, [-1, 1, gap, gap], *flags]
    assert found.names == ["same", "x", "x is missing"]


def test_integers_booleans_and_decimals_are_numbers() -> None:
    frame = pl.DataFrame({"i": [2**40, 2**40 + 2], "b": [True, False], "u": pl.Series([1, 3], dtype=pl.UInt8)})
    assert encode(frame, {"*": "standard"}).rows.tolist() == [[-1, 1, -1], [1, -1, 1]]


@FORMS
def test_categories(form: str) -> None:
    least = Counter(CITIES[TRAINING].tolist())["Wien"]
    found = encode(pl.DataFrame({"c": CITIES}), {"c": {"encoder": "onehot", "least": least}}, TRAINING, form=form)
    wanted = [city == CITIES for city in ("Bern", "Rom", "Wien")]
    assert close(found.rows, np.stack([*wanted, ~np.any(wanted, axis=0)], axis=1))
    assert found.names == ["c = Bern", "c = Rom", "c = Wien", "c = other"]
    most = encode(pl.DataFrame({"c": CITIES}), {"c": {"encoder": "onehot", "most": 1}}, TRAINING, form=form)
    assert most.names == ["c = Bern", "c = other"] and close(
        most.rows, np.stack([CITIES == "Bern", CITIES != "Bern"], 1)
    )


@FORMS
def test_ordinals_order_numbers_before_texts_and_give_others_minus_one(form: str) -> None:
    frame = pl.DataFrame({"c": ["b", "10", "9", "Z", "é", "unseen"]})
    training = np.array([True] * 5 + [False])
    found = encode(frame, {"c": "ordinal"}, training, form=form)
    assert found.rows[:, 0].tolist() == [3, 1, 0, 2, 4, -1]
    assert found.fitted["c"]["categories"] == ["9", "10", "Z", "b", "é"]


def test_ordinals_of_many_categories_keep_their_order() -> None:
    frame = pl.DataFrame({"c": RNG.permutation(30_000)})
    assert encode(frame, {"c": "ordinal"}).rows[:, 0].tolist() == frame["c"].to_list()


@FORMS
def test_hashes(form: str) -> None:
    found = encode(pl.DataFrame({"c": CITIES}), {"c": {"encoder": "hash", "buckets": 5}}, TRAINING, form=form)
    assert close(found.rows, np.eye(5)[[bucket(city, 5) for city in CITIES]])


def bucket(text: str, buckets: int) -> int:
    return int.from_bytes(hashlib.md5(text.encode()).digest()[8:], "little") % buckets


def test_lists_and_texts_with_a_separator() -> None:
    lists = [["a", "b"], ["b", None, "b"], [], ["z", "a"]]
    training = np.array([True, True, True, False])
    wanted = [[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert encode(pl.DataFrame({"t": lists}), {"t": "list"}, training).rows.tolist() == wanted
    texts = ["a| b", "b|b", "|", "z|a"]
    rule = {"encoder": "list", "separator": "|"}
    for form in ("parquet", "csv"):
        assert encode(pl.DataFrame({"t": texts}), {"t": rule}, training, form=form).rows.tolist() == wanted
    numbers = encode(pl.DataFrame({"t": [[1, 2], [2]]}), {"t": "list"})
    assert numbers.names == ["t = 1", "t = 2", "t = other"] and numbers.rows.tolist() == [[1, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize("ngrams", [1, 2, 3])
@FORMS
def test_texts(form: str, ngrams: int) -> None:
    words = ["Red", "blue", "große", "a", "x_1", "7b"]
    texts = [" - ".join(RNG.choice(words, count)) for count in RNG.integers(1, 7, 60)]
    training = np.arange(60) < 40
    found = encode(
        pl.DataFrame({"t": texts}), {"t": {"encoder": "text", "buckets": 9, "ngrams": ngrams}}, training, form=form
    )
    counts = np.zeros((60, 9))
    for row, text in enumerate(texts):
        split = re.findall(r"\w{2,}", text.lower())
        for length in range(1, ngrams + 1):
            for first in range(len(split) - length + 1):
                counts[row, bucket(" ".join(split[first : first + length]), 9)] += 1
    idf = np.log((1 + 40) / (1 + (counts[training] > 0).sum(axis=0))) + 1
    norms = np.linalg.norm(counts * idf, axis=1, keepdims=True)
    assert close(found.rows, counts * idf / np.where(norms == 0, 1, norms))


@FORMS
@pytest.mark.parametrize("kind", ["time", "zone", "number", "text", "day"])
def test_times(kind: str, form: str) -> None:
    first = datetime.datetime(1969, 12, 28, 5)
    times = [first + datetime.timedelta(seconds=int(each)) for each in RNG.integers(0, 10**9, ROWS)]
    if kind == "day":
        times = [datetime.datetime.combine(each, datetime.time()) for each in times]
    utc = [each.replace(tzinfo=datetime.UTC) for each in times]
    given = {
        "time": times,
        "zone": utc,
        "number": [int(each.timestamp()) for each in utc],
        "text": [each.isoformat() for each in times],
        "day": [each.date() for each in times],
    }[kind]
    rule = {"encoder": "time", "unit": "s"} if kind == "number" else "time"
    found = encode(pl.DataFrame({"t": given}), {"t": rule}, TRAINING, form=form)
    seconds = np.array([each.timestamp() for each in utc])
    midnight = [each.replace(hour=0, minute=0, second=0) for each in times]
    day = np.array([(a - b).total_seconds() / 86400 for a, b in zip(times, midnight, strict=True)])
    week = (np.array([each.weekday() for each in times]) + day) / 7
    begins = [(datetime.datetime(each.year, 1, 1), datetime.datetime(each.year + 1, 1, 1)) for each in times]
    year = [(each - low) / (high - low) for each, (low, high) in zip(times, begins, strict=True)]
    age = (seconds[TRAINING].mean() - seconds) / seconds[TRAINING].std()
    angles = [2 * np.pi * np.array(place) for place in (year, week, day)]
    assert close(found.rows, np.stack([age, *(turn(angle) for angle in angles for turn in (np.sin, np.cos))], axis=1))
    assert found.names[:3] == ["t age", "t year sin", "t year cos"]


def test_parts_of_times_are_chosen_and_gaps_are_zeros() -> None:
    frame = pl.DataFrame({"t": [datetime.date(2024, 1, 1), datetime.date(2024, 7, 1), None]})
    found = encode(frame, {"t": {"encoder": "time", "parts": ["week"], "missing": "flag"}})
    assert found.rows.tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]


@FORMS
def test_gaps_of_texts_are_zeros(form: str) -> None:
    frame = pl.DataFrame({"c": ["aa", None, "bb"]})
    for rule in ({"encoder": "onehot"}, {"encoder": "hash", "buckets": 3}, {"encoder": "text", "buckets": 3}):
        found = encode(frame, {"c": {**rule, "missing": "zero"}}, form=form)
        assert found.rows.shape == (3, 3) and found.rows.sum(axis=1).tolist() == [1, 0, 1]
    assert encode(frame, {"c": {"encoder": "ordinal", "missing": "zero"}}, form=form).rows.tolist() == [[0], [-1], [1]]


def test_columns_without_a_rule_stay_as_they_are() -> None:
    frame = pl.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "c": ["a", "b"], "n": [5, 6]})
    found = encode(frame, {"c": "onehot"}, features=("n", "c", "v"))
    assert found.rows.tolist() == [[5, 1, 0, 0, 1, 2], [6, 0, 1, 0, 3, 4]]
    assert found.names == ["n", "c = a", "c = b", "c = other", "v[0]", "v[1]"]


def test_own_names_go_before_patterns() -> None:
    frame = pl.DataFrame({"a1": [0.0, 4.0], "a2": [0.0, 4.0], "b": [0.0, 4.0]})
    found = encode(frame, {"a*": "minmax", "a2": "number", "*": "standard"})
    assert [each["encoder"] for each in found.columns] == ["minmax", "number", "standard"]


@FORMS
def test_auto_chooses_by_type_and_training_values(form: str) -> None:
    rows = 120
    frame = pl.DataFrame(
        {
            "number": RNG.normal(size=rows),
            "gap": [None if row % 9 == 0 else float(row) for row in range(rows)],
            "late_gap": [None if row > 100 else float(row) for row in range(rows)],
            "day": [datetime.date(2024, 1, 1) + datetime.timedelta(days=row) for row in range(rows)],
            "few": [f"f{row % 3}" for row in range(rows)],
            "many": [f"word{row}" for row in range(rows)],
        }
    )
    found = encode(frame, "auto", np.arange(rows) <= 100, form=form)
    chosen = {each["column"]: (each["encoder"], each.get("missing")) for each in found.columns}
    assert chosen == {
        "number": ("standard", "mean"), "gap": ("standard", "flag"), "late_gap": ("standard", "mean"),
        "day": ("time", "zero"), "few": ("onehot", "zero"), "many": ("text", "zero"),
    }  # fmt: skip


def test_gaps_of_lists_are_zeros() -> None:
    frame = pl.DataFrame(
        {"l": [["a"], None, ["a", "b"]], "v": [[1.0, 2.0], None, [3.0, 4.0]]},
        schema_overrides={"l": pl.List(pl.String), "v": pl.List(pl.Float64)},
    )
    found = encode(frame, {"l": {"encoder": "list", "missing": "flag"}, "v": {"encoder": "auto", "missing": "flag"}})
    assert found.rows.tolist() == [[1, 0, 0, 0, 1, 2, 0], [0, 0, 0, 1, 0, 0, 1], [1, 1, 0, 0, 3, 4, 0]]
    fixed = frame.select(pl.col("v").cast(pl.Array(pl.Float64, 2)))
    assert encode(fixed, {"v": {"encoder": "auto", "missing": "zero"}}).rows.tolist() == [[1, 2], [0, 0], [3, 4]]
