"""The changes since the last report of a pipeline.

Each report that is written leaves a small file in the home, `reports/NAME.json`: the recipe, and the versions and scores that it showed.
The next one compares with it. The file is not an artifact: without it, or if it is damaged, a report is the first one.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.storage.files.documents import read_if_sound, seal
from graphmill.assets.storage.files.schema import Fields, address, in_format, listed, mapped, moment, number, text
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.filesystem import make_folder, replace_atomically
from graphmill.jobs.commands.results.leaderboard import spread
from graphmill.jobs.commands.results.status import MOST_REASONS
from graphmill.jobs.commands.store.diff import recipe_changes
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.report.facts import ReportFacts
from graphmill.kernels.errors import InputError
from graphmill.trainers.record.scores import METRICS

FOLDER = "reports"
FORMAT = 2
NOTHING = "-"
SCORED = ("valid", "test")

report_schema = Fields(
    {
        "format": in_format(FORMAT),
        "made": moment,
        "recipe": text,
        "artifacts": mapped(listed(address)),
        "scores": mapped(Fields({"metric": text, "valid": listed(number()), "test": listed(number())})),
    }
)
"""The record of a report: time, pipeline file, step -> artifacts, and train table -> its metric and scores on validation and test nodes."""


@dataclass(frozen=True, kw_only=True)
class ReportChanges:
    """The difference between two reports.

    Attributes:
        since: time of the last report, UTC; None for the first one.
        artifacts: a row for each step with other artifacts than before.
        scores: a row for each train table with other scores than before.
        recipe: lines of the difference between the two pipeline files, as `diff -u` shows it.
    """

    since: datetime | None = None
    artifacts: PlainTable = field(default_factory=lambda: _artifact_table([]))
    scores: PlainTable = field(default_factory=lambda: _score_table([]))
    recipe: Sequence[str] = ()

    @property
    def any(self) -> bool:
        """Whether anything changed."""
        return bool(self.artifacts.rows or self.scores.rows or self.recipe)


def record_path(home: Path, pipeline: Pipeline) -> Path:
    """Returns the file that remembers the last report of a pipeline; other keys by --set have a report of their own."""
    apart = f"-{hashlib.sha256(pipeline.settings.encode()).hexdigest()[:12]}" if pipeline.settings else ""
    return home / FOLDER / f"{pipeline.name}{apart}.json"


def remember(facts: ReportFacts) -> None:
    """Writes the record of a report, for the next one; raises InputError if the home cannot be written."""
    path = record_path(facts.home, facts.pipeline)
    try:
        make_folder(path.parent)
        replace_atomically(path, seal(shown_by(facts)))
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}",
            "the report is written; correct the permissions of the home, so that the next one can say what changed",
        ) from error


def shown_by(facts: ReportFacts) -> dict[str, Any]:
    """Returns the JSON-ready record of a report."""
    artifacts: dict[str, list[str]] = {}
    for state in facts.states:
        if state.artifact is not None:
            artifacts.setdefault(state.name, []).append(f"{state.artifact.stage}/{state.version}")
    scores = {
        entry.table.name: {"metric": entry.table.metric} | {split: entry.scores(split) for split in SCORED}
        for entry in facts.entries
    }
    head = {"format": FORMAT, "made": facts.made.isoformat(timespec="seconds"), "recipe": facts.pipeline.text}
    return head | {"artifacts": artifacts, "scores": scores}


def find_changes(facts: ReportFacts) -> ReportChanges:
    """Returns the changes since the last report of the pipeline."""
    before = read_if_sound(record_path(facts.home, facts.pipeline), report_schema)
    if not before:
        return ReportChanges()
    now = shown_by(facts)
    old, new = before["recipe"].splitlines(), now["recipe"].splitlines()
    return ReportChanges(
        since=datetime.fromisoformat(before["made"]).astimezone(UTC),
        artifacts=_artifact_table(_artifact_rows(before["artifacts"], now["artifacts"], Store(facts.home))),
        scores=_score_table(_score_rows(before["scores"], now["scores"])),
        recipe=list(difflib.unified_diff(old, new, "before", "now", lineterm="", n=2)),
    )


def _artifact_rows(before: Mapping[str, Any], now: Mapping[str, Any], store: Store) -> list[list[str]]:
    rows = []
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name, []), now.get(name, [])
        if old != new:
            rows.append([name, _labels(old), _labels(new), _why(old, new, store)])
    return rows


def _labels(names: Sequence[str]) -> str:
    return (
        ", ".join(f"{stage}/{short(version)}" for stage, _, version in (each.partition("/") for each in names))
        or NOTHING
    )


def _why(old: Sequence[str], new: Sequence[str], store: Store) -> str:
    """Returns the keys in which the recipes of two artifacts differ, as far as both are still there."""
    if not old or not new:
        return "new" if new else "not there any more"
    if len(old) != len(new):
        return f"{len(new)} artifacts, {len(old)} before"
    one, other = next((left, right) for left, right in zip(old, new, strict=True) if left != right)
    found = [store.find(*name.split("/")) for name in (one, other)]
    if found[0] is None or found[1] is None:
        return "another recipe; the old artifact is gone"
    changes = [f"{each.name} = {each.other}, was {each.one}" for each in recipe_changes(found[0], found[1])]
    more = [f"{len(changes) - MOST_REASONS} more"] if len(changes) > MOST_REASONS else []
    return "; ".join([*changes[:MOST_REASONS], *more]) or "another recipe"


def _score_rows(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name in dict.fromkeys([*now, *before]):
        pair = [each.get(name, {"metric": "", "valid": [], "test": []}) for each in (before, now)]
        if pair[0] != pair[1]:
            metrics = dict.fromkeys(METRICS.get(key, key) for each in pair if (key := str(each["metric"])))
            scores = (spread(each[split], each["metric"]) for split in SCORED for each in pair)
            rows.append([name, ", now ".join(metrics), *scores])
    return rows


def _artifact_table(rows: Sequence[Sequence[str]]) -> PlainTable:
    columns = ["step", "before", "now", "why"]
    return PlainTable(title="changed artifacts", columns=columns, rows=rows, left=frozenset(columns))


def _score_table(rows: Sequence[Sequence[str]]) -> PlainTable:
    columns = ["name", "metric", "valid before", "valid now", "test before", "test now"]
    return PlainTable(title="changed scores", columns=columns, rows=rows, left=frozenset({"name", "metric"}))
