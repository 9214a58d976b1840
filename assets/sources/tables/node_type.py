"""One node type: its table, the map of its ids, and what its table says about the nodes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

from graphmill.assets.sources.edges.mistakes import read_block, read_column
from graphmill.assets.sources.edges.node_tables import label_columns, label_roles, read_nodes, require_class_numbers
from graphmill.assets.sources.edges.numbering import (
    Numbering,
    id_kind,
    no_id,
    number_by_nodes,
    original_ids,
    refuse_lost_rows,
)
from graphmill.assets.sources.edges.open_table import features_read, named_by, named_columns, unread_of
from graphmill.assets.sources.encoders.columns import EncodedColumns
from graphmill.assets.sources.encoders.rules import Rules
from graphmill.assets.sources.encoders.training_rows import TrainingNodes, training_rows
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.interface import RawGraph
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.file_digests import left_out_digest, table_digests
from graphmill.assets.sources.readers.table_features import (
    columns_to_check,
    feature_columns,
    feature_type,
    require_numbers,
    table_block,
)
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.splits import checked
from graphmill.assets.sources.tables.config import OF_NODE_TYPE, NodeTable
from graphmill.assets.tasks.labels import CLASSES, Kind
from graphmill.kernels.errors import Attempts, InputError, refused_by
from graphmill.kernels.types import Array


class NodeType:
    """A node type whose files are open; values are read when they are first needed.

    Args:
        name, keys: `[graph.nodes.NAME]`.
        number: place of the type among all, from 0.
        taken: column -> key of a relation that names it, if its edges stand in the table of the nodes.
        encodes: whether encoders may read the features, which then need not be numbers.

    Attributes:
        table: the files; None if the ids are 0 to num_nodes - 1.
        sound: whether the ids can be read.

    Raises:
        InputError: a pattern names no file, or a file has no readable header.
    """

    def __init__(
        self,
        duck: Duck,
        name: str,
        keys: NodeTable,
        number: int,
        taken: Mapping[str, str],
        encodes: bool,
        task: Kind = CLASSES,
    ):
        self.duck, self.name, self.keys, self.number = duck, name, keys, number
        self.key, self.encodes, self.sound = f"nodes.{name}", encodes or keys.encode is not None, True
        files, form = keys.files, keys.form(self.key)
        taken = named_by(keys, OF_NODE_TYPE) | dict(taken)
        self.table = TableFiles(duck, files, self.key, form, taken) if files else None
        self.task: Kind = task
        if self.table is not None and task != CLASSES:
            self.table.taken.update(dict.fromkeys(self.labelling, "label_columns"))

    @cached_property
    def kind(self) -> str:
        """The ids: "integer", or their SQL type."""
        return (
            "integer"
            if self.table is None
            else id_kind(self.table, "id_column", self.keys.id_column, self.keys.id_type)
        )

    @property
    def labelling(self) -> Sequence[str]:
        """The columns of several labels or of numbers; none of classes.

        Raises:
            InputError: a column is missing, or a pattern fits none.
        """
        return label_columns(self.table, self.keys, self.task)

    @cached_property
    def numbering(self) -> Numbering:
        """The map from the ids of the type to 0 to N-1."""
        if self.table is None:
            return Numbering(num_nodes=self.keys.num_nodes or 0)
        keys = self.keys
        found = number_by_nodes(self.table, keys.id_column, self.kind, keys.id_type, f"ids_{self.number}")
        if found.staged:
            refuse_lost_rows(self.table, (keys.id_column,), found.staged)
        return found

    @property
    def id_section(self) -> str:
        """The table of the pipeline file whose `id_type` may say that ids are text; "" without a table of nodes."""
        return "" if self.table is None else self.table.section

    def count(self) -> int:
        """Returns the number of nodes, without reading the ids."""
        return self.keys.num_nodes or 0 if self.table is None else self.table.count()

    def column_checks(self) -> Sequence[tuple[str, Callable[[], object]]]:
        """Returns (key, check) for each column that a key names: it is there and of a type that serves."""
        table, keys = self.table, self.keys
        if table is None:
            return ()
        named = named_columns(keys, OF_NODE_TYPE)
        return (
            *((role, partial(self._require, table, role, name)) for role, name in named.items()),
            *(("label_columns", partial(feature_type, table, [name])) for name in self.labelling),
            ("id_column", lambda: self.kind),
            *(("features", partial(require_numbers, table, each)) for each in self._listed if not self.encodes),
        )

    @property
    def _listed(self) -> Sequence[str]:
        """The names and patterns of feature columns."""
        features = self.keys.features
        return [features] if isinstance(features, str) else features or ()

    def leave_out(self, rules: Rules) -> list[InputError]:
        """Returns the errors of the columns that keys name; the keys are without these columns from then on."""
        attempts, wrong = Attempts(), set[str]()
        for key, check in self.column_checks():
            if key != "features" and (errors := refused_by([check])):
                attempts.errors += errors
                wrong.add(key)
        self.sound = "id_column" not in wrong
        self.keys = replace(self.keys, **dict.fromkeys(wrong - {"id_column"}))  # pyright: ignore[reportArgumentType]
        if self.table is not None and self.keys.features is not None:
            listed = [attempts(feature_columns, self.table, each) or [] for each in self._listed]
            refused = {
                name: refused_by([partial(self._require_one, name, rules)]) for name in dict.fromkeys(chain(*listed))
            }
            attempts.errors += [error for errors in refused.values() for error in errors]
            features = tuple(name for name, errors in refused.items() if not errors) or None
            self.keys = replace(self.keys, features=features, encode=self.keys.encode if features else None)
        return attempts.errors

    def _require_one(self, name: str, rules: Rules) -> None:
        assert self.table is not None
        if rules:
            EncodedColumns(self.table, (name,), rules, "one")
        elif not self.encodes:
            require_numbers(self.table, name)

    def width_bounds(self, rules: Rules) -> tuple[float, float]:
        """Returns the fewest and the most columns of the features, as far as headers tell; wrong ones may be left out or encoded."""
        found: list[tuple[float, float]] = []
        table = self.table
        for each in self._listed if table is not None else ():
            try:
                found += EncodedColumns(table, (each,), rules, "bounds", checked=False).bounds()  # pyright: ignore[reportArgumentType]
            except InputError:
                found.append((0, math.inf))
        return sum(low for low, _ in found), sum(high for _, high in found)

    def _require(self, table: TableFiles, role: str, name: str) -> None:
        if role == "label_column" and self.keys.labels == "numbers" and self.task == CLASSES:
            require_class_numbers(table, name, self.keys.no_label)
            return
        table.require(role, name)
        if role == "id_column" and (gap := table.first_gap(name)):
            raise no_id(table, *gap, name, self.id_section)

    def value_checks(self, rules: Rules) -> Sequence[Callable[[], object]]:
        """Returns checks of the values, each apart: labels, splits, and every feature column that may hold wrong ones."""
        table, keys = self.table, self.keys
        if table is None:
            return ()
        rows, names = Numbering(num_nodes=table.count()), []  # in the order of the rows
        labels = replace(keys, split_column=None, name_column=None)
        splits = NodeTable(path=keys.path, split_column=keys.split_column)
        if keys.features is not None and not self.encodes:
            names = columns_to_check(table, feature_columns(table, keys.features))
        encoded = self.feature_names if rules else ()
        return (
            *(partial(read_nodes, table, each, rows, self.task) for each in (labels, splits)),
            *(partial(read_column, table, name) for name in names),
            *(partial(self._read_encoded, table, name, rules) for name in encoded),
        )

    def _read_encoded(self, table: TableFiles, name: str, rules: Rules) -> None:
        read_block(EncodedColumns(table, (name,), rules, f"one_{self.number}").block(0, table.count(), None, None))

    @property
    def feature_names(self) -> list[str]:
        """The feature columns, also of a type without a table: none."""
        return (
            [] if self.table is None or self.keys.features is None else feature_columns(self.table, self.keys.features)
        )

    def facts(self, *, named: bool = True) -> RawGraph:
        """Returns labels, class names, splits and, if `named`, names of the nodes, by their place in the type.

        Raises:
            InputError: a value is not a label, or not a part of a split, with its row.
        """
        keys = self.keys if named else replace(self.keys, name_column=None)
        found = read_nodes(self.table, keys, self.numbering, self.task)
        if found.splits is not None and self.table is not None:
            where = f"{self.table.paths[0]}: column '{self.keys.split_column}'"
            found.splits = checked(found.splits, found.labels, where)
        return found

    def originals(self) -> Any:
        """Returns the ids in the order of the nodes, i64[N] or a Polars series of text; None if they are 0 to N-1."""
        return original_ids(self.duck, self.numbering, self.kind)

    def blocks(
        self, first: int, node_of_row: Array | None, rules: Rules, nodes: TrainingNodes | None
    ) -> list[FeatureBlock]:
        """Returns the feature columns as a block; none without features.

        Args:
            node_of_row: i64[N] ids of the rows, None if they are in order.
            rules: the encoders of the columns, fitted on the rows of the training `nodes`.
        """
        if self.table is None or self.keys.features is None:
            return []
        num_nodes = self.numbering.num_nodes
        if rules:
            training = training_rows(nodes, first, num_nodes, node_of_row)
            return [self.encoded(rules).block(first, num_nodes, node_of_row, training)]
        names = feature_columns(self.table, self.keys.features)
        return [table_block(self.table, names, first, num_nodes, node_of_row, self.keys.features)]

    def surveyed(self, first: int, rules: Rules) -> list[FeatureBlock]:
        """Returns the block by the headers alone, as wide as it may be; none without features."""
        if self.table is None or self.keys.features is None:
            return []
        if rules:
            return [self.encoded(rules).surveyed(first, self.count())]
        return [table_block(self.table, feature_columns(self.table, self.keys.features), first, self.count())]

    def encoded(self, rules: Rules) -> EncodedColumns:
        """Returns the feature columns with their encoders."""
        assert self.table is not None and self.keys.features is not None
        return EncodedColumns(self.table, self.keys.features, rules, f"encoded_{self.number}")

    def digests(self) -> dict[str, str]:
        """Returns the digests of the columns that decide the graph, each column apart."""
        roles = named_columns(self.keys, OF_NODE_TYPE) | label_roles(self.labelling)
        return table_digests(self.duck, self.keys.files, self.key, self.keys.form(self.key), roles, apart=True)

    def feature_digests(self, fit_keys: Sequence[str], *, with_rows: bool) -> dict[str, str]:
        """Returns the digests of ids and, with rows, of feature columns and of those of `fit_keys`, which decide the fit of encoders."""
        names, left = [], {}
        if with_rows and self.table is not None and self.keys.features is not None:
            names = feature_columns(self.table, self.keys.features)
            left = left_out_digest(self.table, self.keys.features, self.key)
        roles = {"id_column": self.keys.id_column}
        roles |= named_columns(self.keys, [key for key in OF_NODE_TYPE if key in fit_keys]) if with_rows else {}
        roles |= label_roles(self.labelling) if with_rows and "label_columns" in fit_keys else {}
        return left | table_digests(self.duck, self.keys.files, self.key, self.keys.form(self.key), roles, names)

    def unread(self) -> list[str]:
        """Returns phrases about the columns that no key names."""
        if self.table is None:
            return []
        read = (
            named_by(self.keys, OF_NODE_TYPE).keys() | {*self.labelling} | features_read(self.table, self.keys.features)
        )
        return unread_of(self.table, read, self.key)
