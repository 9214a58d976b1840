"""The page of predictions in the UI, and the names of their file and their checks."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import short

TABLE = "predictions.parquet"
EVERY_NODE, FEATURES_ALIKE, ANSWERS_ALIKE = (
    "every node is predicted",
    "features are those of the training",
    "answers are those of the training",
)


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the number of rows, the model, and the distances from the training."""
    score = artifacts[0]
    numbers = score.summary["numbers"]
    parts = [f"**{numbers['num_predicted']:,} rows** by model {short(score.inputs['model']['version'])}"]
    if "moved_share" in numbers:
        parts.append(f"{100 * numbers['moved_share']:.1f} % of the answers moved since the training")
    parts.append(f"largest shift of a column {numbers['largest_mean_shift']:.2f} deviations")
    return ", ".join(parts)


SCORE_PAGE = Page(
    about="The predictions of a trained model for the nodes of this graph, as one Parquet file. They are what a nightly job hands on, and "
    "their version names the model and the data that they come from. "
    "Look at the two checks of drift first: they say whether the data still are like those of the training.",
    docs="docs/stages/score.md",
    headline=_headline,
    first=(
        "num_predicted",
        "moved_share",
        "largest_mean_shift",
        "largest_deviation_factor",
        "num_drifted_columns",
        "answers",
        "drifted_columns",
    ),
    labels={
        "num_predicted": "rows of predictions",
        "moved_share": "answers of other classes than in the training (%)",
        "answer_shift": "predicted numbers: distance of the mean from the training (deviations)",
        "largest_mean_shift": "features: largest distance of a mean from the training (deviations)",
        "largest_deviation_factor": "features: largest ratio of two deviations",
        "num_drifted_columns": "columns beyond a bound",
        "answers": "answers beside those of the training",
        "drifted_columns": "columns that moved most",
    },
    columns={
        "node_id": "id of the node in the raw data",
        "node_type": "name of its type",
        "class": "most probable class, or the one that thresholds give",
        "probability": "probability of that class",
        "labels": "labels whose probability reaches the threshold",
        "prediction": "predicted number, in the unit of the data",
        "label": "label that the node has, null if it is not known",
        "split": "part of the split, null if the node is in none",
        "embedding": "input of the last layer",
        "probabilities": "probabilities of all classes, in their order",
        "source": "of links: the node whose ends are predicted",
        "relation": "of links: name of the relation",
        "rank": "of links: place of the end, from 1",
        "target": "of links: the predicted end",
        "score": "of links: score of the pair",
    },
    file=TABLE,
    kinds=frozenset({"pytorch", "polars"}),
)
