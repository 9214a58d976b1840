"""All mistakes in edge and node tables, told by one error.

Reading stops at the first wrong value, and the next one would show up only after another build. So once something was refused, the tables
are looked through again: the columns that keys name, labels, splits, features, ids and edges, each apart. Of tables of more than
`READ_BYTES` only the columns and their types are looked at.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphmill.assets.building.stage import Silent
from graphmill.assets.sources.edges.node_tables import label_columns, read_nodes
from graphmill.assets.sources.edges.numbering import Numbering
from graphmill.assets.sources.edges.open_table import open_table
from graphmill.assets.sources.encoders.columns import EncodedColumns
from graphmill.assets.sources.encoders.rules import rules_of
from graphmill.assets.sources.features.blocks import FeatureBlock, blocks_type, checked_slices
from graphmill.assets.sources.interface import OpenSource, TableConfig
from graphmill.assets.sources.readers.duck import Duck, scratch_duck
from graphmill.assets.sources.readers.table_features import (
    columns_to_check,
    feature_columns,
    feature_type,
    require_numbers,
    table_block,
)
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.kernels.errors import InputError, Mistakes, joined, refused_by

if TYPE_CHECKING:
    from graphmill.assets.sources.edges.config import EdgeTableKeys

READ_BYTES = 256 << 20
"""Most bytes of all files that are read again to look for further mistakes: some seconds."""

Check = Callable[[], object]


Opener = Callable[["EdgeTableKeys", Duck], OpenSource]


@contextmanager
def told_at_once(find: Callable[[], Sequence[InputError]]) -> Iterator[None]:
    """Adds to an `InputError` of the block all other mistakes of the tables."""
    try:
        yield
    except InputError as error:
        if type(error) not in (InputError, Mistakes):  # failed checks
            raise
        raise joined([error, *find()]) from None


def find_mistakes(config: EdgeTableKeys, opener: Opener) -> list[InputError]:
    """Returns the mistakes of the tables, in the order of edges, nodes, features.

    Args:
        opener: opens the tables of a configuration: (configuration, connection).
    """
    with scratch_duck(config.duck_bytes, "mistakes") as duck:
        tables: dict[str, TableFiles] = {}
        keys = ["edges", *(["nodes"] if config.nodes is not None else [])]

        def try_open(key: str) -> None:
            tables[key] = open_table(config, duck, key)

        wrong = refused_by([lambda key=key: try_open(key) for key in keys])
        if wrong:
            return wrong
        return _Search(config, tables["edges"], tables.get("nodes"), opener).errors()


class _Search:
    """The checks of open tables, each apart."""

    def __init__(self, config: EdgeTableKeys, edges: TableFiles, nodes: TableFiles | None, opener: Opener):
        self.config, self.edges, self.nodes, self.opener = config, edges, nodes, opener
        self.features: list[str] = []
        self.encoded: list[EncodedColumns] = []

    def errors(self) -> list[InputError]:
        """Returns the errors; columns that are missing are left out of the checks of values."""
        found = [*self._columns(self.edges, self.config.edge_roles)]
        if self.nodes is not None:
            found += [*self._columns(self.nodes, self.config.node_roles), *self._label_columns(self.nodes)]
            found += self._feature_columns(self.nodes)
        paths = [*self.edges.paths, *(self.nodes.paths if self.nodes is not None else ())]
        if sum(path.stat().st_size for path in paths) > READ_BYTES:
            return found
        found += self._of_edges()
        if self.nodes is not None:
            found += self._of_nodes(self.nodes)
        return found

    def _columns(self, table: TableFiles, roles: Sequence[str]) -> Iterator[InputError]:
        for role in roles:
            name = getattr(self.config, role)
            wrong = [] if name is None else refused_by([lambda role=role, name=name: table.require(role, name)])
            if wrong:
                marks = role == "time_column" or (table is self.edges and role in ("split_column", "label_column"))
                left = self.config.unlinked if marks else self.config
                left = left.untimed if role in ("time_column", "node_time_column") else left
                self.config = replace(left, **{role: None})  # pyright: ignore[reportArgumentType]
                yield from wrong

    def _label_columns(self, nodes: TableFiles) -> list[InputError]:
        config = self.config
        wrong = refused_by([lambda: feature_type(nodes, label_columns(nodes, config, config.task))])
        if wrong:
            self.config = replace(config, label_column=None, label_columns=None)
        return wrong

    def _feature_columns(self, nodes: TableFiles) -> Iterator[InputError]:
        for features in (self.config.features, *self.config.feature_columns):
            names = [features] if isinstance(features, str) else features or ()
            for name in names:
                try:
                    columns = feature_columns(nodes, name)
                except InputError as error:
                    yield error
                    continue
                if self.config.encodes:
                    yield from self._encoded_columns(nodes, columns)
                    continue
                wrong = {each: refused_by([lambda each=each: require_numbers(nodes, each)]) for each in columns}
                self.features += [each for each in columns if not wrong[each]]
                yield from (error for errors in wrong.values() for error in errors)

    def _encoded_columns(self, nodes: TableFiles, columns: Sequence[str]) -> Iterator[InputError]:
        """Yields the errors of columns by their encoders; the graph alone knows none, and its columns may have anything."""
        rules = rules_of(self.config.encode)
        for number, name in enumerate(columns if rules else ()):
            try:
                self.encoded.append(EncodedColumns(nodes, (name,), rules, f"one_{number}"))
            except InputError as error:
                yield error

    def _of_edges(self) -> list[InputError]:
        """Reads ids and edges, with and without their attributes."""
        linked = [] if self.config.links is None else [replace(self.config, name_column=None, features=None)]
        unlabelled = replace(self.config.unlinked, label_column=None, label_columns=None)
        config = replace(unlabelled, split_column=None, name_column=None, features=None)
        needed = [config.source_column, config.target_column, *([] if self.nodes is None else [config.id_column])]
        if None in needed:
            weight = config.weight_column
            return [] if weight is None else refused_by([lambda: read_column(self.edges, weight)])
        tried = [
            *linked,
            config,
            replace(config, weight_column=None),
            replace(config, weight_column=None, type_column=None),
        ]
        return refused_by([lambda each=each: self._try(each) for each in tried])

    def _of_nodes(self, nodes: TableFiles) -> list[InputError]:
        rows = Numbering(num_nodes=nodes.count())
        config = replace(self.config.unlinked, name_column=None)
        apart = replace(config, split_column=None), replace(config.untimed, label_column=None, label_columns=None)
        found = refused_by([lambda each=each: read_nodes(nodes, each, rows, config.task) for each in apart])
        names = columns_to_check(nodes, list(dict.fromkeys(self.features)))
        found += refused_by([lambda name=name: read_column(nodes, name) for name in names])
        count = rows.num_nodes
        return found + refused_by(
            [lambda each=each: read_block(each.block(0, count, None, None)) for each in self.encoded]
        )

    def _try(self, config: EdgeTableKeys) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.edges.duck.folder))
        with Duck(folder, config.duck_bytes, 2) as duck:
            source = self.opener(config, duck)
            source.graph(Silent())
            for block in source.blocks(TableConfig()):
                read_block(block)


def read_column(table: TableFiles, name: str) -> None:
    """Reads a column of features and checks each value."""
    read_block(table_block(table, [name], 0, table.count()))


def read_block(block: FeatureBlock) -> None:
    """Reads a block and checks each value."""
    for _ in checked_slices(block, blocks_type([block], "as stored", "none"), "none"):
        pass
