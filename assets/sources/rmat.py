"""R-MAT graphs of any size: skewed degrees, nested communities, labels that the neighbours tell.

R-MAT (Chakrabarti, Zhan, Faloutsos, "R-MAT: A recursive model for graph mining", SDM 2004) drops each edge into the
adjacency matrix by choosing one quadrant at each of log2(N) levels. A node's class is the leading bits of its
unscrambled id, so an edge joins equal classes more often than chance exactly when a*d > b*c. Graph500's corner (0.57,
0.19, 0.19, 0.05) has a*d < b*c: its neighbours say nothing about
such a class. The default here keeps the skew and has communities: a = 0.45, b = c = 0.15, d = 0.25.

Features are a class centroid plus noise. The default noise leaves one row ambiguous, while the mean over a
neighbourhood is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from assets.sources.registry import GraphConfig
from kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Config(GraphConfig):
    """`[graph]` with `source = "rmat"`.

    Raises:
        InputError: a value is outside its range.
    """

    source: str = "rmat"
    # number of nodes, any number from 1
    nodes: int
    # edges drawn, before reverse edges are added and duplicates merged
    edges: int
    # feature columns
    features: int = 32
    # a power of two: one bit of the unscrambled id for each doubling
    classes: int = 8
    # standard deviation of the feature noise, where the class centroids have unit entries
    noise: float = 4.0
    # probabilities of the upper left, upper right and lower left quadrant; the lower right one takes the rest
    a: float = 0.45
    b: float = 0.15
    c: float = 0.15

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        require_sizes(self.nodes, self.edges, self.features, self.classes, self.noise)
        if self.classes & (self.classes - 1):
            raise InputError(f"classes = {self.classes} is not a power of two", "give 2, 4, 8, ...")
        rest = 1 - self.a - self.b - self.c
        if min(self.a, self.b, self.c) < 0 or rest < -1e-9:
            raise InputError(
                f"a = {self.a}, b = {self.b}, c = {self.c} are no probabilities",
                "give values of 0 or more with a sum of at most 1",
            )


def require_sizes(nodes: int, edges: int, features: int, classes: int, noise: float) -> None:
    """Raises InputError unless the sizes of a generated graph are possible."""
    if nodes < 1 or edges < 1 or features < 1:
        raise InputError(
            f"nodes = {nodes}, edges = {edges}, features = {features}: each must be at least 1", "give positive counts"
        )
    if not 1 <= classes <= nodes:
        raise InputError(f"classes = {classes} is outside [1, nodes = {nodes}]", "give at most one class a node")
    if not 0 <= noise < 2**15:
        raise InputError(f"noise = {noise} is outside [0, 32768)", "give a standard deviation, for example 2.0")
