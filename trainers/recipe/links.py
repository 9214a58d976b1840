"""What a training of links cannot do: trainers, models, ways of sampling and devices, each with the key at which it is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.tasks.labels import LINKS
from graphmill.trainers.recipe.architecture import DISTANCE_HEADS
from graphmill.trainers.recipe.techniques import find_technique

OF_PAIRS = ("auc", "ap")
"""Metrics of links that need no row but those of ends of edges and of one other pair for each."""
SEES_LINKS = "passes messages over the links that it predicts while it trains, so its loss says little"
"""What a training does whose batches keep the links that they predict."""


def link_problems(
    train: Any, kind: str, sampling: Neighbours | None, on_gpu: bool, stored: bool
) -> Iterator[tuple[str, str]]:
    """Yields the problems of a training on edges, each with the key of the train table at which it is told.

    Args:
        sampling: `[sampling]`; None without it.
    """
    yield from _technique_problems(train, stored)
    table = f'[task] kind = "{kind}"'
    method, timed = (None, False) if sampling is None else (sampling.method, sampling.before is not None)
    if train.eval == "sampled" and not timed:
        text = "reads the rows of all nodes, which an exact evaluation computes"
        yield "eval", f'eval = "sampled", but {table} {text}: remove the key'
    if timed and kind == LINKS and train.metric not in OF_PAIRS:
        text = "ranks links among the rows of all nodes, which differ as of the time of each link"
        yield "metric", f'metric = "{train.metric}" {text}, and [sampling] before = "seed": set metric = "auc" or "ap"'
    if method is not None and method not in ("uniform", "weighted"):
        text = "may pass the edges that are predicted" if method == "random_walk" else "is not known to leave them out"
        text = f'[sampling] method = "{method}" {text}, and {table} leaves them out'
        yield "trainer", f'{text}: set method = "uniform"'
    if on_gpu:
        yield "device", f'{table} trains on the CPU alone yet: set device = "cpu"'
    if train.model == "rows" and train.optimizer == "sgd":
        yield "optimizer", 'optimizer = "sgd", but model = "rows" updates its rows by Adam: set optimizer = "adam"'
    if train.link_loss == "binary" and train.link_head in DISTANCE_HEADS:
        text = f'link_loss = "binary" takes scores as logits, and those of link_head = "{train.link_head}" are negative distances'
        yield "link_loss", f'{text}: set link_loss = "bpr" or "margin"'
    if train.margin != 1.0 and train.link_loss != "margin":
        text = f'margin = {train.margin:g} is for link_loss = "margin", not for {train.link_loss!r}'
        yield "margin", f"{text}: remove the key"


def _technique_problems(train: Any, stored: bool) -> Iterator[tuple[str, str]]:
    technique, given = find_technique(train.trainer), f'trainer = "{train.trainer}"'
    packed = train.own_settings.rows == "packed" and not technique.halves  # which trains no packed rows of parts at all
    if technique.halves and train.model == "rows":
        yield "model", f'model = "rows" has no layers, and {given} computes layer by layer: take another trainer'
    elif technique.own_shards and (packed or stored):
        yield "trainer", f'{given} draws batches of links on each rank: leave out samples and rows = "packed"'
    if technique.whole_graph and train.exclude_targets:
        text = "passes messages over all edges, those that it predicts among them"
        yield "exclude_targets", f"exclude_targets = true, but {given} {text}: set exclude_targets = false"
