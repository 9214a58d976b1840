"""`graphmill simulate`: tables, JSON, a drawing, and the stage times of a trained model."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.machine.simulate import measured_workload
from graphmill.kernels.errors import InputError
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.factored.simulator.simulate import simulate
from graphmill.trainers.techniques.factored.simulator.workload import Workload
from tests.trainers.runs import train_small


def run(*arguments: str) -> Any:
    return CliRunner().invoke(graphmill, ["simulate", *arguments])


@pytest.mark.usefixtures("drawn")
def test_given_times_are_simulated_for_every_split(tmp_path: Path) -> None:
    given = ("--sample", "0.02", "--train", "0.06", "--batches", "30", "--devices", "4", "--group", "2")
    found = json.loads(run(*given, "--json").output)
    work = Workload(batches=30, sample=0.02, train=0.06, group=2)
    assert [row["seconds"] for row in found["by_samplers"]] == [simulate(work, s, 4 - s).seconds for s in (1, 2, 3, 4)]
    assert found["by_samplers"][-1]["static_seconds"] is None
    last = found["by_devices"][-1]
    assert (last["devices"], last["formula_samplers"]) == (4, 1)
    assert last["best_seconds"] == min(row["seconds"] for row in found["by_samplers"])
    printed = run(*given, "--out", str(tmp_path / "split.png"))
    assert "4 devices: " in printed.output and "the formula says 1" in printed.output
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_gives_the_times_of_its_stages(tmp_path: Path) -> None:
    settings = FactoredSettings(samplers=1, trainers=2, staleness=1)
    split = train_small(tmp_path, trainer="factored", settings=settings, epochs=2)
    found = measured_workload(split)
    assert (found["batches"], found["group"], found["staleness"]) == (7, 3, 1)
    seconds = split.run_record()["executors"]["stage_seconds"]
    assert found["train"] == pytest.approx(seconds["train"] / 7) and found["sample"] > 0
    with pytest.raises(InputError, match="was not trained by samplers and trainers"):
        measured_workload(train_small(tmp_path, epochs=2))


def test_what_is_missing_is_said() -> None:
    failed = run("--sample", "1")
    assert isinstance(failed.exception, InputError) and "give NAME, or both times" in str(failed.exception)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (("0", "0"), "no stage takes time"),
        (("nan", "1"), "sample = nan is no time"),
        (("1", "inf"), "train = inf is no"),
    ],
)
def test_times_that_are_none_are_refused(times: tuple[str, str], problem: str) -> None:
    failed = run("--sample", times[0], "--train", times[1])
    assert isinstance(failed.exception, InputError) and problem in str(failed.exception)
