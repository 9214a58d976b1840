"""What a training moved and what its cache saved: the ledger of a model, in a few numbers for the UI."""

from __future__ import annotations

import json
from typing import Any

from assets.storage.artifact import Artifact
from trainers.record.ledger import Ledger

TIERS = ("hits_device", "hits_host", "misses")
"""Counts that a cache keeps: rows by where they came from."""


def traffic_metadata(model: Artifact) -> dict[str, Any]:
    """Returns bytes moved by link, and where there was a cache its rows by tier, their hit ratio, and what it held.

    Args:
        model: a trained model; the numbers are of all its epochs.
    """
    ledger = json.loads(model.file("ledger.json").read_text())
    moved = {f"{link}_bytes": n for link, n in Ledger.from_rows(ledger).bytes_by_link().items()}
    rows = {row["name"]: row["n"] for row in ledger["counts"] if row["name"] in TIERS}
    shown: dict[str, Any] = dict(sorted(moved.items())) | rows
    if sum(rows.values()):
        shown["device_hit_ratio"] = rows["hits_device"] / sum(rows.values())
    record = model.run_record().get("cache") or {}
    return shown | {f"cache_{name}": record[name] for name in ("device_rows", "host_rows") if name in record}
