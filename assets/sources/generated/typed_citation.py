"""A generated graph of papers, authors and institutions, in the shape of MAG240M (Hu et al., "OGB-LSC", 2021).

    paper cites paper                      as `source = "citation"` draws citations
    author writes paper                    an author of the paper's class, more often one who writes much
    author affiliated_with institution     every author has one before another has a second

Papers have features and labels, authors and institutions have neither: their class decides only which edges they get. Numbers of nodes and
edges of each kind are in the proportions of MAG240M. Every edge is a function of its number, so a graph of any size is drawn in batches.

Peak memory: 4 bytes per node for the labels, 4 per paper for the classes, a batch of edges, and the sort of all edges out of core
(assets/graph/edge_sort.py) in half of `memory_limit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.generated.drawn_labels import task_labels
from graphmill.assets.sources.generated.generators import GeneratedConfig, class_block, split_sizes, with_hidden
from graphmill.assets.sources.interface import FEATURES_ONLY, FEATURES_TOO, TableConfig
from graphmill.assets.sources.spool import BATCH_EDGES
from graphmill.assets.sources.spooled import SpooledConfig, spooled_survey
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation, TypedGraph, TypedSource
from graphmill.assets.tasks.labels import CLASSES, no_labels
from graphmill.kernels.graph.generate import citation_edges, citation_labels
from graphmill.kernels.rng import absorb_ids, draws, key
from graphmill.kernels.types import Array, Stream

WRITES, AFFILIATED = 7, 8
"""The words after the stream for two relations; kernels/graph/generate.py has the others."""
LABELS = 16, 17
"""The words for several labels and for numbers, since those of other generators are taken."""
PAPERS, INSTITUTIONS = 0.4986, 1 / 9_500
"""Shares of the nodes; the rest are authors."""
CITATIONS, AFFILIATIONS = 0.7508, 0.0258
"""Shares of the edges; the rest are of authors to their papers."""


@dataclass(frozen=True, kw_only=True)
class TypedCitationConfig(GeneratedConfig, SpooledConfig):
    """`[graph]` with `source = "typed_citation"`: papers, authors and institutions, with three relations."""

    # names this kind of source
    source: str = field(default="typed_citation", metadata=FEATURES_TOO)
    # number of nodes of all types; draws have 31 bits
    nodes: int = field(metadata=within(1, 1 << 32, **FEATURES_TOO))
    # feature columns of the papers, stored as float16
    features: int = field(default=768, metadata=within(1, 1 << 24, **FEATURES_ONLY))
    # probability that an end of an edge is of the class of the other
    p_in: float = field(default=0.8, metadata=within(0, 1))
    # probability that a paper copies a citation of the paper it found
    p_copy: float = field(default=0.3, metadata=within(0, 1))
    # type of reverse edges: the "same" as the edge's, or one of its "own"
    reverse_types: Literal["same", "own"] = "own"

    def problems(self) -> Iterator[KeyProblem]:
        """Yields too few nodes for one of each class and type."""
        yield from super().problems()
        if min(self.node_types.values()) < self.classes:
            text = (
                f"nodes = {self.nodes} makes {self.node_types['paper']} papers and classes = {self.classes}, and each type needs a "
                f"node per class: give at least {4 * self.classes} nodes"
            )
            yield KeyProblem("nodes classes", text)

    @property
    def typed(self) -> bool:
        """Whether edges have relations: they do."""
        return True

    @property
    def node_types(self) -> dict[str, int]:
        """Number of nodes of each type."""
        papers, institutions = round(self.nodes * PAPERS), max(self.classes, round(self.nodes * INSTITUTIONS))
        return {"paper": papers, "author": self.nodes - papers - institutions, "institution": institutions}

    @property
    def relations(self) -> dict[str, int]:
        """Number of drawn edges of each relation."""
        cites, affiliated = round(self.edges * CITATIONS), round(self.edges * AFFILIATIONS)
        kinds = "paper/cites/paper", "author/writes/paper", "author/affiliated_with/institution"
        return dict(zip(kinds, (cites, self.edges - cites - affiliated, affiliated), strict=True))

    def draw_labels(self, threads: int) -> Array:
        """Returns the classes of the papers, i32[P]."""
        return citation_labels(self.node_types["paper"], self.classes, self.seed, threads=threads)

    def drawn(self, folder: Path, threads: int) -> TypedSource:
        """Returns the graph, which is drawn when it is asked for."""
        drawn = Drawn(self, threads)
        return TypedSource(drawn.graph(), self, folder, drawn.blocks)

    def survey(self) -> Survey:
        """Describes the graph that would be made."""
        contents = [f"nodes of type '{name}': {count:,}" for name, count in self.node_types.items()]
        contents += [f"edges {name}: {count:,}" for name, count in self.relations.items()]
        contents += [f"{self.classes} classes of papers, noise {self.noise}"]
        return spooled_survey(
            self,
            list(self.relations),
            self.nodes,
            self.edges,
            self.features,
            "float16",
            title=f"{self.source}: generated from seed {self.seed}",
            contents=contents,
            num_without_features=self.nodes - self.node_types["paper"],
            num_classes=1 if self.task == "regression" else self.classes,
            num_split=split_sizes(self, self.node_types["paper"]),
        )


class Drawn:
    """The parts of the graph, drawn when they are asked for."""

    def __init__(self, config: TypedCitationConfig, threads: int):
        self.config, self.threads = config, threads

    @cached_property
    def classes(self) -> Array:
        """The classes of the papers, i32[P]."""
        return self.config.draw_labels(self.threads)

    def graph(self) -> TypedGraph:
        """Returns everything but the features; edges are drawn when they are read."""
        config = self.config
        hidden = with_hidden(config, self.classes.copy())
        known, names, best = task_labels(config.task, self.classes, hidden, config.classes, config.seed, LABELS)
        labels = no_labels(config.task, config.nodes, known.shape[-1])
        labels[: len(known)] = known
        draw = dict(zip(config.relations, (self._cites, self._writes, self._affiliated), strict=True))
        return TypedGraph(
            where=config.source,
            node_types=config.node_types,
            relations=[self._relation(name, count, draw[name]) for name, count in config.relations.items()],
            blocks=(),
            labels=labels,
            class_names=None if config.task == CLASSES else names,
            splits=None,
            numbers=best,
        )

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the rows of the papers, f16[P, F]: the centroid of the paper's class plus noise."""
        block = class_block(self.config, self.classes, self.threads)
        slices = block.slices
        narrow = lambda: ((low, rows.astype(np.float16)) for low, rows in slices())  # noqa: E731
        return [replace(block, dtype=np.dtype(np.float16), slices=narrow)]

    def _relation(self, name: str, count: int, draw: Any) -> Relation:
        def batches() -> Iterator[EdgeBatch]:
            for low in range(0, count, BATCH_EDGES):
                yield EdgeBatch(*draw(low, min(count, low + BATCH_EDGES)))

        source, relation, target = name.split("/")
        return Relation(
            kind=(source, relation, target), num_edges=count, batches=batches, place=lambda row: f"{name}: edge {row}"
        )

    def _cites(self, low: int, high: int) -> tuple[Array, Array]:
        config = self.config
        papers, drawn = config.node_types["paper"], config.relations["paper/cites/paper"]
        shares = config.p_in, config.p_copy
        return citation_edges(
            papers, drawn, config.classes, *shares, config.seed, threads=self.threads, lo=low, hi=high
        )

    def _writes(self, low: int, high: int) -> tuple[Array, Array]:
        counts = self.config.node_types
        drawn = self._draws(WRITES, low, high, 5)
        paper = below(drawn[0], counts["paper"])
        # The smallest of three: authors of low numbers write more.
        author = self._of_class(self.classes[paper], counts["author"], drawn[1], np.minimum.reduce(drawn[2:]))
        return author, paper

    def _affiliated(self, low: int, high: int) -> tuple[Array, Array]:
        counts = self.config.node_types
        drawn = self._draws(AFFILIATED, low, high, 2)
        author = np.arange(low, high) % counts["author"]
        # The class of an author or institution is its number modulo the number of classes.
        return author, self._of_class(author % self.config.classes, counts["institution"], *drawn)

    def _of_class(self, classes: Array, count: int, inside: Array, pick: Array) -> Array:
        """Returns i64[n], nodes of a type: of the given classes with `p_in`, else any; the u64[n] draws decide the class and the node."""
        of_class = (count - 1 - classes) // self.config.classes + 1
        same = classes + self.config.classes * below(pick, of_class)
        return np.where(chance(inside, self.config.p_in), same, below(pick, count))

    def _draws(self, word: int, low: int, high: int, count: int) -> list[Array]:
        """Returns `count` draws u64[high - low] of each edge."""
        keys = absorb_ids(key(self.config.seed, Stream.GENERATORS, word), np.arange(low, high), threads=self.threads)
        return [draws(keys, number) for number in range(count)]


def below(drawn: Array, count: Array | int) -> Array:
    """Returns i64[n] in 0 to count - 1 from draws u64[n], by the high half of a product; counts are below 2^31."""
    return ((drawn >> np.uint64(33)).astype(np.int64) * count) >> 31


def chance(drawn: Array, probability: float) -> Array:
    """Returns bool[n], true with a probability, which is rounded to 32 bits, from draws u64[n]."""
    return (drawn >> np.uint64(32)) < np.uint64(round(probability * 2**32))
