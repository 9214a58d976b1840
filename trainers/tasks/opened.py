"""Finds the task of a graph by the kind of its labels."""

from graphmill.assets.graph.read import Graph
from graphmill.assets.tasks.labels import Kind
from graphmill.trainers.tasks.classes import Classes
from graphmill.trainers.tasks.multilabel import SeveralLabels
from graphmill.trainers.tasks.regression import TargetNumbers
from graphmill.trainers.tasks.task import NodeTask

KINDS: dict[Kind, type[NodeTask]] = {"classes": Classes, "multilabel": SeveralLabels, "regression": TargetNumbers}


def open_task(graph: Graph) -> NodeTask:
    """Returns the task of a graph, by the kind of its labels."""
    return KINDS[graph.task](graph)
