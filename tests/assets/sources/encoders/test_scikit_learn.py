"""Encoders equal the transformers of scikit-learn that are fitted on the same training rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tests.assets.sources.encoders.encoded import encode
from tests.assets.sources.encoders.test_encoders import AMOUNTS, CITIES, ROWS, TRAINING

pytest.importorskip("sklearn")
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    MultiLabelBinarizer,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
)

NUMBERS = {
    "standard": StandardScaler(),
    "minmax": MinMaxScaler(),
    "log": make_pipeline(FunctionTransformer(np.log1p), StandardScaler()),
    "rank": QuantileTransformer(output_distribution="normal", n_quantiles=1000, subsample=None),
}


@pytest.mark.filterwarnings("ignore:n_quantiles")
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("values", [AMOUNTS, np.round(AMOUNTS), -AMOUNTS], ids=["drawn", "repeated", "negative"])
def test_numbers(name: str, values: np.ndarray) -> None:
    if name == "log" and values.min() < 0:
        values = -values
    found = encode(pl.DataFrame({"x": values}), {"x": name}, TRAINING).rows
    wanted = NUMBERS[name].fit(values[TRAINING, None]).transform(values[:, None])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("least", [1, 30, 60])
def test_onehot(least: int) -> None:
    found = encode(pl.DataFrame({"c": CITIES}), {"c": {"encoder": "onehot", "least": least}}, TRAINING).rows
    theirs = OneHotEncoder(min_frequency=least, handle_unknown="infrequent_if_exist", sparse_output=False)
    wanted = theirs.fit(CITIES[TRAINING, None]).transform(CITIES[:, None])
    assert np.array_equal(found[:, : wanted.shape[1]], wanted)
    assert found.shape[1] == wanted.shape[1] or (found[TRAINING, -1] == 0).all()


def test_ordinal() -> None:
    found = encode(pl.DataFrame({"c": CITIES}), {"c": "ordinal"}, TRAINING).rows
    theirs = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    assert np.array_equal(found, theirs.fit(CITIES[TRAINING, None]).transform(CITIES[:, None]))


def test_lists() -> None:
    rng = np.random.default_rng(2)
    lists = [rng.choice(["a", "b", "c"], count).tolist() for count in rng.integers(0, 4, ROWS)]
    found = encode(pl.DataFrame({"t": lists}), {"t": "list"}, TRAINING).rows
    assert np.array_equal(found[:, :-1], MultiLabelBinarizer().fit(lists).transform(lists))


def test_texts() -> None:
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(["red", "blue", "green", "white"], 5)) for _ in range(ROWS)]
    rule = {"encoder": "text", "buckets": 64}
    found = encode(pl.DataFrame({"t": texts}), {"t": rule}, TRAINING).rows
    alone = encode(pl.DataFrame({"t": ["red", "blue", "green", "white"]}), {"t": rule}).rows.argmax(axis=1)
    assert len(set(alone.tolist())) == 4
    counts = np.array([[text.split().count(word) for word in ("red", "blue", "green", "white")] for text in texts])
    wanted = TfidfTransformer().fit(counts[TRAINING]).transform(counts).toarray()
    np.testing.assert_allclose(found[:, alone], wanted, rtol=1e-6, atol=1e-6)
