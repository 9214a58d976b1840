"""All that a report is made from: the models of a pipeline, the state of its artifacts, and its last run. Nothing is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.names.version import short
from graphmill.assets.tasks.labels import COLUMN_WORDS
from graphmill.jobs.commands.results.leaderboard import Entry, ranked, stored_entries
from graphmill.jobs.commands.results.status import NEVER, State, pipeline_states
from graphmill.jobs.figures.class_scores import SPLITS
from graphmill.jobs.figures.cost import LINKS
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.operations.difference import is_about
from graphmill.jobs.operations.failures import said_by
from graphmill.jobs.planning.outcome import find_outcome
from graphmill.jobs.runs.instance import SETTINGS, open_instance, reporting_history
from graphmill.kernels.errors import InputError
from graphmill.trainers.record.checks import LEDGER_EQUALS_PLAN
from graphmill.trainers.record.memory import measured_memory

PLANNED, COUNTED = ", planned", ", counted"
"""Endings of the numbers of the check of the ledger."""

MEMORY, EXPECTED_MEMORY = "main memory, an upper bound", "main memory, expected"
SECONDS, AN_EPOCH = "seconds of an epoch", ", bytes of an epoch"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One number of a training.

    Attributes:
        table, seed, split: the training; the split is "" if the pipeline names none.
        predicted, measured: the number before and after the training.
    """

    table: str
    seed: int
    what: str
    predicted: float
    measured: float
    split: str = ""
    is_bytes: bool = False

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None if nothing was measured."""
        return (self.predicted - self.measured) / self.measured if self.measured else None


def predictions(entries: Sequence[Entry]) -> list[Prediction]:
    """Returns all numbers of the models that are known both ways, table by table."""
    return [
        each
        for entry in entries
        for model, split in zip(entry.models, entry.splits or [""] * len(entry.models), strict=True)
        for each in _of_model({"table": entry.table.name, "seed": model.config["seed"], "split": split}, model)
    ]


def _of_model(owner: Mapping[str, Any], model: Artifact) -> Iterator[Prediction]:
    for check in model.summary["checks"]:
        numbers = check.get("numbers", {}) if check["name"] == LEDGER_EQUALS_PLAN else {}
        for name, predicted in numbers.items():
            what = name.removesuffix(PLANNED)
            if what != name and what + COUNTED in numbers:
                values = {"predicted": predicted, "measured": numbers[what + COUNTED]}
                yield Prediction(what=what, is_bytes="bytes" in what, **owner, **values)
    record = model.run_record()
    said, peak = (record.get("memory_need") or {}).get("bytes"), measured_memory(record)
    # Of ranks, the need is that of those on the first machine, and the peak that of all.
    if said and peak and not record.get("ranks"):
        yield Prediction(what=MEMORY, predicted=said, measured=peak, is_bytes=True, **owner)
    found = find_outcome(model)
    if found is not None:
        pairs = [(EXPECTED_MEMORY, found.memory), (SECONDS, found.seconds)]
        pairs += [(f"{LINKS[link]}{AN_EPOCH}", pair) for link, pair in found.links.items()]
        for what, (predicted, measured) in pairs:
            if predicted is not None and measured is not None:
                numbers = {"predicted": predicted, "measured": measured, "is_bytes": what != SECONDS}
                yield Prediction(what=what, **numbers, **owner)


def prediction_table(found: Sequence[Prediction]) -> PlainTable:
    """Returns predictions as text, one row each; seeds and splits are named if a table has several."""
    tables = {each.table for each in found}
    seeds = {table: len({each.seed for each in found if each.table == table}) for table in tables}
    splits = {table: len({each.split for each in found if each.table == table}) for table in tables}
    rows = []
    for each in found:
        name = f"{each.table}, split {each.split}" if splits[each.table] > 1 else each.table
        name += f", seed {each.seed}" if seeds[each.table] > 1 else ""
        write = (lambda n: format_bytes(round(n))) if each.is_bytes else "{:,.6g}".format
        if not each.is_bytes and float(each.predicted).is_integer() and float(each.measured).is_integer():
            write = "{:,.0f}".format
        rows.append([name, each.what, write(each.predicted), write(each.measured), _signed(each.error)])
    columns = ["name", "number", "predicted", "measured", "error"]
    return PlainTable(title="predicted and measured", columns=columns, rows=rows, left=frozenset(columns[:2]))


def _signed(error: float | None) -> str:
    if error is None:
        return "-"
    return "0 %" if error == 0 else f"{100 * error:+.2f} %"


RUNS_SEARCHED = 100
"""Newest runs of the history among which the pipeline's last one is looked for."""


@dataclass(frozen=True, kw_only=True)
class LastRun:
    """A run that is on its way or over.

    Attributes:
        run_id: the first digits of its id.
        status: Dagster's word for its state, such as SUCCESS or FAILURE.
        seen: time of its last event, UTC.
        failures: a text for each failed step.
    """

    run_id: str
    status: str
    seen: datetime
    failures: tuple[str, ...] = ()
    over: bool = True


def find_last_run(home: Path, pipeline: str) -> LastRun | None:
    """Returns the newest run of a pipeline; None if the history has none or cannot be read."""
    if not (home / SETTINGS).is_file():
        return None
    try:
        with reporting_history(home), open_instance(home) as instance:
            records = instance.get_run_records(limit=RUNS_SEARCHED)
            found = next((each for each in records if is_about(each.dagster_run, pipeline)), None)
            if found is None:
                return None
            run = found.dagster_run
            return LastRun(
                run_id=run.run_id[:8],
                status=run.status.value,
                seen=datetime.fromtimestamp(found.update_timestamp.timestamp(), UTC),
                over=run.is_finished,
                failures=tuple(_failures(instance, run.run_id)) if run.is_failure else (),
            )
    except InputError:  # the next run tells of it; the models can be shown without its history
        return None


def _failures(instance: object, run_id: str) -> list[str]:
    import dagster as dg

    assert isinstance(instance, dg.DagsterInstance)
    events = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    return [
        f"{each.step_key}: {said_by(each.dagster_event.step_failure_data)}" for each in events if each.dagster_event
    ]


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """The facts.

    Attributes:
        home: absolute path of the home folder.
        made: time at which they were read, UTC.
        entries: models by train table, best validation score first; tables without a model are left out.
        last_run: its newest run, None if the history has none.
    """

    pipeline: Pipeline
    home: Path
    made: datetime
    entries: Sequence[Entry] = field(repr=False)
    states: Sequence[State] = field(repr=False)
    last_run: LastRun | None = None

    @property
    def predictions(self) -> list[Prediction]:
        """Numbers that were predicted and measured."""
        return predictions(self.entries)

    def artifact(self, stage: str) -> Artifact | None:
        """Returns the artifact of a stage of the first split, None if it is not there."""
        return next((each.artifact for each in self.states if each.artifact and each.artifact.stage == stage), None)

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph, 0 if it is not there."""
        graph = self.artifact("graph")
        return 0 if graph is None else int(graph.summary["numbers"].get("num_nodes", 0))

    @property
    def missing(self) -> list[State]:
        """The artifacts that a run would build."""
        return [state for state in self.states if state.artifact is None]


def read_facts(pipeline: Pipeline, home: Path | None, now: datetime | None = None) -> ReportFacts:
    """Reads the facts.

    Args:
        home: home of store and history, None for the default.
        now: time of the report, None for the present.

    Raises:
        InputError: no model of the pipeline is trained, or its raw content is missing.
    """
    folder = home_folder(home)
    return ReportFacts(
        pipeline=pipeline,
        home=folder,
        made=now or datetime.now(UTC),
        entries=ranked(stored_entries(pipeline, home)),
        states=pipeline_states(pipeline, home),
        last_run=find_last_run(folder, pipeline.name),
    )


def data_table(facts: ReportFacts) -> PlainTable:
    """Returns a row for each graph of a pipeline: nodes, edges, classes, labels or targets, and the sizes of the splits."""
    columns = COLUMN_WORDS[facts.pipeline.graph.task][1]
    names = {"num_nodes": "nodes", "num_edges": "edges", "num_classes": columns, "num_labelled": "labelled"}
    names |= {f"num_{part}": words for part, words in SPLITS.items()}
    graphs = {each.name: each.artifact for each in facts.states if each.artifact and each.artifact.stage == "graph"}
    rows = [
        [name, *(f"{numbers[each]:,}" if each in numbers else "-" for each in names)]
        for name, numbers in ((name, graph.summary["numbers"]) for name, graph in graphs.items())
    ]
    return PlainTable(title="the data", columns=["graph", *names.values()], rows=rows, left=frozenset({"graph"}))


def lineage_table(states: Sequence[State]) -> PlainTable:
    """Returns a row for each artifact that a pipeline asks for: where it is, when and how long it was built, and what it read."""
    names = {(state.label.partition("/")[0], state.version): state.name for state in states}
    columns = ["step", "artifact", "state", "built (UTC)", "seconds", "size", "reads"]
    rows = [[state.name, state.label, *_built(state, names)] for state in states]
    left = frozenset({"step", "artifact", "state", "built (UTC)", "reads"})
    return PlainTable(title="lineage", columns=columns, rows=rows, left=left)


def _built(state: State, names: dict[tuple[str, str], str]) -> list[str]:
    if state.artifact is None:
        why = str(state.waiting) if state.waiting else "; ".join(state.reasons) or NEVER
        return [f"to be built: {why}", "-", "-", "-", "-"]
    record = state.artifact.run_record()
    seconds = record.get("seconds")
    return [
        "is there",
        str(record.get("started", "-"))[:19].replace("T", " "),
        "-" if seconds is None else f"{seconds:,.1f}",
        format_bytes(state.artifact.total_bytes),
        ", ".join(names.get(each, f"{each[0]}/{short(each[1])}") for each in _read_by(state.artifact, record)) or "-",
    ]


def _read_by(artifact: Artifact, record: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns stage and version of each artifact that one was built from, those that decided its version first."""
    sources = [*artifact.inputs.values(), *(record.get("reads") or {}).values()]
    return list(dict.fromkeys((each["stage"], each["version"]) for each in sources))
