"""The keys of sources whose graphs are given as arrays by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.sources.edge_marks import node_time_problems
from graphmill.assets.sources.interface import FEATURES_ONLY, TableConfig
from graphmill.assets.sources.named.arrays import MASKS
from graphmill.assets.sources.spooled import SpooledConfig
from graphmill.assets.sources.task_table import LinkSplit
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class NamedKeys(SpooledConfig):
    """Keys of `[graph]` that name data."""

    # names of data of nodes; None takes the library's own names if they exist
    feature: str | None = field(default=None, metadata=FEATURES_ONLY)
    label: str | None = None
    # name of the weights among the data of edges
    weight: str | None = None
    # name of the times among the data of edges: for `before` of [sampling], and of links for split = "time" of [task]
    time: str | None = field(default=None, metadata={"hashed": "unless default"})
    # name of the times among the data of nodes, for `before` of [sampling]; NaN for nodes of no part
    node_time: str | None = field(default=None, metadata={"hashed": "unless default"})
    # column of masks [N, S], or a list of columns: one graph each
    split: int | tuple[int, ...] | None = None

    one_name: ClassVar[str] = "the data have"
    """The beginning of the rule that a feature table has one name."""
    edge_feature: ClassVar[str] = "edge_attr"
    """Name of the rows of edges among the data of edges."""
    takes_edge_rows = has_edge_rows = True

    @property
    def weighted(self) -> bool:
        """Whether edges get weights."""
        return self.weight is not None

    @property
    def link_splits(self) -> tuple[LinkSplit, ...]:
        """The splits of edges that the data may give: masks of edges show when they are read."""
        return ("random", "given") if self.time is None else ("random", "given", "time")

    @property
    def edge_names(self) -> tuple[str, ...]:
        """Names of the data of edges that keys name."""
        named = (self.weight, self.time, self.edge_feature if self.edge_rows else None)
        return tuple(name for name in named if name is not None)

    @property
    def node_timed(self) -> bool:
        """Whether nodes may have times, as of which they are seeds."""
        return self.node_time is not None

    def problems(self) -> Iterator[KeyProblem]:
        """Yields names of times that nothing reads, and of labels that links do not need."""
        yield from super().problems()
        if self.time is not None and self.marks != "time":
            how = "set before = 'seed' in [sampling], or split = 'time' in [task], with kind = 'links', or leave it out"
            yield KeyProblem("time", f"time = {self.time!r} has no effect: {how}")
        yield from node_time_problems("node_time", self.node_time, times=self.times, linked=self.links is not None)
        for key in ("label", "split") if self.links is not None else ():
            if getattr(self, key) is not None:
                yield KeyProblem(key, f"{key} has no effect with [task] kind = 'links': leave it out")

    def for_table(self, table: TableConfig) -> Self:
        """Returns the configuration that reads a feature table: `columns` is its name among the data of nodes."""
        if table.columns is None:
            return self
        if not isinstance(table.columns, str):
            raise InputError(f"columns = {list(table.columns)}: {self.one_name} one name per table", "give one name")
        return replace(self, feature=table.columns)

    def named_twice(self, feature: str, label: str) -> list[str]:
        """Returns a phrase if data that are read as features are also the labels or a part of the split."""
        role = "label" if feature == (self.label or label) else "split" if feature in MASKS else ""
        return [f"'{feature}' is also the {role}"] if role else []

    def feature_names(self, tables: Sequence[TableConfig]) -> list[str | None]:
        """Returns the distinct names of the tables that the file itself has, None for the library's own name."""
        return list(dict.fromkeys(self.for_table(table).feature for table in tables if table.file is None))
