"""Staleness: off it is synchronous, on it is bounded, hashed and told; and what else of the settings enters a version."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from graphmill.kernels.errors import InputError
from graphmill.trainers.batches.flow import Closed
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.techniques.factored.queue import Updates
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.factored.watch import Watch
from tests.trainers.runs import train_small


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_batch_waits_until_its_weights_lack_no_more_than_the_bound(staleness: int) -> None:
    updates = Updates(3, 2, staleness, threading.Condition(), Watch(10))
    behind: list[int] = []
    # The first batch of the step group that lacks one update more than the bound allows.
    position = 2 * (3 + staleness + 1)
    waiting = threading.Thread(target=lambda: behind.append(updates.wait_for_weights(position)), daemon=True)
    assert updates.wait_for_weights(position - 1) == staleness
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    updates.update_made()
    waiting.join(60)
    assert behind == [staleness]
    updates.close()
    with pytest.raises(Closed):
        updates.wait_for_weights(0)


@pytest.mark.parametrize("staleness", [1, 3])
def test_a_stale_training_stays_within_its_bound_and_says_that_it_does_not_repeat(
    tmp_path: Path, staleness: int
) -> None:
    settings = FactoredSettings(samplers=2, trainers=3, staleness=staleness)
    model = train_small(tmp_path, trainer="factored", settings=settings, accumulate=1, epochs=2)
    behind = {int(n) for n in model.run_record()["executors"]["updates_behind"]}
    assert max(behind) <= staleness and model.summary["numbers"]["repeatable"] is False
    exact = train_small(tmp_path, trainer="factored", settings=replace(settings, staleness=0), accumulate=1, epochs=2)
    assert exact.version != model.version and "repeatable" not in exact.summary["numbers"]
    assert exact.run_record()["executors"]["updates_behind"] == {"0": 7}


def test_only_staleness_enters_the_version(tmp_path: Path) -> None:
    plain = train_small(tmp_path, trainer="factored", epochs=1)
    for more in ({"samplers": 3, "trainers": 2}, {"sharing": "time"}, {"timeout": 9.0, "switching": False}):
        assert train_small(tmp_path, trainer="factored", settings=FactoredSettings(**more), epochs=1).reused
    assert plain.version == train_small(tmp_path, trainer="factored", epochs=1).version


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"staleness": -1}, "staleness = -1 is below 0"),
        ({"timeout": 0}, "timeout = 0 is not above 0"),
        ({"timeout": 1e10}, "timeout = 10000000000.0 is above 1,000,000"),
        ({"timeout": float("nan")}, "timeout = nan is not above 0"),
        *(({name: 4097}, f"{name} = 4097 is above 4,096") for name in ("samplers", "trainers", "devices")),
        ({"presample": 10**10}, "presample = 10000000000 is above 1,000,000,000"),
        ({"staleness": 10**10}, "staleness = 10000000000 is above 1,000,000,000"),
        ({"samplers": 2, "trainers": 2, "devices": 3}, "samplers = 2 and trainers = 2 are more than devices = 3"),
        ({"trainers": 2, "devices": 2}, "trainers = 2 are all devices = 2, and nobody samples"),
        ({"samplers": 2, "devices": 2, "switching": False}, "nobody trains"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        FactoredSettings(**wrong)


def test_the_samplers_of_the_train_table_mean_something_else() -> None:
    with pytest.raises(InputError, match=r"samplers = 2, but .* write it below \[train.factored\]"):
        TrainTable(name="x", trainer="factored", samplers=2)
    assert TrainTable(name="x", trainer="factored", topology="device").topology == "device"
