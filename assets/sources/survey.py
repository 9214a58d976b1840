"""The contents of a source and the memory and disk of its build, before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from graphmill.assets.costs.needs import Sizes, Term
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.features.types import array_type
from graphmill.kernels.errors import InputError, one_line
from graphmill.kernels.types import id_dtype

BASE_BYTES = 512 << 20
"""Memory of Python and the libraries that an import loads, rounded up."""

UNTOLD = ("phases", "held_after", "features_memory", "type_widths", "errors")
"""Fields that `values` leaves out."""


@dataclass(frozen=True, kw_only=True)
class TableSize:
    """The size of one feature table.

    Attributes:
        name: name of its step, "features" for the main table.
    """

    name: str
    num_nodes: int
    num_rows: int
    width: int
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Number of bytes of its rows, and of the row of each node if some have none."""
        row_of_bytes = self.num_nodes * id_dtype(self.num_nodes).itemsize if self.num_rows < self.num_nodes else 0
        return self.num_rows * self.width * array_type(self.dtype).itemsize + row_of_bytes

    def line(self) -> str:
        """Returns the line of the report."""
        per_node = f"for {self.num_rows:,} of the nodes" if self.num_rows < self.num_nodes else "per node"
        return f"{self.name:9} {self.width:,} {self.dtype} {per_node}, {format_bytes(self.num_bytes)}"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The report of `graphmill inspect`.

    Attributes:
        title: name of the source, and its place.
        contents: one line per thing that the source holds.
        num_edges: number of stored edges, reverse ones included; fewer if duplicates merge and self-loops are dropped.
        num_without_features: number of nodes that have no features and take no space.
        attributes: attributes of the edges that are stored: of weights, edge_types, edge_ids.
        edge_bytes: bytes of the attributes of one stored edge, beside its source.
        memory_bytes: peak memory while building, by the formula of the source.
        scratch_bytes: bytes of disk that are used while building and free afterwards.
        tables: the feature tables of a pipeline; () for the one of `num_features`.
        problems: what a build would refuse, as far as it was looked for.
        not_checked: what was not looked at, in words; "" if no problems were looked for.
        num_classes: number of classes; 0 if it is not known.
        num_dropped_edges: number of edges without both ends that are left out, if it was looked for.
        num_split: most nodes of the training, validation and test splits; None for all nodes.
        phases: what the phases of the build hold, if the source knows it to some percent, rather than `memory_bytes` alone.
        held_after, features_memory: with phases, what is held when the graph is there, and while features are written.
        type_widths: columns of the node types' own features, 0 for a type without; () for a source without node types.
        key: the key of `[graph]` that lowers `memory_bytes`, "" if none does.
    """

    title: str
    contents: Sequence[str]
    num_nodes: int
    num_edges: int
    num_features: int
    dtype: str
    num_without_features: int = 0
    attributes: tuple[str, ...] = ()
    edge_bytes: int = 0
    memory_bytes: int
    scratch_bytes: int = 0
    tables: Sequence[TableSize] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    problems: Sequence[str] = ()
    errors: Sequence[InputError] = ()
    not_checked: str = ""
    num_classes: int = 0
    num_dropped_edges: int = 0
    num_split: tuple[int, int, int] | None = None
    phases: tuple[tuple[Term, ...], ...] = ()
    held_after: tuple[Term, ...] = ()
    features_memory: tuple[Term, ...] = ()
    type_widths: tuple[int, ...] = ()
    key: str = ""

    @property
    def topology_bytes(self) -> int:
        """Number of bytes of indptr, indices, degrees and attributes."""
        return 16 * self.num_nodes + self.num_edges * (id_dtype(self.num_nodes).itemsize + self.edge_bytes)

    @property
    def feature_tables(self) -> Sequence[TableSize]:
        """All feature tables, or the source's own one."""
        num_rows = self.num_nodes - self.num_without_features
        own = TableSize(
            name="features", num_nodes=self.num_nodes, num_rows=num_rows, width=self.num_features, dtype=self.dtype
        )
        return self.tables or (own,)

    @property
    def table_bytes(self) -> int:
        """Number of bytes of all feature tables."""
        return sum(table.num_bytes for table in self.feature_tables)

    @property
    def source_bytes(self) -> int:
        """Bytes of memory beside Python and its libraries."""
        return max(0, self.memory_bytes - BASE_BYTES)

    @property
    def sizes(self) -> Sizes:
        """The most that a graph and the feature table of the source can be."""
        train, valid, test = self.num_split or (self.num_nodes,) * 3
        return Sizes(
            num_nodes=self.num_nodes,
            num_edges=self.num_edges,
            num_train=train,
            num_valid=valid,
            num_test=test,
            num_classes=self.num_classes,
            num_rows=self.num_nodes - self.num_without_features,
            width=self.num_features,
            row_bytes=self.num_features * array_type(self.dtype).itemsize,
            type_widths=self.type_widths,
            survey=self,
        )

    def stored_as(self, dtype: str) -> Survey:
        """Returns the survey for another type of stored values; "as stored" changes nothing."""
        return self if dtype == "as stored" else replace(self, dtype=dtype)

    @property
    def stored_bytes(self) -> int:
        """Most bytes in the store."""
        return self.topology_bytes + self.table_bytes + 20 * self.num_nodes

    def values(self) -> dict[str, Any]:
        """Returns everything as JSON-ready values: the fields, and the bytes that follow from them."""
        names = ("topology_bytes", "table_bytes", "stored_bytes")
        own = {name: value for name, value in asdict(self).items() if name not in UNTOLD}
        return own | {name: getattr(self, name) for name in names}

    def lines(self) -> list[str]:
        """Returns the report."""
        remarks = [*map(one_line, self.notes), *(f"cannot be built: {problem}" for problem in self.problems)]
        remarks += [f"not checked: {self.not_checked}"] if self.not_checked else []
        return [
            one_line(self.title),
            *[f"  {one_line(line)}" for line in self.contents],
            "would be built, once it is corrected" if self.problems else "would be built",
            f"  nodes     {self.num_nodes:,}",
            f"  edges     at most {self.num_edges:,}",
            f"  topology  at most {format_bytes(self.topology_bytes)}",
            *[f"  {table.line()}" for table in self.feature_tables],
            "needs at most",
            f"  memory    {format_bytes(self.memory_bytes)}",
            f"  disk      {format_bytes(self.stored_bytes)} in the store, and {format_bytes(self.scratch_bytes)} while building",
            *[f"note: {remark}" for remark in remarks],
        ]


def in_memory_bytes(num_edges: int, num_nodes: int, num_stored: int) -> int:
    """Returns the peak memory of a source whose edges are compressed in memory.

    Args:
        num_stored: number of edges before duplicates merge, reverse ones included.
    """
    ids = id_dtype(num_nodes).itemsize
    return BASE_BYTES + 24 * num_edges + 3 * ids * num_stored + 100 * num_nodes
