"""What an epoch cost: the numbers of the picture are those of the ledger and of the run."""

import json
from pathlib import Path

import pytest

from graphmill.assets.figures.style import LEVELS
from graphmill.jobs.figures.cost import cost_metadata, draw_cost, epoch_cost, traffic_metadata
from graphmill.trainers.record.checks import TIERS
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import parts_inputs, train_fresh, train_packed, train_parts, train_small

pytestmark = pytest.mark.usefixtures("drawn")


def counts_of(model):
    return {
        row["name"]: row["n"] for row in json.loads(model.file("ledger.json").read_text())["counts"] if not row["layer"]
    }


def test_rows_and_bytes_are_those_of_the_ledger_per_epoch(tmp_path: Path) -> None:
    model = train_packed(build_packed(tmp_path / "packed", epochs=2), tmp_path / "home")
    cost, counts = epoch_cost(model), counts_of(model)
    assert cost["rows"] == {
        "device": counts["hits_device"] / 3, "host": counts["hits_host"] / 3,
        "disk cache": counts["hits_disk_cache"] / 3, "packed": counts["hits_packed"] / 3,
    }  # fmt: skip
    moves = json.loads(model.file("ledger.json").read_text())["moves"]
    disk = sum(row["moved_bytes"] for row in moves if row["link"] == "disk")
    assert cost["bytes"]["disk"] == disk / 3 and set(cost["bytes"]) == {"disk", "host to device", "within the device"}
    assert "data:image/png" in cost_metadata(model)["cost of an epoch"].value


def test_without_a_cache_every_row_is_one_of_the_feature_file(tmp_path: Path) -> None:
    model = train_small(tmp_path)
    cost, counts = epoch_cost(model), counts_of(model)
    assert cost["rows"] == {"feature file": counts["inputs"] / 3}
    assert cost["bytes"]["mapped file (asked for)"] == cost["bytes"]["host to device"] == 48 * counts["inputs"] / 3


def test_every_tier_has_a_place_in_the_picture_and_rows_add_up(tmp_path: Path) -> None:
    """Of ranks with a cache of the others' rows, too, and of an arena in front of the feature file."""
    assert set(TIERS.values()) == set(LEVELS)
    parts_inputs(tmp_path, 2)
    memory = {"device": 0, "host": "20%", "seed": 1}
    by_ranks = run_threads(2, lambda ranks: train_parts(tmp_path, 2, ranks, memory=memory))[0]
    memory, settings = {"device": "20%", "host": "10%"}, {"exchange": "peer"}
    home = tmp_path / "devices"
    parts_inputs(home, 2, memory=memory)
    on_devices = run_threads(2, lambda ranks: train_parts(home, 2, ranks, memory=memory, settings=settings))[0]
    for model, places in (
        (by_ranks, {"own shards", "host", "other ranks"}),
        (on_devices, {"device", "devices of other ranks", "own shards", "host", "other ranks"}),
        (train_fresh(tmp_path), {"arena", "feature file"}),
    ):
        cost, counts = epoch_cost(model), counts_of(model)
        assert set(cost["rows"]) == places and all(cost["rows"].values())
        assert sum(cost["rows"].values()) == pytest.approx(counts["inputs"] / 3)
        assert "data:image/png" in cost_metadata(model)["cost of an epoch"].value
        shown = traffic_metadata(model)
        there = sum(counts[name] for name in ("hits_arena", "hits_device") if name in counts)
        share = there / counts["inputs"] if there else None
        assert shown.get("device_hit_ratio") == share
        assert {name: n for name, n in shown.items() if name in TIERS} == {
            name: counts[name] for name in TIERS if name in counts
        }


def test_seconds_are_the_means_of_the_run(tmp_path: Path) -> None:
    model = train_small(tmp_path, eval_every=2)
    run, seconds = model.run_record()["epoch_seconds"], epoch_cost(model)["seconds"]
    assert seconds["training steps"] + seconds["waiting"] == pytest.approx(sum(run["train"]) / 3)
    assert seconds["evaluation"] == pytest.approx(sum(run["evaluate"]) / 3)


@pytest.mark.parametrize(
    "cost",
    [
        {"seconds": {}, "rows": {}, "bytes": {}},
        {"seconds": {"training steps": 1e-9}, "rows": {"packed": 1e12}, "bytes": {"disk": 1e15, "host to device": 0.0}},
    ],
)
def test_it_is_drawn_where_little_is_known(cost) -> None:
    assert draw_cost(cost, "seed 0").startswith(b"\x89PNG")
