"""The bytes that a training moved and its cache saved: the ledger of a model, in a few numbers for the UI."""

from __future__ import annotations

import json
from typing import Any

from assets.storage.artifact import Artifact
from trainers.recipe.page import device_share
from trainers.record.checks import TIERS
from trainers.record.ledger import Ledger


def traffic_metadata(model: Artifact) -> dict[str, Any]:
    """Returns bytes moved by link, and, if several tiers had rows, rows by tier, the device's share, and the rows of a cache.

    Args:
        model: a trained model; the numbers cover all its epochs.
    """
    ledger = json.loads(model.file("ledger.json").read_text())
    moved = {f"{link}_bytes": n for link, n in Ledger.from_rows(ledger).bytes_by_link().items()}
    rows = {row["name"]: row["n"] for row in ledger["counts"] if row["name"] in TIERS}
    shown: dict[str, Any] = dict(sorted(moved.items())) | rows
    if (share := device_share(model)) is not None:
        shown["device_hit_ratio"] = share
    record = model.run_record().get("cache") or {}
    return shown | {f"cache_{name}": record[name] for name in ("device_rows", "host_rows") if name in record}
