"""Numbers that were predicted before a training, beside those that it measured.

`predictions` is the one place that knows which these are: whatever a run records in advance is added there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assets.sizes import format_bytes
from assets.storage.artifact import Artifact
from jobs.commands.leaderboard import Entry
from jobs.figures.plain_table import PlainTable
from trainers.record.checks import LEDGER_EQUALS_PLAN

PLANNED, COUNTED = ", planned", ", counted"
"""Endings of the numbers of the check of the ledger."""

MEMORY = "main memory, an upper bound"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One number of a training.

    Attributes:
        table, seed: the training.
        what: name of the number.
        predicted, measured: the number before and after the training.
        is_bytes: whether it is a number of bytes.
    """

    table: str
    seed: int
    what: str
    predicted: float
    measured: float
    is_bytes: bool = False

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None if nothing was measured."""
        return (self.predicted - self.measured) / self.measured if self.measured else None


def predictions(entries: Sequence[Entry]) -> list[Prediction]:
    """Returns all numbers of the models that are known both ways, table by table."""
    return [each for entry in entries for model in entry.models for each in _of_model(entry.table.name, model)]


def _of_model(table: str, model: Artifact) -> Iterator[Prediction]:
    owner = {"table": table, "seed": model.config["seed"]}
    for check in model.summary["checks"]:
        numbers = check.get("numbers", {}) if check["name"] == LEDGER_EQUALS_PLAN else {}
        for name, predicted in numbers.items():
            what = name.removesuffix(PLANNED)
            if what != name and what + COUNTED in numbers:
                values = {"predicted": predicted, "measured": numbers[what + COUNTED]}
                yield Prediction(what=what, is_bytes="bytes" in what, **owner, **values)
    record = model.run_record()
    said, peak = (record.get("memory_need") or {}).get("bytes"), record.get("peak_memory_bytes")
    # The peak of ranks is that of all together, and the need that of one.
    if said and peak and not record.get("ranks"):
        yield Prediction(what=MEMORY, predicted=said, measured=peak, is_bytes=True, **owner)


def prediction_table(found: Sequence[Prediction]) -> PlainTable:
    """Returns predictions as text, one row each; seeds are named if a table has several."""
    seeds = {table: len({each.seed for each in found if each.table == table}) for table in {e.table for e in found}}
    rows = []
    for each in found:
        name = f"{each.table}, seed {each.seed}" if seeds[each.table] > 1 else each.table
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
