"""The table `[score]`, and the text by which a pipeline file names a trained model: PIPELINE/NAME, or PIPELINE/NAME@VERSION.

    [score]
    model = "fraud/sage"             # the model that [[train]] table sage of the pipeline fraud has now
    eval = "exact"

The model predicts the nodes of this file's graph (trainers/inference/scoring/). `[[train]] start` names a model in the same way. Which
artifact that is, trainers/recipe/inputs.py finds.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graphmill.assets.building.keys import Checked, KeyProblem, size_problem, within

SCORE = "score"
"""Name of the table, of its step and of its stage."""
REFERENCE = re.compile(r"(?:[\w.-]+/)*([A-Za-z0-9][\w-]*)/([A-Za-z0-9][\w-]*)(?:@([0-9a-f]{1,64}))?", re.ASCII)
HOW = "write PIPELINE/NAME, or PIPELINE/NAME@VERSION with the first digits of a version that `graphmill ls` shows"


@dataclass(frozen=True, kw_only=True)
class ModelName:
    """A trained model, as a pipeline file names it.

    Attributes:
        pipeline: name of the pipeline file, with the folders below that of the user's pipelines.
        version: the first digits of the model's version; "" for the model that the table has now, or the last one that it had.
        folder: folder of the file with this name, in which the pipeline file may be.
    """

    pipeline: str
    table: str
    version: str = ""
    folder: Path | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Pipeline and name of the step that trains it: the key of its asset."""
        return self.pipeline.rpartition("/")[2], self.table

    @property
    def text(self) -> str:
        """The name as a file has it."""
        return f"{self.pipeline}/{self.table}" + (f"@{self.version}" if self.version else "")


def model_name(text: str, folder: Path | None = None) -> ModelName:
    """Returns the model that a sound text names."""
    named, _, version = text.partition("@")
    pipeline, _, table = named.rpartition("/")
    return ModelName(pipeline=pipeline, table=table, version=version, folder=folder)


def name_problem(key: str, text: str) -> Iterator[KeyProblem]:
    """Yields the problem of a key that names a trained model."""
    if not REFERENCE.fullmatch(text):
        yield KeyProblem(key, f"{key} = {text!r} names no trained model: {HOW}")


@dataclass(frozen=True, kw_only=True)
class ScoreTable(Checked):
    """Which trained model predicts the graph of a file, what is written, and from when on the data count as drifted."""

    # The trained model: PIPELINE/NAME of a [[train]] table, or PIPELINE/NAME@VERSION for one of its models.
    model: str = field(metadata={"hashed": False})
    # Origin of neighbours: exact = all of them, layer by layer; sampled = those that [sampling] of the training draws for an evaluation.
    eval: Literal["exact", "sampled"] = "exact"
    # Whether the probabilities of all classes or labels are written.
    probabilities: bool = False
    # Number of the most probable classes of each node that are written; of links, of the best ends. 0 = none.
    top: int = field(default=0, metadata=within(0, 10**6))
    # "P": a class with a smaller probability is not given; "CLASS=P": a node is given this class from this probability on.
    thresholds: tuple[str, ...] = ()
    # Names of the node types that are predicted; "all" = every one. Empty = those that had labels in the training.
    types: tuple[str, ...] = ()
    # Of links with `top`: names of the relations; empty = all that the model predicts.
    relations: tuple[str, ...] = ()
    # Memory of exact inference, in bytes. It decides the ranges, and so how matrix products round.
    workspace: str = "1GiB"
    # Largest share of the answers that may have moved to other classes since the training; of labels, for each one.
    most_class_shift: float = field(default=0.1, metadata=within(0, 1))
    # Largest distance of a feature column's mean from that of the training, in deviations of the training; of predicted numbers, too.
    most_mean_shift: float = field(default=0.5, metadata=within(0))
    # Largest factor by which a column's deviation may be larger or smaller than in the training.
    most_deviation_factor: float = field(default=2.0, metadata=within(1))

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a text that names no model, and a size that is none."""
        yield from name_problem("model", self.model)
        yield from size_problem("workspace", self.workspace)


def parse_score(raw: Mapping[str, Any], tables: Any) -> tuple[ScoreTable | None, list[Any]]:
    """Returns the checked table `[score]`, None if the file has none or a wrong one, and all mistakes in it."""
    return (None, []) if SCORE not in raw else tables.parse(ScoreTable, raw[SCORE], (SCORE,))
