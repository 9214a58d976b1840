"""The recipes of MovieLens 100k, which RecBole's package ships, at the scores that RecBole and Surprise publish for it."""

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.movielens import find_ratings, lists, ratings, write
from graphmill.assets.storage.store import Store

RECALL, GAIN, ERROR = 0.242, 0.286, 0.944
"""Of the first ten films by RecBole's BPR, each user's ratings split 8:1:1; and of stars by Surprise's SVD, over three folds."""

pytestmark = pytest.mark.skipif(
    find_ratings() is None,
    reason="needs MovieLens 100k: pip install recbole --no-deps, or ml-100k.inter in GRAPHMILL_TEST_DATA",
)


@pytest.mark.slow("the lists of films of all users of MovieLens")
def test_learnt_rows_recommend_films_as_well_as_is_published(tmp_path: Path) -> None:
    write(tmp_path)
    scores = lists(tmp_path, Store(tmp_path / "home"))
    assert fmean(scores["recall@10"]) >= RECALL and fmean(scores["ndcg@10"]) >= GAIN, scores


@pytest.mark.slow("the errors of predicted ratings of MovieLens")
def test_factors_with_biases_rate_films_as_well_as_is_published(tmp_path: Path) -> None:
    write(tmp_path)
    scores = ratings(tmp_path, Store(tmp_path / "home"))
    assert len(scores["rmse"]) == 3 and fmean(scores["rmse"]) <= ERROR, scores
