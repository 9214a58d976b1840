"""Common code of sources whose edges go through the spool: their keys, and checks that name the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from graphmill.assets.building.keys import KeyProblem, size_problem
from graphmill.assets.sizes import parse_size
from graphmill.assets.sources.features.types import array_type
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.sources.spool import EdgeColumns, record_dtype
from graphmill.assets.sources.survey import BASE_BYTES, Survey
from graphmill.assets.tasks.relations import REVERSE

LEAST_MEMORY = 128 << 20
NODE_BYTES = 100
BATCH_ROWS = 131_072


@dataclass(frozen=True, kw_only=True)
class SpooledConfig(GraphConfig):
    """Keys of `[graph]` that sources with attributes of edges have."""

    # stores the row of each edge in its table, for edge features; rows are counted over all files or relations
    edge_ids: bool = False
    # weight of merged edges: that of the "first" row, or their "sum"
    merge_weights: Literal["first", "sum"] = "first"
    # type of reverse edges: the "same" as the edge's, or one of its "own"
    reverse_types: Literal["same", "own"] = "same"
    # working memory while building; docs/own-data.md has the peak
    memory_limit: int | str = field(default="2GiB", metadata={"hashed": False})

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a limit that is not a size, or too small."""
        yield from super().problems()
        yield from size_problem("memory_limit", self.memory_limit, least=LEAST_MEMORY)

    @property
    def memory_bytes(self) -> int:
        """The limit in bytes."""
        return parse_size(self.memory_limit)

    @property
    def duck_bytes(self) -> int:
        """The share of the limit that DuckDB gets."""
        return self.memory_bytes * 6 // 10

    @property
    def typed(self) -> bool | None:
        """Whether edges have relations; None if that shows when the data are read."""
        return None

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that edges get, as far as the keys tell: of weights, edge_types, edge_ids."""
        chosen = {"edge_ids": self.edge_ids or self.edge_rows, "edge_types": self.typed}
        return (*super().attributes, *(name for name, given in chosen.items() if given))

    @property
    def never(self) -> frozenset[str]:
        """The attributes that a graph of these keys certainly lacks."""
        plain = self.typed is False
        lacking = {"weights": not self.weighted, "edge_types": plain, "node_types": plain}
        return frozenset(name for name, lacks in lacking.items() if lacks)

    def counts_reverses(self, num_types: int) -> bool:
        """Tells whether edges that the source has in both directions count twice: also as weights that are added, or in two relations."""
        summed = self.weighted and self.merge_weights == "sum"
        return super().counts_reverses(num_types) or (self.undirected and (summed or num_types > 0))

    def columns(self, relations: Sequence[str]) -> EdgeColumns:
        """Returns the attributes that edges of some types carry."""
        return EdgeColumns(
            weights=self.weighted,
            num_types=len(relations),
            edge_ids=self.edge_ids or self.edge_rows,
            times=self.times,
            merge_weights=self.merge_weights,
            reverse_types=self.reverse_types,
        )

    def stored_types(self, relations: Sequence[str]) -> list[str]:
        """Returns the names of the edge types as they are stored, reverse ones included."""
        own = self.undirected and self.reverse_types == "own"
        return [*relations, *([f"{REVERSE}{name}" for name in relations] if own else [])]


def peak_bytes(memory_limit: int | str, num_nodes: int, row_bytes: int) -> int:
    """Returns the peak memory of an import by the formula of assets/sources/edges/source.py, for integer ids and no names.

    Args:
        row_bytes: number of bytes F w of a feature row.
    """
    return parse_size(memory_limit) + BASE_BYTES + NODE_BYTES * num_nodes + 2 * BATCH_ROWS * (row_bytes + 64)


def spooled_survey(
    config: SpooledConfig, relations: Sequence[str], num_nodes: int, num_edges: int, width: int, dtype: str, **more: Any
) -> Survey:
    """Returns the survey of a graph and of its artifacts."""
    columns, stored = config.columns(relations), num_edges * (2 if config.undirected else 1)
    return Survey(
        num_nodes=num_nodes,
        num_edges=stored,
        num_features=width,
        dtype=dtype,
        attributes=tuple(dict.fromkeys([*config.attributes, *(["edge_types"] if relations else [])])),
        edge_bytes=4 * columns.weights + (1 if relations else 0) + 8 * (columns.edge_ids + columns.times),
        memory_bytes=peak_bytes(config.memory_limit, num_nodes, width * array_type(dtype).itemsize),
        scratch_bytes=(num_edges + stored) * record_dtype(num_nodes, columns).itemsize,
        **more,
    )
