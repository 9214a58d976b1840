"""Citation-like graphs of any size: communities, and a preference for papers that are cited often already.

Nodes come one after the other and cite earlier ones, mostly of their own class; some citations are copied from the cited papers
(`kernels/graph/generate.py` names the models). In-degrees have a heavy tail whose weight `p_copy` sets.

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
from kernels.graph.generate import citation_edges, citation_labels
from kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class CitationConfig(GeneratedConfig):
    """`[graph]` with `source = "citation"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = field(default="citation", metadata=FEATURES_TOO)
    # probability that a node looks for a paper to cite in its own class
    p_in: float = field(default=0.8, metadata=within(0, 1))
    # probability that it copies a citation of the paper it found: the preference for papers that are cited often
    p_copy: float = field(default=0.3, metadata=within(0, 1))


def _labels(config: CitationConfig, threads: int) -> Array:
    return citation_labels(config.nodes, config.classes, config.seed, threads=threads)


def _edges(config: CitationConfig, threads: int) -> tuple[Array, Array]:
    shares = config.p_in, config.p_copy
    return citation_edges(config.nodes, config.edges, config.classes, *shares, config.seed, threads=threads)


opened = opened_generated(_labels, _edges)
"""Generates with `execution.threads` threads."""

raw_features = raw_generated_features
"""Digests nothing, either."""

raw = raw_generated
"""Digests nothing: everything comes from the configuration."""

survey = survey_generated
"""Describes the graph that would be generated."""
