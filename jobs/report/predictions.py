"""Numbers that were predicted before a training, beside those that it measured.

`predictions` is the one place that knows which these are: whatever a run records in advance is added there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.commands.results.leaderboard import Entry
from graphmill.jobs.figures.cost import LINKS
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.planning.outcome import find_outcome
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
        is_bytes: whether it is a number of bytes.
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
