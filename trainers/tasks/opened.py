"""Finds the task of a graph by the kind of its labels."""

from graphmill.assets.graph.read import Graph
from graphmill.assets.tasks.labels import LINKS, Kind
from graphmill.trainers.tasks.classes import Classes
from graphmill.trainers.tasks.edges import EdgeClasses, EdgeNumbers
from graphmill.trainers.tasks.links import LinkTask
from graphmill.trainers.tasks.multilabel import SeveralLabels
from graphmill.trainers.tasks.regression import TargetNumbers
from graphmill.trainers.tasks.task import TrainingTask

KINDS: dict[Kind, type[TrainingTask]] = {
    "classes": Classes,
    "multilabel": SeveralLabels,
    "regression": TargetNumbers,
    LINKS: LinkTask,
    "edge_classes": EdgeClasses,
    "edge_regression": EdgeNumbers,
}


def open_task(graph: Graph) -> TrainingTask:
    """Returns the task of a graph, by the kind of its labels."""
    return KINDS[graph.task](graph)
