"""MovieLens 100k: lists of films beside RecBole's BPR, and errors of ratings over three folds beside Surprise's SVD.

    python -m benchmarks movielens               # all seeds and folds
    python -m benchmarks --quick movielens       # one seed and one fold
    python -m benchmarks.movielens FOLDER        # writes the table of the pipelines, and trains nothing

The recipes are jobs/pipelines/published/movielens.toml and movielens-ratings.toml as they are; only the fold is set here. The ratings come
from the package `recbole`, which ships them (`pip install recbole --no-deps`), or from ml-100k.inter in the folder that
GRAPHMILL_TEST_DATA names. The split of lists is that of RecBole's quick start, drawn as RecBole draws it by its seed; folds are drawn.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.disk_inputs import home
from benchmarks.record import record
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.graphs import build_graph

if TYPE_CHECKING:
    import polars

DATA, FILE, INTERACTIONS = "GRAPHMILL_TEST_DATA", "movielens.parquet", "ml-100k.inter"
Scores = dict[str, list[float]]
RECBOLE_SEED, FOLDS, VALID_OF = 2020, 3, 20
"""Seed by which RecBole draws its split, number of folds, and ratings to train on for each one that validates."""


def main(quick: bool) -> None:
    """Measures lists and ratings, and records a row for each."""
    if find_ratings() is None:
        print(f"movielens: skipped, neither recbole is installed nor does the folder {DATA} names have {INTERACTIONS}")
        return
    with tempfile.TemporaryDirectory(prefix="graphmill-movielens-") as name, home() as store:
        folder = Path(name)
        write(folder)
        scale = {"scale": "quick" if quick else "full"}
        scores = lists(folder, store, seeds=(0,) if quick else ())
        print(f"  lists: {shown(scores)}; RecBole's BPR 0.242 and 0.286", flush=True)
        record("movielens", scale | {"part": "lists"} | scores)
        errors = ratings(folder, store, folds=1 if quick else FOLDS)
        print(f"  ratings: {shown(errors)}; Surprise's SVD 0.944", flush=True)
        record("movielens", scale | {"part": "ratings"} | errors)


def shown(scores: Scores) -> str:
    """Returns the means of scores, with their deviations."""
    spread = {name: f" ± {statistics.stdev(each):.4f}" if len(each) > 1 else "" for name, each in scores.items()}
    return ", ".join(f"{name} {statistics.fmean(each):.4f}{spread[name]}" for name, each in scores.items())


def find_ratings() -> Path | None:
    """Returns the file of the ratings, None if neither the package nor the folder of test data has it."""
    spec = find_spec("recbole")
    places = [Path(os.environ.get(DATA, "/nowhere"), INTERACTIONS)]
    for each in (spec.submodule_search_locations or ()) if spec else ():
        places.append(Path(each, "dataset_example", "ml-100k", INTERACTIONS))
    return next((place for place in places if place.exists()), None)


def write(folder: Path) -> None:
    """Writes the ratings with their parts: user, film, rating, time, part, and fold0, fold1 and fold2.

    Raises:
        FileNotFoundError: the ratings are not there.
    """
    import polars as pl

    if (path := find_ratings()) is None:
        raise FileNotFoundError(f"{INTERACTIONS}: pip install recbole --no-deps, or put it where {DATA} says")
    frame = pl.read_csv(
        path, separator="\t", skip_rows=1, has_header=False, new_columns=["user", "film", "rating", "time"]
    ).with_columns(pl.col("user", "film") - 1)
    frame = frame.with_columns(part_by_user(frame["user"].to_numpy()).alias("part"))
    place = np.random.default_rng(0).permutation(len(frame))
    valid = place // FOLDS % VALID_OF == 0
    for fold in range(FOLDS):
        parts = np.where(place % FOLDS == fold, "test", np.where(valid, "valid", "train"))
        frame = frame.with_columns(pl.Series(f"fold{fold}", parts))
    frame.write_parquet(folder / FILE)


def part_by_user(user: np.ndarray) -> polars.Series:
    """Returns the part of each rating by users int[n]: of the drawn order of a user's ratings the last tenth tests, that before validates.

    As RecBole 1.2.1 does with `split: {'RS': [0.8, 0.1, 0.1]}, group_by: user, order: RO` (data/dataset/dataset.py).
    """
    import polars as pl

    order = torch.randperm(len(user), generator=torch.Generator().manual_seed(RECBOLE_SEED)).numpy()
    frame = pl.DataFrame({"row": order, "user": user[order]})
    left, tenth = pl.len().over("user") - pl.int_range(pl.len()).over("user"), pl.len().over("user") // 10
    part = pl.when(left <= tenth).then(pl.lit("test")).when(left <= 2 * tenth).then(pl.lit("valid"))
    return frame.with_columns(part.otherwise(pl.lit("train")).alias("part")).sort("row")["part"]


def lists(folder: Path, store: Store, seeds: Sequence[int] = (), settings: Sequence[str] = ()) -> Scores:
    """Returns recall and gain of the first ten films, on test, of each seed, by default those of the recipe; settings as of --set."""
    found = _trained("movielens", folder, store, seeds, settings)
    return {name: [numbers[f"test_{name}"] for numbers in found] for name in ("recall@10", "ndcg@10")}


def ratings(folder: Path, store: Store, folds: int = FOLDS, settings: Sequence[str] = ()) -> Scores:
    """Returns the root of the mean squared error, in stars, on each of the first folds."""
    found = []
    for fold in range(folds):
        keys = [f"graph.edges.rated.split_column=fold{fold}", *settings]
        found += _trained("movielens-ratings", folder, store, (), keys)
    return {"rmse": [numbers["test_rmse"] for numbers in found]}


def _trained(
    name: str, folder: Path, store: Store, seeds: Sequence[int], settings: Sequence[str]
) -> list[dict[str, float]]:
    """Returns the numbers of the models of a pipeline's first table, which reads the ratings of a folder."""
    keys = [f'graph.edges.rated.path="{folder / FILE}"', *settings]
    pipeline = load_pipeline(f"published/{name}", TrainTable, settings=keys)
    graph, table = build_graph(store, pipeline.graph), pipeline.train[0]
    table = replace(table, seeds=tuple(seeds) or table.seeds)
    models = train_table(store, graph.inputs, table, pipeline.sampling, pipeline.seed, report=lambda line: None)
    return [dict(model.summary["numbers"]) for model in models]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
