"""The prediction of a run record beside what the training measured, which the report shows, and the errors of all runs of a home."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.figures.cost import read_ledger
from graphmill.trainers.record.ledger import LINKS, Ledger
from graphmill.trainers.record.memory import measured_memory

UNMOVED = "predicted, and none moved"
"""Text in the place of the ratio of such a link."""


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


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """One run, with ratios of what was predicted to what was measured.

    Attributes:
        asked_by: PIPELINE/TABLE that ordered the training, "" if it is unnamed.
        memory: ratio of the peaks of memory; None if one of the two is not known.
        links: link -> ratio of bytes of an epoch; None if bytes were predicted, and none moved.
        seconds: ratio of the seconds of an epoch, the median; None if speeds had not been measured before the run.
    """

    asked_by: str
    trainer: str
    version: str
    memory: float | None
    links: Mapping[str, float | None]
    seconds: float | None


def prediction_errors(store: Store) -> list[PredictionError]:
    """Returns the errors of all runs of a home that recorded a prediction."""
    return [found for artifact in store.artifacts() if artifact.stage == "model" for found in _of(artifact)]


def _of(model: Artifact) -> Iterator[PredictionError]:
    run = model.run_record()
    found = find_outcome(model)
    if found is None:
        return
    links = {link: _ratio(predicted, measured) for link, (predicted, measured) in found.links.items()}
    yield PredictionError(
        asked_by=str((run.get("execution") or {}).get("asked_by") or ""),
        trainer=model.config["train"]["trainer"],
        version=model.version,
        memory=_ratio(*found.memory),
        links=links,
        seconds=_ratio(*found.seconds),
    )


def _ratio(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured if predicted is not None and measured else None


def error_lines(found: Sequence[PredictionError]) -> Iterator[str]:
    """Yields a table of the errors, and what its numbers mean."""
    if not found:
        yield "no run of this home has recorded a prediction"
        return
    names = [each.asked_by or each.version[:12] for each in found]
    width = max(len("run"), *map(len, names))
    trainers = max(len("trainer"), *(len(each.trainer) for each in found))
    yield f"{'run':{width}}  {'trainer':{trainers}}  {'memory':>7}  {'seconds':>7}  bytes by link"
    for name, each in zip(names, found, strict=True):
        links = ", ".join(
            f"{link} {UNMOVED if ratio is None else f'{ratio:.3f}'}" for link, ratio in each.links.items()
        )
        yield f"{name:{width}}  {each.trainer:{trainers}}  {_shown(each.memory):>7}  {_shown(each.seconds):>7}  {links}".rstrip()
    yield "predicted / measured; seconds are those of an epoch, and - where speeds had not been measured before the run"


def _shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
