"""R-MAT graphs of any size: skewed degrees, nested communities, labels that neighbours predict.

R-MAT (Chakrabarti, Zhan, Faloutsos, "R-MAT: A recursive model for graph mining", SDM 2004) drops each edge into the
adjacency matrix by choosing one quadrant at each of log2(N) levels. A class is a range of the unscrambled ids, the
leading levels, so an edge joins equal classes more often than chance exactly when a*d > b*c. Graph500's corner (0.57,
0.19, 0.19, 0.05) has a*d < b*c: there the neighbours do not predict the class. The default here keeps the skew
and has communities: a = 0.5, b = c = 0.1, d = 0.3.

Features are a class centroid plus noise. The default noise leaves one row ambiguous, while the mean over a
neighbourhood is not.

Peak memory: 8 bytes per edge and 4 bytes per node (twice that for edges from 2^31 nodes on), and one slice of 8 MiB of
features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from assets.building.keys import KeyProblem
from assets.sources.generators.shared import (
    GeneratedConfig,
    opened_generated,
    raw_generated,
    raw_generated_features,
    survey_generated,
)
from assets.sources.registry import FEATURES_TOO
from kernels.graph.generate import rmat_edges, rmat_labels
from kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class RmatConfig(GeneratedConfig):
    """`[graph]` with `source = "rmat"`.

    Raises:
        InputError: a value is outside its range.
    """

    # names this kind of source
    source: str = field(default="rmat", metadata=FEATURES_TOO)
    # probabilities of the upper left, upper right and lower left quadrant; the lower right one takes the rest
    a: float = 0.5
    b: float = 0.1
    c: float = 0.1

    def problems(self) -> Iterator[KeyProblem]:
        """Yields shares that are not probabilities."""
        yield from super().problems()
        if min(self.a, self.b, self.c) < 0 or self.a + self.b + self.c > 1:
            text = f"a = {self.a}, b = {self.b}, c = {self.c} are not probabilities: give values of 0 or more with a sum of at most 1"
            yield KeyProblem("a b c", text)


def _labels(config: RmatConfig, threads: int) -> Array:
    return rmat_labels(config.nodes, config.classes, config.seed, threads=threads)


def _edges(config: RmatConfig, threads: int) -> tuple[Array, Array]:
    quadrants = (config.a, config.b, config.c, max(0.0, 1 - config.a - config.b - config.c))
    return rmat_edges(config.nodes, config.edges, config.seed, quadrants, threads=threads)


opened = opened_generated(_labels, _edges)
"""Generates with `execution.threads` threads."""

raw_features = raw_generated_features
"""Digests nothing, either."""

raw = raw_generated
"""Digests nothing: everything comes from the configuration."""

survey = survey_generated
"""Describes the graph that would be generated."""
