"""The keys of sources whose graphs are given as arrays by name."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from graphmill.assets.sources.interface import FEATURES_ONLY, TableConfig
from graphmill.assets.sources.named.arrays import MASKS
from graphmill.assets.sources.spooled import SpooledConfig
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class NamedKeys(SpooledConfig):
    """Keys of `[graph]` that name data."""

    # names of data of nodes; None takes the library's own names if they exist
    feature: str | None = field(default=None, metadata=FEATURES_ONLY)
    label: str | None = None
    # name of the weights among the data of edges
    weight: str | None = None
    # column of masks [N, S], or a list of columns: one graph each
    split: int | tuple[int, ...] | None = None

    one_name: ClassVar[str] = "the data have"
    """The beginning of the rule that a feature table has one name."""

    @property
    def weighted(self) -> bool:
        """Whether edges get weights."""
        return self.weight is not None

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
