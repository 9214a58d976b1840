"""Common code of the stages that read a source."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Check, OnePass, Progress, Silent, Stage
from graphmill.assets.costs.needs import Need, Sizes
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.arrays.array_files import check_matrix
from graphmill.assets.sources.arrays.mapped_arrays import open_ids, open_rows
from graphmill.assets.sources.features.types import stored_type
from graphmill.assets.sources.interface import GraphConfig, OpenSource, TableConfig
from graphmill.assets.sources.registry import code_digest
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.task_table import TaskTable
from graphmill.assets.storage.names.patterns import bytes_named
from graphmill.assets.storage.system.machine import require_memory
from graphmill.assets.storage.system.refused import is_memory, out_of_memory
from graphmill.kernels.errors import InputError, joined, refused_by

NODE_BYTES = 20
"""Bytes that every node takes at least while a graph is built: indptr, both degrees, its label."""
MANY_NODES = 1 << 24
"""Number of nodes from which the memory is checked."""
MOST_TRIED, MOST_TRIED_BYTES = 1 << 20, 256 << 20
"""Most nodes, and bytes of files, of content that all stages look through once one of them has refused it: some seconds."""


@dataclass(frozen=True, slots=True)
class Sound:
    """What the checks of a build found in content that it would take."""

    counts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, by the names of `Survey` and `Sizes`."""
    warnings: Sequence[Check] = ()
    """The checks that warn, passed or not."""


class SourceStage(OnePass):
    """A stage that is built from a raw source: the graph, and its feature tables."""

    external_page = Page(
        about="The files outside the store that the source reads, which nothing here builds. "
        "They stand on the map of assets so that one sees which artifacts depend on them. "
        "Observe this asset after the files changed: it digests them, and what was built from other content is marked as stale.",
        docs="docs/own-data.md",
        kinds=frozenset({"file"}),
    )

    def source(self, semantic: Any) -> GraphConfig:
        """Returns the keys of `[graph]`."""
        raise NotImplementedError

    def feature_table(self, semantic: Any) -> TableConfig | None:
        """Returns the feature table of a config, None if it has none."""
        return None

    def known(self, semantic: Any) -> Sizes:
        """Returns the most that the graph and this feature table can be, by what the source tells of itself before it is read.

        Raises:
            InputError: the external content is missing, or the source cannot read it.
        """
        source = self.source(semantic)
        return split_sizes(self.survey(semantic).sizes, source.links, undirected=source.undirected)

    def survey(self, semantic: Any) -> Survey:
        """Returns the survey of the source with this feature table, whose file is not read but for its header."""
        source, table = self.source(semantic), self.feature_table(semantic)
        found = (source if table is None else source.for_table(table)).survey()
        if table is None:
            return found
        if table.file is not None:
            rows, dtype = open_rows(table.file, table.tensor)
            check_matrix(rows.shape, rows.dtype, len(rows) if rows.ndim else 0, str(table.file))
            stored = stored_type(dtype, table.dtype, source.normalize, str(table.file))
            without = max(0, found.num_nodes - len(rows))
            notes = [*found.notes, f"features of {table.file.name}: {len(rows):,} rows, {matched(source, table)}"]
            return replace(
                found,
                num_features=rows.shape[1],
                dtype=stored,
                num_without_features=without,
                type_widths=(),
                notes=notes,
            )
        return found.stored_as(table.dtype)

    def certain_need(self, semantic: Any, execution: Any) -> Need | None:
        """Returns the need of a generated graph, which its keys tell; None for files, whose sizes are bounds until they are read."""
        return None if self.external(semantic) else self.need(semantic, execution, self.known(semantic))

    def require_sound(self, opened: OpenSource, semantic: Any) -> Sound:
        """Makes the checks of a build of this stage, without a build.

        Returns:
            What the checks counted, and those that warn.
        """
        raise NotImplementedError

    @contextmanager
    def opened(
        self, asked: Sequence[tuple[Stage, Any]], execution: Any, folder: Path, progress: Progress
    ) -> Iterator[OpenSource]:
        """Opens the source for the graph and the feature tables of `asked`.

        Raises:
            InputError: the external content is missing, the source cannot read it, or its nodes do not fit the memory of this machine. One
                about small content, of the block too, tells the mistakes that the other stages would find as well.
        """
        sources = [stage.source(semantic) for stage, semantic in asked if isinstance(stage, SourceStage)]
        assert len(sources) == len(asked) and all(each == sources[0] for each in sources), "they are of one source"
        tables = [stage.feature_table(semantic) for stage, semantic in asked if isinstance(stage, SourceStage)]
        wanted, num_nodes = [table for table in tables if table is not None], 0
        try:
            with sources[0].opened(wanted, folder, execution, progress) as source:
                num_nodes = source.num_nodes
                if source.num_nodes >= MANY_NODES:
                    what = f"a graph of {source.num_nodes:,} nodes"
                    remedy = "correct the ids or the number of nodes; give ids without gaps"
                    require_memory(NODE_BYTES * source.num_nodes, what, remedy)
                yield source
        except Exception as error:
            small = 0 < num_nodes <= MOST_TRIED and bytes_named(sources[0], *wanted) <= MOST_TRIED_BYTES
            if type(error) is InputError and small:
                raise joined([error, *_found_by_all(asked, execution)]) from None
            if not is_memory(error):
                raise
            found, names = out_of_memory(error, _needed(sources[0])), ", ".join(stage.name for stage, _ in asked)
            raise InputError(f"stages {names}: {found.problem}", found.remedy) from error

    def external(self, semantic: Any) -> str:
        """Returns "raw"; "" for a generated graph without a file of features."""
        table = self.feature_table(semantic)
        beside = table is not None and table.file is not None
        return "raw" if beside or not self.source(semantic).generated else ""

    def after(self, semantic: Any) -> tuple[str, ...]:
        """Returns the assets that the graph's source comes after or reads, and those that the feature table comes after."""
        source, table = self.source(semantic), self.feature_table(semantic)
        return tuple(dict.fromkeys((*source.loaded, *source.after, *(() if table is None else table.after))))

    def loaded(self, semantic: Any) -> Mapping[str, Path]:
        """Returns the tables of assets that the source reads."""
        return self.source(semantic).loaded

    def source_digests(self, semantic: Any) -> Mapping[str, str]:
        """Returns the digests of the content that the source reads for this stage, and of the code of a package's source."""
        source = self.source(semantic)
        return {**source.raw(self.feature_table(semantic)), **code_digest(source.source)}


def matched(source: GraphConfig, table: TableConfig) -> str:
    """Returns how the rows of a file of features are matched with the nodes, in words.

    Raises:
        InputError: the file has no ids, and nothing states the order of the nodes.
    """
    assert table.file is not None
    if open_ids(table.file, table.tensor) is not None:
        return "matched by id"
    return f"matched by position: {source.row_order(table.node_type)}"


def _found_by_all(asked: Sequence[tuple[Stage, Any]], execution: Any) -> list[InputError]:
    """Returns the error of each stage that refuses the content, which is opened anew."""
    stages = [(stage, semantic) for stage, semantic in asked if isinstance(stage, SourceStage)]
    source = stages[0][0].source(stages[0][1])
    tables = [stage.feature_table(semantic) for stage, semantic in stages]
    wanted, found = [table for table in tables if table is not None], []

    def try_all() -> None:
        with source.opened(wanted, Path(folder), execution, Silent()) as opened:
            found.extend(refused_by([lambda each=each: each[0].require_sound(opened, each[1]) for each in stages]))

    with tempfile.TemporaryDirectory(prefix="graphmill-mistakes-") as folder:
        return refused_by([try_all]) or found


def _needed(source: GraphConfig) -> str:
    """Returns in words how much memory building from a source takes, "" if that cannot be computed any more."""
    try:
        needed = source.survey().memory_bytes
    except Exception:
        return ""
    return f"building from this source takes about {format_bytes(needed)}"


def split_sizes(sizes: Sizes, task: TaskTable | None, *, undirected: bool) -> Sizes:
    """Returns the sizes of a graph whose links are split, by all edges of its source; the same for other tasks.

    Args:
        undirected: whether an edge and its reverse are one link.
    """
    if task is None:
        return sizes
    links = sizes.num_edges // (2 if undirected else 1)
    train, valid = (1.0, 1.0) if task.split == "given" else (task.train_ratio, task.valid_ratio)
    test = 1.0 if task.split == "given" else max(0.0, 1 - train - valid)
    counts = (ceil(share * links) for share in (train, valid, test))
    return replace(sizes, **dict(zip(("num_train", "num_valid", "num_test"), counts, strict=True)))
