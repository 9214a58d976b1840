"""A generated graph of users and items, whose best possible ranking is known.

Users and items have a taste each, node n of a type the taste n modulo their number. A rating joins a random user with an item of the same
taste with probability `p_in`, else with any item. So nothing beyond the two tastes tells a rating, and the best answer ranks items of the
user's taste above all others. Its ROC AUC against items drawn uniformly is

    P(same | rated) P(other | drawn) + (P(same | rated) P(same | drawn) + P(other | rated) P(other | drawn)) / 2

with P(same | rated) = p_in + (1 - p_in) q and P(same | drawn) = q, the share of a taste among the items. It is published as
`best_roc_auc`. Ratings are as old as their number, so a split by time is a random one of another order.

Peak memory: 8 bytes per node, a batch of edges, and the sort of all edges out of core (assets/graph/edge_sort.py) in half of
`memory_limit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.generated.generators import GeneratedConfig, class_block, split_sizes, with_hidden
from graphmill.assets.sources.generated.typed_citation import below, chance
from graphmill.assets.sources.interface import FEATURES_TOO, TableConfig
from graphmill.assets.sources.spool import BATCH_EDGES
from graphmill.assets.sources.spooled import SpooledConfig, spooled_survey
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation, TypedGraph, TypedSource
from graphmill.kernels.rng import absorb_ids, draws, key
from graphmill.kernels.types import Array, Stream

RATES = 9
"""The word after the stream of generators; typed_citation.py and kernels/graph/generate.py have the others."""
ITEMS = 0.2
"""Share of the items among the nodes; the rest are users."""


@dataclass(frozen=True, kw_only=True)
class RatingsConfig(GeneratedConfig, SpooledConfig):
    """`[graph]` with `source = "ratings"`: users and items, with one relation."""

    # names this kind of source
    source: str = field(default="ratings", metadata=FEATURES_TOO)
    # number of users and items; draws have 31 bits
    nodes: int = field(metadata=within(1, 1 << 31, **FEATURES_TOO))
    # probability that a rated item is chosen by the user's taste
    p_in: float = field(default=0.9, metadata=within(0, 1))
    # type of reverse edges: the "same" as the edge's, or one of its "own"
    reverse_types: Literal["same", "own"] = "own"

    tasks = ("classes",)

    def problems(self) -> Iterator[KeyProblem]:
        """Yields too few nodes for an item and a user of each taste."""
        yield from super().problems()
        if min(self.node_types.values()) < self.classes:
            text = f"nodes = {self.nodes} makes {self.node_types['item']} items for classes = {self.classes} tastes"
            yield KeyProblem("nodes classes", f"{text}: give at least {6 * self.classes} nodes")

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """The splits of ratings: drawn, or by time."""
        return ("random", "time")

    @property
    def typed(self) -> bool:
        """Whether edges have relations: as nodes have types, they do."""
        return True

    @property
    def node_types(self) -> dict[str, int]:
        """Number of nodes of each type."""
        items = round(self.nodes * ITEMS)
        return {"user": self.nodes - items, "item": items}

    @property
    def best_roc_auc(self) -> float:
        """The ROC AUC of the best ranking, of the rated items of all users against uniform ones."""
        items = self.node_types["item"]
        drawn = float(np.square(np.bincount(np.arange(items) % self.classes) / items).sum())
        rated = self.p_in + (1 - self.p_in) * drawn
        return rated * (1 - drawn) + (rated * drawn + (1 - rated) * (1 - drawn)) / 2

    def draw_labels(self, threads: int) -> Array:
        """Returns the tastes of all nodes, i32[N]: users, then items."""
        return np.concatenate([np.arange(count, dtype=np.int32) % self.classes for count in self.node_types.values()])

    def draw_edges(self, threads: int, lo: int, hi: int) -> tuple[Array, Array]:
        """Returns users and items, i64[hi - lo] each, numbered within their types."""
        counts, name = self.node_types, key(self.seed, Stream.GENERATORS, RATES)
        keys = absorb_ids(name, np.arange(lo, hi), threads=threads)
        user = below(draws(keys, 0), counts["user"])
        taste = user % self.classes
        of_taste = (counts["item"] - 1 - taste) // self.classes + 1
        same = taste + self.classes * below(draws(keys, 2), of_taste)
        return user, np.where(chance(draws(keys, 1), self.p_in), same, below(draws(keys, 2), counts["item"]))

    def drawn(self, folder: Path, threads: int) -> TypedSource:
        """Returns the graph, which is drawn when it is asked for."""
        tastes, num_users = self.draw_labels(threads), self.node_types["user"]
        labels = with_hidden(self, tastes.copy())
        labels[num_users:] = -1

        def blocks(table: TableConfig) -> Sequence[FeatureBlock]:
            return [class_block(self, tastes, threads)]

        def batches() -> Iterator[EdgeBatch]:
            for low in range(0, self.edges, BATCH_EDGES):
                high = min(self.edges, low + BATCH_EDGES)
                mark = np.arange(low, high, dtype=np.float64) if self.marks == "time" else None
                yield EdgeBatch(*self.draw_edges(threads, low, high), mark=mark)

        kind, place = ("user", "rates", "item"), f"{self.source}: rating {{}}".format
        graph = TypedGraph(
            where=self.source,
            node_types=self.node_types,
            relations=[Relation(kind=kind, num_edges=self.edges, batches=batches, place=place)],
            blocks=(),
            labels=labels,
            splits=None,
            numbers={"best_roc_auc": self.best_roc_auc},
        )
        return TypedSource(graph, self, folder, blocks)

    def survey(self) -> Survey:
        """Describes the graph that would be made."""
        contents = [f"nodes of type '{name}': {count:,}" for name, count in self.node_types.items()]
        contents += [f"ratings: {self.edges:,}", f"{self.classes} tastes, noise {self.noise}"]
        return spooled_survey(
            self,
            ["user/rates/item"],
            self.nodes,
            self.edges,
            self.features,
            "float32",
            title=f"{self.source}: generated from seed {self.seed}",
            contents=contents,
            num_classes=self.classes,
            num_split=split_sizes(self, self.node_types["user"]),
        )
