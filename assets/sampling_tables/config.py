"""The configuration that the sampling_tables stage hashes of `[sampling]`."""

from dataclasses import dataclass

from graphmill.assets.sampling.config import Neighbours, weight_table
from graphmill.kernels.sampling.alias import EmptyRows


@dataclass(frozen=True, kw_only=True)
class TablesConfig:
    """The stage's hashed configuration; `tables_config` makes it."""

    # "edge", or "node:COLUMN"
    weights: str
    # treatment of a row whose weights are all 0
    empty_rows: EmptyRows

    @property
    def column(self) -> str:
        """Name of the column with the weights of nodes, "" for weights of edges."""
        return self.weights.partition(":")[2]

    @property
    def feature_table(self) -> str | None:
        """Name of the feature table with the weights, "" for the main one; None if no feature table has them."""
        return weight_table(self.weights)


def tables_config(neighbours: Neighbours) -> TablesConfig | None:
    """Returns the configuration of weighted sampling, None for other methods."""
    if neighbours.method != "weighted":
        return None
    return TablesConfig(weights=neighbours.weights, empty_rows=neighbours.empty_rows)
