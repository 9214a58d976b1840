"""Scores that a folder of planted tables allows: of scikit-learn on hand-written columns, with and without the graph, and the best one.

The best score is that of answers from how the tables were drawn: what the columns say of each class, and the share of edges inside a class.
Belief propagation of two rounds computes them from the nodes up to two edges away (Pearl, 1988); it is exact if these are a tree, as most
neighbourhoods of random graphs of few edges are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from graphmill.kernels.types import Array
from tests.assets.sources.folders import HOMOPHILY, Folder

CATEGORIES = ("venue_id", "category_id")
"""Columns of numbers that name groups."""
HOPS = 2
"""Number of edges that lead to the nodes which answers depend on."""
STRENGTHS = (0.003, 0.03, 0.3, 3.0)
"""Inverse strengths of the penalty of the linear model, of which the validation rows choose one."""


class Scores(NamedTuple):
    """Shares of the test rows that are right."""

    columns: float
    """A linear model on the columns of the labelled table."""
    graph: float
    """The same with means of the columns over neighbours, and over theirs."""
    best: float
    """Answers from how the tables were drawn."""


def known_scores(folder: Folder, path: Path, places: Mapping[str, Array]) -> Scores:
    """Returns the scores of a folder.

    Args:
        path: the folder with its tables.
        places: "train", "valid" and "test" -> i64[n], rows of the labelled table with a class.
    """
    labels = folder.nodes[folder.table].kinds
    encoded = {name: hand_encoded(read_table(path, name), folder.column) for name in folder.nodes}
    own = encoded[folder.table]
    encoded |= {name: np.concatenate([encoded[name], more], axis=1) for name, more in folder.of_edges.items()}
    joined = with_neighbours(folder, encoded)
    tested = places["test"]
    best = (best_answers(folder)[tested] == labels[tested]).mean()
    return Scores(linear_score(own, labels, places), linear_score(joined, labels, places), float(best))


def best_answers(folder: Folder) -> Array:
    """Returns i64[N], the most probable class of each node of the labelled table; no label is read."""
    evidence = np.concatenate([each.evidence for each in folder.nodes.values()])
    src, dst = _ends(folder)
    classes = evidence.shape[1]
    alike = HOMOPHILY * np.eye(classes) + (1 - HOMOPHILY) / classes
    messages = np.zeros((len(src), classes))
    for _ in range(HOPS):
        beliefs = evidence + _summed(messages, dst, len(evidence))
        outgoing = beliefs[src] - np.roll(messages, len(src) // 2, axis=0)  # without what came along the same edge
        messages = np.log(np.exp(outgoing - outgoing.max(axis=1, keepdims=True)) @ alike)
    beliefs = evidence + _summed(messages, dst, len(evidence))
    first = _starts(folder)[folder.table]
    return beliefs[first : first + len(folder.nodes[folder.table].kinds)].argmax(axis=1)


def with_neighbours(folder: Folder, encoded: Mapping[str, Array]) -> Array:
    """Returns f64[N, F], the columns of the labelled table with the means over neighbours up to `HOPS` edges away."""
    widths = [each.shape[1] for each in encoded.values()]
    rows = np.zeros((sum(map(len, encoded.values())), sum(widths)))
    for place, (name, first) in enumerate(_starts(folder).items()):
        low = sum(widths[:place])
        rows[first : first + len(encoded[name]), low : low + widths[place]] = encoded[name]
    src, dst = _ends(folder)
    degree = np.maximum(1, np.bincount(dst, minlength=len(rows)))[:, None]
    hops = [rows]
    for _ in range(HOPS):
        hops.append(_summed(hops[-1][src], dst, len(rows)) / degree)
    first = _starts(folder)[folder.table]
    return np.concatenate(hops, axis=1)[first : first + len(encoded[folder.table])]


def linear_score(rows: Array, labels: Array, places: Mapping[str, Array]) -> float:
    """Returns the test accuracy of a logistic regression on columns in standard deviations."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    rows = StandardScaler().fit(rows[places["train"]]).transform(rows)
    models = [
        LogisticRegression(C=each, max_iter=300).fit(rows[places["train"]], labels[places["train"]])
        for each in STRENGTHS
    ]
    scores = [
        [float(each.score(rows[places[part]], labels[places[part]])) for part in ("valid", "test")] for each in models
    ]
    return max(scores)[1]


def hand_encoded(table: pl.DataFrame, label: str) -> Array:
    """Returns f64[N, F], the columns behind the first one: categories, words, logarithms of prices, and other numbers, each with mean 0."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    parts = []
    for values in table.iter_columns():
        name = values.name
        if name in (table.columns[0], label):
            continue
        values = values.to_physical() if values.dtype.is_temporal() else values
        if values.dtype == pl.String and " " in str(values[0]):
            parts.append(TfidfVectorizer().fit_transform(values.to_list()).toarray())
        elif values.dtype == pl.String and values.n_unique() > 40:
            continue  # another number of the row
        elif values.dtype == pl.String or name in CATEGORIES:
            parts.append(values.to_frame().to_dummies().to_numpy())
        else:
            numbers = values.cast(pl.Float64)
            numbers = numbers.log() if name == "price" else numbers
            parts.append(np.stack([numbers.fill_null(numbers.mean()), numbers.is_null()], axis=1).astype(float))
    rows = np.concatenate(parts, axis=1)
    return (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-9)


def read_table(folder: Path, name: str) -> pl.DataFrame:
    """Returns a table of a folder, whichever form it has."""
    (path,) = [each for each in sorted(folder.rglob("*")) if each.stem == name and "home" not in each.parts]
    if path.is_dir():
        return pl.read_parquet(path / "*.parquet")
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    first = path.open().readline()
    return pl.read_csv(path, separator=next(each for each in ";\t," if each in first))


def _starts(folder: Folder) -> dict[str, int]:
    """Returns table -> its first place among all planted nodes."""
    ends = np.cumsum([0, *(len(each.kinds) for each in folder.nodes.values())]).tolist()
    return dict(zip(folder.nodes, ends, strict=False))


def _ends(folder: Folder) -> tuple[Array, Array]:
    """Returns (sources, targets), i64[2 E], of the edges in both directions, those of one behind those of the other."""
    starts = _starts(folder)
    left = np.concatenate([starts[one] + places for one, _, places, _ in folder.edges])
    right = np.concatenate([starts[other] + places for _, other, _, places in folder.edges])
    proper = left != right
    left, right = left[proper], right[proper]
    return np.concatenate([left, right]), np.concatenate([right, left])


def _summed(rows: Array, targets: Array, count: int) -> Array:
    """Returns f64[count, F], the sums of the rows by target."""
    found = np.zeros((count, rows.shape[1]))
    np.add.at(found, targets, rows)
    return found
