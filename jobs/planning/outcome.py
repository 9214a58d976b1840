"""The prediction of a run record beside what the training measured; `graphmill plan --check` and the report read it here."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from graphmill.assets.storage.artifact import Artifact
from graphmill.jobs.figures.cost import read_ledger
from graphmill.trainers.record.ledger import LINKS, Ledger
from graphmill.trainers.record.memory import measured_memory


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """Pairs of a predicted and a measured number; None in place of one that is not known.

    Attributes:
        memory: peak bytes of all ranks together.
        links: link -> bytes of an epoch, the mean of those that were run; without links of which both numbers are 0.
        seconds: seconds of an epoch, without evaluation; the median is the measured number.
    """

    memory: tuple[float | None, float | None]
    links: Mapping[str, tuple[float, float]]
    seconds: tuple[float | None, float | None]


def find_outcome(model: Artifact) -> RunOutcome | None:
    """Returns both numbers of a model; None if its run recorded no prediction."""
    run = model.run_record()
    predicted = run.get("prediction")
    if not predicted:
        return None
    epochs = max(1, model.summary["numbers"]["epochs_run"])
    moved = Ledger.from_rows(read_ledger(model)).bytes_by_link()
    said = predicted.get("bytes_per_epoch") or {}
    links = {link: (said.get(link, 0), moved.get(link, 0) / epochs) for link in LINKS}
    seconds = (run.get("epoch_seconds") or {}).get("train")
    return RunOutcome(
        memory=(predicted.get("memory_bytes"), measured_memory(run)),
        links={link: pair for link, pair in links.items() if any(pair)},
        seconds=(predicted.get("epoch_seconds"), statistics.median(seconds) if seconds else None),
    )
