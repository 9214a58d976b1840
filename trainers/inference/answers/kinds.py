"""The columns of predictions of nodes, computed from logits: each kind of task has its own.

trainers/inference/predict.py says what the columns are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.assets.tasks.labels import LINKS, labelled
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.inference.gathered import ExactRange
from graphmill.trainers.record.column_scores import in_units, standard

if TYPE_CHECKING:
    import polars
    from torch import Tensor

ROW_GROUP = 8192
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
TINY = 1e-30
"""Stands for a threshold of 0 in a ratio."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that a prediction is asked for."""

    # Whether the probabilities of all classes are written.
    probabilities: bool = False
    # Number of the most probable classes that are written, each with its probability; 0 for none.
    top: int = 0
    # "P" = a class with a smaller probability is not given; "CLASS=P" = a node is given this class if its probability is
    # at least P, and another one if not.
    thresholds: Sequence[str] = ()


class Answers(ABC):
    """Makes the columns of a prediction from logits, by kind of task; those named in `first` stand before the label and the split."""

    first: Sequence[str] = ()
    probabilities = False

    def frames(self, each: ExactRange) -> Iterator[tuple[int, polars.DataFrame]]:
        """Yields (place of its first row, the kind's first columns, further columns) of a range, in row groups."""
        import polars

        for low in range(each.low, each.high, ROW_GROUP):
            high = min(low + ROW_GROUP, each.high)
            columns, found = self.of_logits(each.logits[low - each.low : high - each.low])
            more = {} if "embedding" in columns else {"embedding": each.embeddings(low, high)}
            more |= {"probabilities": found} if self.probabilities else {}
            arrays = {
                name: polars.Series(rows.numpy(), dtype=polars.Array(polars.Float32, rows.shape[1]))
                for name, rows in more.items()
            }
            yield low, polars.DataFrame({**columns, **arrays})

    @abstractmethod
    def of_logits(self, logits: Tensor) -> tuple[dict[str, Any], Tensor]:
        """Returns name -> column of some rows, and their probabilities float[n, C]."""

    @abstractmethod
    def known(self, labels: Array) -> dict[str, polars.Series]:
        """Returns name -> column of the stored labels of some nodes, null where they are not known."""


def open_answers(graph: Graph, columns: Columns) -> Answers:
    """Returns the answers of a graph's kind of task; raises InputError for a column that the kind does not have, and a wrong threshold."""
    if graph.task == LINKS:
        return RowAnswers(columns)
    if graph.task in ("classes", "edge_classes"):
        return ClassAnswers(graph.class_names, columns)
    return LabelAnswers(graph.class_names, columns) if graph.task == "multilabel" else NumberAnswers(graph, columns)


class ClassAnswers(Answers):
    """Chooses classes from probabilities; raises InputError for a wrong threshold or class, or fewer classes than `top`."""

    first = ("class", "probability")

    def __init__(self, names: Sequence[str], columns: Columns):
        self.names, self.columns, self.probabilities = class_column(names), columns, columns.probabilities
        if columns.top > len(names):
            raise InputError(f"--top {columns.top} of {len(names)} classes", f"give at most {len(names)}")
        self.least, self.of_class = 0.0, dict[int, float]()
        for each in columns.thresholds:
            name, equals, number = each.rpartition("=")
            value = _probability(number, each)
            if not equals:
                self.least = value
            elif name not in names:
                known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
                raise InputError(f"--threshold {each} names no class of the model", f"its classes are: {known}")
            else:
                self.of_class[list(names).index(name)] = value

    def of_logits(self, logits: Tensor) -> tuple[dict[str, Any], Tensor]:
        """Returns the class of each row with its probability, and the most probable classes on request."""
        found = logits.softmax(dim=1)
        place, probability = self._chosen(found)
        columns = {"class": names_at(self.names, place), "probability": probability.float().numpy()}
        return {**columns, **self._top(found)}, found

    def known(self, labels: Array) -> dict[str, polars.Series]:
        """Returns the name of the class that each node has."""
        return {"label": names_at(self.names, labels).alias("label")}

    def _chosen(self, found: Tensor) -> tuple[Array, Tensor]:
        """Returns i64[n], the class of each row, -1 where none is given, and float[n], its probability or the largest, from float[n, C]."""
        probability, place = found.max(dim=1)
        if self.of_class:
            classes = list(self.of_class)
            bounds, own = found.new_tensor([*self.of_class.values()]), found[:, classes]
            # A class that reaches its threshold goes before the others; of several the one that is most above it, as a ratio.
            rank = found.clone()
            rank[:, classes] = (1 + own / bounds.clamp_min(TINY)).where(own >= bounds, -1)
            best, place = rank.max(dim=1)
            probability = found.gather(1, place[:, None])[:, 0].where(best >= 0, probability)
            place = place.where(best >= 0, -1)
        place = place.where(probability >= self.least, -1) if self.least else place
        return place.numpy(), probability

    def _top(self, found: Tensor) -> dict[str, polars.Series | Array]:
        """Returns the columns of the most probable classes; of equal probabilities the lowest class comes first."""
        if not self.columns.top:
            return {}
        values, places = found.sort(dim=1, descending=True, stable=True)
        columns: dict[str, polars.Series | Array] = {}
        for number in range(self.columns.top):
            columns[f"class_{number + 1}"] = self.names.gather(places[:, number].numpy())
            columns[f"probability_{number + 1}"] = values[:, number].float().numpy()
        return columns


class LabelAnswers(Answers):
    """Gives a node each label whose probability reaches a threshold, which is one half unless it is said.

    Raises:
        InputError: a threshold is not a probability or names no label, or the most probable ones are asked for.
    """

    first = ("labels",)

    def __init__(self, names: Sequence[str], columns: Columns):
        import torch

        if columns.top:
            raise InputError("--top is for one class per node", "ask for all of them: --probabilities")
        self.names, self.probabilities = list(names), columns.probabilities
        self.least = torch.full((len(names),), 0.5)
        for each in columns.thresholds:
            name, equals, number = each.rpartition("=")
            if equals and name not in names:
                known = ", ".join(self.names[:10]) + (", ..." if len(names) > 10 else "")
                raise InputError(f"--threshold {each} names no label of the model", f"its labels are: {known}")
            self.least[self.names.index(name) if equals else slice(None)] = _probability(number, each)

    def of_logits(self, logits: Tensor) -> tuple[dict[str, Any], Tensor]:
        """Returns the list of the labels of each row."""
        found = logits.sigmoid()
        return {"labels": self._listed((found >= self.least).numpy(), ...)}, found

    def known(self, labels: Array) -> dict[str, polars.Series]:
        """Returns the list of the labels that each node has; null if none of its values is known."""
        return {"label": self._listed(labels > 0, labelled(labels)).alias("label")}

    def _listed(self, given: Array, known: Any) -> polars.Series:
        import polars

        values: list[Any] = [[self.names[place] for place in np.flatnonzero(row)] for row in given]
        for row in np.flatnonzero(~known) if known is not ... else ():
            values[row] = None
        return polars.Series(values, dtype=polars.List(polars.String))


class NumberAnswers(Answers):
    """Gives numbers in their unit, a column per target; raises InputError if probabilities, classes or thresholds are asked for."""

    def __init__(self, graph: Graph, columns: Columns):
        if columns != Columns():
            raise InputError("--probabilities, --top and --threshold are for classes and labels", "leave them out")
        self.standard = standard(graph)
        one = len(graph.class_names) == 1
        self.first = ["prediction"] if one else [f"prediction_{name}" for name in graph.class_names]
        self.labels = ["label"] if one else [f"label_{name}" for name in graph.class_names]

    def of_logits(self, logits: Tensor) -> tuple[dict[str, Any], Tensor]:
        """Returns the predicted number of each target."""
        found = in_units(logits.numpy(), *self.standard).astype(np.float32)
        return dict(zip(self.first, found.T, strict=True)), logits

    def known(self, labels: Array) -> dict[str, polars.Series]:
        """Returns the numbers that each node has."""
        import polars

        columns = zip(self.labels, labels.T, strict=True)
        return {name: polars.Series(name, np.array(values)).fill_nan(None) for name, values in columns}


class RowAnswers(Answers):
    """Gives the row that a model of links computes of a node, as its embedding; raises InputError for probabilities and thresholds."""

    def __init__(self, columns: Columns):
        if columns.probabilities or columns.thresholds:
            problem = "--probabilities and --threshold are for classes and labels, and the model scores pairs"
            raise InputError(problem, "ask for the best ends of nodes, --top K, or for scores, --pairs FILE")

    def of_logits(self, logits: Tensor) -> tuple[dict[str, Any], Tensor]:
        """Returns the rows alone."""
        import polars

        rows = polars.Series(logits.float().numpy(), dtype=polars.Array(polars.Float32, logits.shape[1]))
        return {"embedding": rows}, logits

    def known(self, labels: Array) -> dict[str, polars.Series]:
        """Returns none: nodes have no labels."""
        return {}


def _probability(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(
            f"--threshold {whole} has no probability from 0 to 1", "write P or CLASS=P, such as 0.8 or fraud=0.2"
        )
    return value


def class_column(names: Sequence[str]) -> polars.Series:
    """Returns the names of classes as numbers if all are whole numbers, written as labels that were numbers are, else as texts."""
    import polars

    numbers = all(WHOLE_NUMBER.fullmatch(name) for name in names) and len(names) > 0
    column = polars.Series(list(names), dtype=polars.String)
    return column.cast(polars.Int64) if numbers else column


def names_at(names: polars.Series, places: Array) -> polars.Series:
    """Returns the name at each place, null for places below 0."""
    import polars

    found = polars.Series(np.asarray(places, np.int64))
    return names.gather(found.set(found < 0, None))
