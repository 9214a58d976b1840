"""What a training moved and what its cache saved: the ledger of a model, in a few numbers for the UI."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from assets.storage.artifact import Artifact

TIERS = ("hits_device", "hits_host", "misses")
"""Counts that a cache keeps: rows by where they came from."""


def traffic_metadata(model: Artifact) -> dict[str, Any]:
    """Returns bytes moved by link, and where there was a cache its rows by tier, their hit ratio, and what it held.

    Args:
        model: a trained model; the numbers are of all its epochs.
    """
    ledger = json.loads(model.file("ledger.json").read_text())
    moved: Counter[str] = Counter()
    for row in ledger["moves"]:
        moved[f"{row['link']}_bytes"] += row["asked_bytes" if row["link"] == "mapped" else "moved_bytes"]
    rows = {row["name"]: row["n"] for row in ledger["counts"] if row["name"] in TIERS}
    shown: dict[str, Any] = dict(sorted(moved.items())) | rows
    if sum(rows.values()):
        shown["device_hit_ratio"] = rows["hits_device"] / sum(rows.values())
    record = model.run_record().get("cache") or {}
    return shown | {f"cache_{name}": record[name] for name in ("device_rows", "host_rows") if name in record}
