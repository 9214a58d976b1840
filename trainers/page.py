"""What the page of a train table's models says; without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean, stdev
from types import MappingProxyType

from assets.building.page import Page
from assets.storage.artifact import Artifact

HITS = ("hits_device", "hits_host", "hits_disk_cache", "hits_packed", "misses")
"""Counts of the ledger: rows by where they came from."""


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns score, epochs with their time, the share of rows that the device held, and the peak memory where it was recorded."""
    parts = [_score(artifacts), _epochs(artifacts)]
    share = _device_share(artifacts[-1])
    if share is not None:
        parts.append(f"{100 * share:.0f} % of the rows from the device")
    peak = artifacts[-1].run_record().get("peak_memory_bytes")
    if peak:
        parts.append(f"peak memory {peak / (1 << 20):,.0f} MiB")
    return ", ".join(part for part in parts if part)


def _score(models: Sequence[Artifact]) -> str:
    """Returns the metric of the table on test nodes, or on those of the validation where there are no test nodes."""
    config, numbers = models[0].config["train"], models[0].summary["numbers"]
    metric = config.get("metric", "accuracy")
    for split in ("test", "valid", "train"):
        if (name := f"{split}_{metric}") in numbers:
            values = [100 * model.summary["numbers"][name] for model in models]
            spread, seeds = (f" ± {stdev(values):.1f}", f" ({len(values)} seeds)") if len(values) > 1 else ("", "")
            words = metric.replace("roc_auc", "ROC AUC").replace("_", " ")
            return f"**{fmean(values):.1f}{spread} % {split} {words}**{seeds}"
    return ""


def _epochs(models: Sequence[Artifact]) -> str:
    seconds = [each for model in models for each in model.run_record().get("epoch_seconds", {}).get("train", [])]
    runs = sorted({model.summary["numbers"]["epochs_run"] for model in models})
    epochs = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    return f"{epochs} epochs" + (f" of {fmean(seconds):.2g} s" if seconds else "")


def _device_share(model: Artifact) -> float | None:
    counts = json.loads(model.file("ledger.json").read_text())["counts"]
    rows = {name: sum(row["n"] for row in counts if row["name"] == name) for name in HITS}
    return rows["hits_device"] / sum(rows.values()) if any(rows[name] for name in HITS if name != "misses") else None


MODEL_PAGE = Page(
    about="The trained models of one `[[train]]` table, one per seed: the weights that were best on validation, the metrics of each epoch "
    "and a ledger of what moved. "
    "Everything upstream is there for this, and equal weights mean an equal training, bit by bit. "
    "Look at the test score and the learning curve first, then at the seconds per epoch and at the bytes by link, which say what it cost.",
    docs="docs/stages/model.md",
    headline=headline,
    first=(
        "test_accuracy",
        "valid_accuracy",
        "train_accuracy",
        "test_roc_auc",
        "valid_roc_auc",
        "epochs_run",
        "best_epoch",
        "loss",
        "parameters",
    ),
    labels=MappingProxyType(
        {
            "loss": "loss of the last epoch",
            "disk_bytes": "read from disk (MiB)",
            "mapped_bytes": "asked of mapped files (MiB)",
            "h2d_bytes": "moved from host to device (MiB)",
            "d2h_bytes": "moved from device to host (MiB)",
            "d2d_bytes": "moved within the device (MiB)",
            "hits_device": "rows from the device",
            "hits_host": "rows from the host",
            "hits_disk_cache": "rows from the disk cache",
            "hits_packed": "rows packed with their batch",
            "misses": "rows from the feature file",
            "device_hit_ratio": "rows from the device (%)",
            "cache_device_rows": "rows kept on the device",
            "cache_host_rows": "rows kept on the host",
        }
    ),
    kinds=frozenset({"pytorch"}),
)
