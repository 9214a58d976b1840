"""The leaderboard: the models of a pipeline, best validation score first."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from assets.storage.artifact import Artifact
from assets.storage.version import short
from trainers.config import TrainTable


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The models of one train table, one per seed."""

    table: TrainTable
    models: Sequence[Artifact]

    def scores(self, split: str) -> list[float]:
        """The table's metric on a split, one value a seed; empty where the graph has no such split."""
        name = f"{split}_{self.table.metric}"
        return [model.summary["numbers"][name] for model in self.models if name in model.summary["numbers"]]

    def epoch_seconds(self) -> float:
        """Median seconds of a training epoch over all seeds, as recorded when the models were trained."""
        seconds = [s for model in self.models for s in model.run_record().get("epoch_seconds", {}).get("train", [])]
        return statistics.median(seconds) if seconds else float("nan")


def print_leaderboard(pipeline_name: str, entries: Sequence[Entry]) -> None:
    """Prints a row a train table: scores on each split (mean and deviation over seeds), epochs, time and versions."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{pipeline_name}: leaderboard", title_justify="left")
    for heading in ("name", "model", "trainer", "valid", "test", "best epoch", "s / epoch", "models"):
        table.add_column(heading, justify="left" if heading in ("name", "model", "trainer", "models") else "right")
    for entry in sorted(entries, key=lambda entry: -_mean(entry.scores("valid"))):
        table.add_row(
            entry.table.name,
            entry.table.model,
            entry.table.trainer,
            _spread(entry.scores("valid")),
            _spread(entry.scores("test")),
            ", ".join(str(model.summary["numbers"]["best_epoch"] + 1) for model in entry.models[:3]),
            f"{entry.epoch_seconds():.2f}",
            ", ".join(short(model.version) for model in entry.models[:1]) + _more(len(entry.models) - 1),
        )
    # A pipe has no width; a row must not be folded in a log because of that.
    console = Console()
    Console(width=None if console.is_terminal else 140).print(table)


def _mean(scores: list[float]) -> float:
    return statistics.fmean(scores) if scores else 0.0


def _spread(scores: list[float]) -> str:
    if not scores:
        return "-"
    mean = f"{100 * statistics.fmean(scores):.2f}"
    return mean if len(scores) == 1 else f"{mean} ± {100 * statistics.stdev(scores):.2f}"


def _more(count: int) -> str:
    return f" + {count} more" if count > 0 else ""
