"""Forecasts of tiny trainings against what their ledgers and records say afterwards, and formulas against numbers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.storage.artifact import Artifact
from tests.assets.packed_chunks.packed import Packed
from tests.trainers.runs import train_packed, train_parts, parts_inputs, train_small, train_whole
from tests.trainers.ranks.threads import run_threads
from trainers.record.ledger import Ledger
from trainers.recipe.drawn import pages_of
from trainers.recipe.forecast import Speeds
from trainers.recipe.kept_speeds import keep_speeds, kept_speeds


def predicted(model: Artifact) -> dict[str, Any]:
    return model.run_record()["prediction"]


def moved(model: Artifact) -> dict[str, float]:
    epochs = model.summary["numbers"]["epochs_run"]
    links = Ledger.from_rows(json.loads(model.file("ledger.json").read_text())).bytes_by_link()
    return {link: num_bytes / epochs for link, num_bytes in links.items() if num_bytes}


def test_a_minibatch_training_moves_what_drawn_batches_say(tmp_path: Path) -> None:
    model = train_small(tmp_path, epochs=2, samplers=1)
    found, counted = predicted(model), moved(model)
    assert found["bytes_per_epoch"].keys() == counted.keys() == {"mapped", "h2d"}
    assert found["bytes_per_epoch"]["h2d"] == pytest.approx(counted["h2d"], rel=0.03)
    assert found["memory_bytes"] > 100 << 20 and found["epoch_seconds"] is None and not found["exact"]
