"""Stochastic block model graphs of any size: equal classes, and edges that prefer their own class.

Holland, Laskey, Leinhardt, "Stochastic blockmodels: first steps", Social Networks 1983, with a fixed number of edges.
An edge stays inside its class with probability `p_in`; otherwise it joins two classes at random.
"""

from __future__ import annotations

from dataclasses import dataclass

from assets.sources.registry import GraphConfig
from assets.sources.rmat import require_sizes
from kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Config(GraphConfig):
    """`[graph]` with `source = "sbm"`.

    Raises:
        InputError: a value is outside its range.
    """

    source: str = "sbm"
    # number of nodes
    nodes: int
    # edges drawn, before reverse edges are added and duplicates merged
    edges: int
    # feature columns
    features: int = 32
    # number of classes, of nearly equal size
    classes: int = 8
    # standard deviation of the feature noise, where the class centroids have unit entries
    noise: float = 4.0
    # probability that an edge stays inside its class
    p_in: float = 0.8

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        require_sizes(self.nodes, self.edges, self.features, self.classes, self.noise)
        if not 0 <= self.p_in <= 1:
            raise InputError(f"p_in = {self.p_in} is no probability", "give a value from 0 to 1")
