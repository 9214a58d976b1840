"""The table of predictions: its rows, which are the nodes that are asked for, and its columns, computed from logits.

trainers/inference/predict.py says what the columns are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.assets.tasks.labels import LINKS, labelled
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.inference.gathered import ExactRange
from graphmill.trainers.record.number_scores import in_units, standard

if TYPE_CHECKING:
    import polars
    from torch import Tensor

ROW_GROUP = 8192
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
SPLITS = ("train", "valid", "test")
ALL_TYPES = "all"
TINY = 1e-30
"""Stands for a threshold of 0 in a ratio."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that a prediction is asked for.

    Attributes:
        probabilities: whether the probabilities of all classes are written.
        top: number of the most probable classes that are written, each with its probability; 0 for none.
        thresholds: "P" = a class with a smaller probability is not given; "CLASS=P" = a node is given this class if its probability is
            at least P, and another one if not.
    """

    probabilities: bool = False
    top: int = 0
    thresholds: Sequence[str] = ()


class Answers(ABC):
    """Makes the columns of a prediction from logits; each kind of task has its own.

    Attributes:
        first: names of the columns that stand before the label and the split.
    """

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
    """Returns the answers of a graph's kind of task.

    Raises:
        InputError: a column is asked for that the kind does not have, or a threshold is wrong.
    """
    if graph.task == LINKS:
        return RowAnswers(columns)
    if graph.task == "classes":
        return ClassAnswers(graph.class_names, columns)
    return LabelAnswers(graph.class_names, columns) if graph.task == "multilabel" else NumberAnswers(graph, columns)


class ClassAnswers(Answers):
    """Chooses classes from probabilities.

    Args:
        columns: the columns that are asked for.

    Raises:
        InputError: a threshold is not a probability or names no class, or there are fewer classes than `top`.
    """

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
        columns = {"class": _named(self.names, place), "probability": probability.float().numpy()}
        return {**columns, **self._top(found)}, found

    def known(self, labels: Array) -> dict[str, polars.Series]:
        """Returns the name of the class that each node has."""
        return {"label": _named(self.names, labels).alias("label")}

    def _chosen(self, found: Tensor) -> tuple[Array, Tensor]:
        """Returns i64[n], the class of each row, -1 where none is given, and float[n], its probability or the largest.

        Args:
            found: float[n, C], probabilities.
        """
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
    """Gives the numbers of a node in their unit, a column for each target.

    Raises:
        InputError: probabilities, classes or thresholds are asked for.
    """

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
    """Gives the row that a model of links computes of a node, as its embedding.

    Raises:
        InputError: probabilities or thresholds are asked for.
    """

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


@dataclass(frozen=True, kw_only=True)
class AskedNodes:
    """The nodes that are predicted: whole ranges of ids, or some nodes of them.

    Attributes:
        ranges: (low, high), ascending and apart, the ids of the node types that are asked for.
        named: ids[n], ascending, the nodes of the ranges that a file names; None for all of them.
    """

    num_nodes: int
    ranges: Sequence[tuple[int, int]]
    named: Array | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Number of nodes."""
        return sum(high - low for low, high in self.ranges) if self.named is None else len(self.named)

    def ids(self) -> Array | None:
        """Returns ids[n], ascending; None for all nodes of the graph."""
        if self.named is None and self.count < self.num_nodes:
            dtype = np.int32 if self.num_nodes <= np.iinfo(np.int32).max else np.int64
            return np.concatenate([np.arange(low, high, dtype=dtype) for low, high in self.ranges])
        return self.named

    def places(self, low: int, high: int) -> Array:
        """Returns i64[k], the asked nodes among those from low to high, counted from low."""
        if self.named is not None:
            start, stop = np.searchsorted(self.named, (low, high))
            return self.named[start:stop] - low
        clipped = [(max(low, first), min(high, last)) for first, last in self.ranges]
        return np.concatenate([np.arange(first, max(first, last)) - low for first, last in clipped])


def asked_nodes(graph: Graph, nodes: Path, types: Sequence[str], named: Path | None) -> AskedNodes:
    """Returns the nodes that are predicted.

    Args:
        nodes: its Parquet file of nodes.
        types: names of node types; "all" for all of them; none for those that have nodes in the split, whose labels the model has learnt.
        named: a file that names nodes of these types (`named_nodes`); None for all nodes of these types.

    Raises:
        InputError: the graph has no such type, or the file names other nodes.
    """
    num_nodes = graph.topology.num_nodes
    ranges = _ranges(graph, types)
    ids = None if named is None else named_nodes(named, nodes, ranges)
    return AskedNodes(num_nodes=num_nodes, ranges=ranges, named=ids)


def labelled_types(graph: Graph) -> list[str]:
    """Returns the names of the node types that have nodes in the split; none if nodes have no types."""
    starts = graph.topology.node_type_ptr
    if not graph.node_types or starts is None:
        return []
    held = np.sum([np.diff(np.searchsorted(ids, starts)) for ids in graph.splits], axis=0)
    return [name for name, count in zip(graph.node_types, held, strict=True) if count]


def _ranges(graph: Graph, types: Sequence[str]) -> list[tuple[int, int]]:
    starts, known = graph.topology.node_type_ptr, graph.node_types
    if wrong := [each for each in types if each not in known and each != ALL_TYPES]:
        there = f"its types are: {', '.join(known)}" if known else "its nodes have no types: leave --type out"
        raise InputError(f"the graph has no node type {wrong[0]!r}", there)
    chosen = [*types] or labelled_types(graph)
    if not chosen or starts is None or (ALL_TYPES in chosen and ALL_TYPES not in known):
        return [(0, graph.topology.num_nodes)]
    return [(int(starts[place]), int(starts[place + 1])) for place, name in enumerate(known) if name in chosen]


def named_nodes(path: Path, nodes: Path, ranges: Sequence[tuple[int, int]]) -> Array:
    """Returns i64[n], ascending, the nodes that a file names by their ids in the raw data, each once.

    Args:
        path: a Parquet or CSV file with a column `node_id` (as `predict` writes it), or a text file with one id per line.
        nodes: the graph's Parquet file of nodes.
        ranges: (low, high), the ids of the nodes that may be named.

    Raises:
        InputError: the file cannot be read, names no node, or names one that the graph does not have.
    """
    import polars

    remedy = "give a .parquet or .csv file with a column node_id, or a .txt file with one id per line"
    inside = reduce(or_, (polars.col("node_id").is_between(low, high, closed="left") for low, high in ranges))
    known = polars.scan_parquet(nodes, glob=False).select("node_id", "original_id").filter(inside)
    try:
        if path.suffix == ".txt":
            ids = polars.Series("original_id", path.read_text(encoding="utf-8").split())
        else:
            read = {".parquet": polars.read_parquet, ".csv": polars.read_csv}[path.suffix]
            ids = read(path, columns=["node_id"], glob=False)["node_id"].alias("original_id")
        ids = ids.cast(known.collect_schema()["original_id"]).unique()
    except KeyError:
        raise InputError(f"{path} is no file of nodes", remedy) from None
    except (OSError, UnicodeDecodeError, polars.exceptions.PolarsError) as error:
        raise InputError(f"the nodes in {path} cannot be read: {error}", remedy) from error
    if not len(ids):
        raise InputError(f"{path} names no node", remedy)
    found = known.join(ids.to_frame().lazy(), on="original_id", how="semi").collect()
    # In a graph with node types an id may be that of several nodes, one of each type.
    if found["original_id"].n_unique() < len(ids):
        missing = ids.filter(~ids.is_in(found["original_id"].implode()))
        some = ", ".join(map(str, missing.head(3).to_list()))
        problem = f"{path} names {len(missing):,} nodes that the graph does not have: {some}"
        raise InputError(
            problem, "give ids of the raw data, of the node types that are predicted; `graphmill sql` shows them"
        )
    return np.sort(found["node_id"].to_numpy()).astype(np.int64)


class NodeFacts:
    """A graph's facts about nodes beside a prediction: original id, label and part of the split.

    Args:
        nodes: the graph's Parquet file of nodes.
        graph: the graph with labels and split.
        asked: the nodes that are predicted.
        answers: the kind of the answers.
    """

    def __init__(self, nodes: Path, graph: Graph, asked: AskedNodes, answers: Answers):
        import polars

        self.answers, self.asked = answers, asked
        self._original = polars.scan_parquet(nodes, glob=False).select(polars.col("original_id").alias("node_id"))
        self._types, self._type_ptr = polars.Series(list(graph.node_types)), graph.topology.node_type_ptr
        self._labels, self._splits = graph.labels, polars.Series(list(SPLITS))
        self._split_of = np.full(graph.topology.num_nodes, -1, np.int8)
        for place, ids in enumerate(graph.splits):
            self._split_of[np.asarray(ids)] = place

    def beside(self, low: int, frame: polars.DataFrame) -> polars.DataFrame:
        """Returns predictions of nodes low, low + 1, ... with the facts about these nodes; only those that are asked for."""
        high = low + len(frame)
        known = self._original.slice(low, len(frame)).collect()
        if len(self._types) and self._type_ptr is not None:
            place = np.searchsorted(self._type_ptr, np.arange(low, high), side="right") - 1
            known = known.with_columns(self._types.gather(place).alias("node_type"))
        label = self.answers.known(self._labels[low:high]).values()
        split = [_named(self._splits, self._split_of[low:high]).alias("split")] if label else []
        first = self.answers.first
        table = known.hstack(frame.select(first)).hstack([*label, *split]).hstack(frame.drop(first))
        places = self.asked.places(low, high)
        return table if len(places) == len(table) else table[places]


def class_column(names: Sequence[str]) -> polars.Series:
    """Returns the names of classes as numbers if all are whole numbers, written as labels that were numbers are, else as texts."""
    import polars

    numbers = all(WHOLE_NUMBER.fullmatch(name) for name in names) and len(names) > 0
    column = polars.Series(list(names), dtype=polars.String)
    return column.cast(polars.Int64) if numbers else column


def _named(names: polars.Series, places: Array) -> polars.Series:
    """Returns the name at each place, null for places below 0."""
    import polars

    found = polars.Series(np.asarray(places, np.int64))
    return names.gather(found.set(found < 0, None))
