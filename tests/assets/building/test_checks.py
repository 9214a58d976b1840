"""The checks of several artifacts as one check each."""

from pathlib import Path

from graphmill.assets.building.checks import join_checks
from graphmill.assets.building.stage import Check, Summary
from graphmill.assets.storage.artifact import Artifact
from graphmill.assets.storage.store import Store


def artifact(home: Path, seed: int, *checks: Check) -> Artifact:
    with Store(home).writer("toy", f"{seed:064x}") as writer:
        return writer.publish({"seed": seed}, {}, Summary(checks=list(checks)), {})


def test_the_checks_of_one_artifact_are_its_own(tmp_path: Path) -> None:
    check = Check(name="sorted", passed=False, detail="3 rows", numbers={"rows": 3, "bound": 0}, blocking=False)
    assert join_checks([artifact(tmp_path, 0, check)], ["sorted"], reused=False) == [check]


def test_of_several_artifacts_each_says_its_own(tmp_path: Path) -> None:
    made = [
        artifact(
            tmp_path,
            seed,
            Check(name="low", passed=seed < 2, detail=f"{seed} found", numbers={"found": seed, "bound": 1}),
        )
        for seed in (1, 2)
    ]
    (check,) = join_checks(made, ["low"], reused=False)
    assert not check.passed and check.blocking
    assert check.detail == "seed 1: 1 found; seed 2: 2 found"
    assert check.numbers == {"found, seed 1": 1, "found, seed 2": 2, "bound": 1}


def test_a_check_that_is_younger_than_a_reused_artifact_is_a_warning(tmp_path: Path) -> None:
    made = [artifact(tmp_path, 1, Check(name="old", passed=True, detail="1 found"))]
    old, young = join_checks(made, ["old", "young"], reused=True)
    assert old.passed and not young.passed and not young.blocking
    assert young.detail.startswith("not tested: toy/") and "built before" in young.detail
    assert [check.name for check in join_checks(made, ["old", "young"], reused=False)] == ["old"]
