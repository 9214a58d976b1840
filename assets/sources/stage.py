"""What the stages share that read a source: which one, opened how, and whether it changed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.building.materialize import stage_version
from assets.building.stage import OnePass, Progress, Stage
from assets.sources.page import RAW_PAGE
from assets.sources.registry import GENERATORS, GraphConfig, OpenSource, TableConfig, source_module
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.storage.writer import Writer


class SourceStage(OnePass):
    """A stage that is built from a raw source: the graph, and its feature tables."""

    external_page = RAW_PAGE

    def source(self, semantic: Any) -> GraphConfig:
        """Returns the keys of `[graph]`."""
        raise NotImplementedError

    def feature_table(self, semantic: Any) -> TableConfig | None:
        """Returns the feature table that a config is of, None where it is of none."""
        return None

    def opened(
        self, asked: Sequence[tuple[Stage, Any]], execution: Any, folder: Path, progress: Progress
    ) -> AbstractContextManager[OpenSource]:
        """Opens the source for the graph and the feature tables that are asked for.

        Raises:
            InputError: what is outside is missing, or is nothing that the source reads.
        """
        sources = [stage.source(semantic) for stage, semantic in asked if isinstance(stage, SourceStage)]
        assert len(sources) == len(asked) and all(each == sources[0] for each in sources), "they are of one source"
        tables = [stage.feature_table(semantic) for stage, semantic in asked if isinstance(stage, SourceStage)]
        wanted = [table for table in tables if table is not None]
        return source_module(sources[0].source).opened(sources[0], wanted, folder, execution, progress)

    def external(self, semantic: Any) -> str:
        """Sources that generate a graph read nothing; a file of features may lie beside one."""
        table = self.feature_table(semantic)
        beside = table is not None and table.file is not None
        return "raw" if beside or self.source(semantic).source not in GENERATORS else ""

    def require_unchanged(self, semantic: Any, writer: Writer) -> None:
        """Compares what was read with what the version was computed from.

        Raises:
            InputError: it changed meanwhile.
        """
        if stage_version(self, semantic, {}) != writer.version:
            source = self.source(semantic).source
            raise InputError(f"the files of the {source} source changed while they were read", "build again")
