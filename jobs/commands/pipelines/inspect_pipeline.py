"""The survey of a pipeline's graph and of all its feature tables, with what a build of small data would refuse."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.stage import Silent
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.stage import SourceStage
from graphmill.assets.sources.survey import Survey
from graphmill.kernels.errors import InputError, each_mistake, joined, refused_by

if TYPE_CHECKING:
    from graphmill.assets.pipeline.file import Pipeline

CHECKED_EDGES, CHECKED_BYTES = 4_000_000, 64 << 20
"""Most stored edges, and most bytes of all feature tables, that are read to look for mistakes: some seconds."""
Asked = Sequence[tuple[SourceStage, Any]]
"""Stages that one pass over a source builds, with their configs."""


def survey_pipeline(pipeline: Pipeline) -> Survey:
    """Returns the survey of a pipeline's graph and feature tables.

    Raises:
        InputError: the source or a file of features is missing, or it cannot be read.
    """
    asked = [
        [*((FEATURES, each) for each in FEATURES.configs(one).values()), (GRAPH, one.graph)]
        for one in pipeline.by_split
    ]
    tables = FEATURES.configs(pipeline.by_split[0])
    try:
        found = {name: FEATURES.survey(config) for name, config in tables.items()}
    except InputError as error:  # opening may find more
        raise joined([error, *refused_by([lambda: _open(asked[0])])]) from None
    first = next(iter(found.values()))
    lines = [f"one graph for each of the splits {', '.join(pipeline.splits)}"] if len(pipeline.splits) > 1 else []
    survey = replace(
        first,
        contents=[*first.contents, *lines],
        tables=[replace(each.feature_tables[0], name=name) for name, each in found.items()],
        memory_bytes=max(each.memory_bytes for each in found.values()),
        notes=list(dict.fromkeys(note for each in found.values() for note in each.notes)),
    )
    return with_problems(survey, asked)


def _open(asked: Asked) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="graphmill-inspect-") as folder,
        asked[0][0].opened(asked, Threads(threads=2), Path(folder), Silent()),
    ):
        pass


def with_problems(survey: Survey, passes: Sequence[Asked]) -> Survey:
    """Returns the survey with what a build would refuse and warn of, if the data are so small that looking for it takes seconds.

    Args:
        passes: what each pass over the source builds: one for each split.
    """
    if not GRAPH.source(passes[0][-1][1]).inspected:
        return survey
    if survey.num_edges > CHECKED_EDGES:
        said = f"edges, labels, split and values of features, which a build checks; it also {_warns(GRAPH, FEATURES)}"
        return replace(survey, not_checked=said)
    whole, counts, warnings = survey.table_bytes <= CHECKED_BYTES, dict[str, Any](), dict[str, None]()
    errors = refused_by([partial(_look_through, asked, counts, warnings, whole=whole) for asked in passes])
    found = {f"{each.problem}; {each.remedy}": each for error in errors for each in each_mistake(error)}
    names, one_table = ("num_train", "num_valid", "num_test"), sum(stage is FEATURES for stage, _ in passes[0]) == 1
    split = tuple(counts[name] for name in names) if names[0] in counts and len(passes) == 1 else survey.num_split
    return replace(
        survey,
        notes=[*survey.notes, *warnings],
        problems=list(found),
        errors=list(found.values()),
        not_checked="" if whole else f"values of features, which a build checks; it also {_warns(FEATURES)}",
        num_classes=counts.get("num_classes", survey.num_classes),
        num_dropped_edges=counts.get("num_dropped_edges", 0),
        num_split=split,
        type_widths=counts.get("type_widths", survey.type_widths) if one_table else survey.type_widths,
    )


def _warns(*stages: SourceStage) -> str:
    """Returns the checks of a build that warn, in words."""
    return f"warns unless {', '.join(name for stage in stages for name in stage.warnings)}"


def _look_through(asked: Asked, counts: dict[str, Any], warnings: dict[str, None], *, whole: bool) -> None:
    """Makes the checks of a pass over a source, and adds what they count and the details of those that warn.

    Raises:
        InputError: what a build would refuse.
    """
    with (
        tempfile.TemporaryDirectory(prefix="graphmill-inspect-") as folder,
        asked[0][0].opened(asked, Threads(threads=2), Path(folder), Silent()) as opened,
    ):
        for stage, semantic in asked:
            if whole or stage is not FEATURES:
                sound = stage.require_sound(opened, semantic)
                counts.update(sound.counts)
                warnings.update(dict.fromkeys(check.detail for check in sound.warnings if not check.passed))
