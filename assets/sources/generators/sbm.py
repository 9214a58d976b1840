"""Stochastic block model graphs of any size: equal classes, and edges that prefer their own class.

Holland, Laskey, Leinhardt, "Stochastic blockmodels: first steps", Social Networks 1983, with a fixed number of edges.
An edge stays inside its class with probability `p_in`; otherwise it joins two classes at random.

Peak memory: 8 bytes per edge and 4 bytes per node (twice that for edges from 2^31 nodes on), and one slice of 8 MiB of
features.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from assets.building.keys import within
from assets.sources.generators.shared import (
    GeneratedConfig,
    opened_generated,
    raw_generated,
    raw_generated_features,
    survey_generated,
)
from assets.sources.registry import FEATURES_TOO
from kernels.graph.generate import sbm_edges, sbm_labels
from kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class SbmConfig(GeneratedConfig):
    """`[graph]` with `source = "sbm"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = field(default="sbm", metadata=FEATURES_TOO)
    # probability that an edge stays inside its class
    p_in: float = field(default=0.6, metadata=within(0, 1))


def _labels(config: SbmConfig, threads: int) -> Array:
    return sbm_labels(config.nodes, config.classes, config.seed, threads=threads)


def _edges(config: SbmConfig, threads: int) -> tuple[Array, Array]:
    return sbm_edges(config.nodes, config.edges, config.classes, config.p_in, config.seed, threads=threads)


opened = opened_generated(_labels, _edges)
"""Generates with `execution.threads` threads."""

raw_features = raw_generated_features
"""Digests nothing, either."""

raw = raw_generated
"""Digests nothing: everything comes from the configuration."""

survey = survey_generated
"""Describes the graph that would be generated."""
