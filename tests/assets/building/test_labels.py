"""What is shown of the artifacts of a step: labels of numbers, and several checks as one."""

from pathlib import Path

import pytest

from graphmill.assets.building.labels import join_checks, labelled, rounded
from graphmill.assets.building.stage import Check, Summary
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store


@pytest.mark.parametrize(
    ("name", "value", "label", "shown"),
    [
        ("num_nodes", 3000, "nodes", 3000),
        ("feature_bytes", 3 << 19, "feature (MiB)", 1.5),
        ("stored_bytes", 123_456_789_012, "stored (MiB)", 117737.6),
        ("row_bytes", 256, "row (B)", 256),
        ("read_bytes_by_tier", {"host": 1 << 20, "disk": 0}, "read by tier (MiB)", {"host": 1.0, "disk": 0.0}),
        ("build_seconds", 0.97123, "build (s)", 0.9712),
        ("test_accuracy", 0.9783333, "test accuracy (%)", 97.83),
        ("test_roc_auc", 0.912345, "test roc auc (%)", 91.23),
        ("touched_ratio", 0.70466, "touched ratio (%)", 70.47),
        ("hit_ratio_random_10_percent", 0.098928, "hit ratio random at 10 % (%)", 9.893),
        ("expected_hit_ratio_5_percent", 0.05, "expected hit ratio at 5 % (%)", 5.0),
        ("best_epoch", 3, "best epoch", 3),
        ("device_share", "300 of 3,000 rows", "device share", "300 of 3,000 rows"),
        ("class_names", ["a", "b"], "class names", ["a", "b"]),
        ("reused", True, "reused", True),
    ],
)
def test_a_number_has_its_unit_in_its_label(name, value, label, shown):
    assert labelled(name, value) == (label, shown)


def test_small_numbers_keep_what_counts_and_large_ones_one_digit():
    assert [rounded(number) for number in (0.000244140625, 0, 999.96, 12345.678)] == [0.0002441, 0, 1000.0, 12345.7]


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
