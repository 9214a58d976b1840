"""The cores that a process may use: those it may run on, and the time that its control groups grant, in both versions."""

import os

import pytest

from graphmill.assets.storage.system import control_group
from graphmill.assets.storage.system.control_group import most_cores
from graphmill.assets.storage.system.machine import usable_cores


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Returns a function that writes this process's memberships, and the files of groups by path below the mount."""
    monkeypatch.setattr(control_group, "MOUNT", tmp_path / "cgroup")
    monkeypatch.setattr(control_group, "OWN", tmp_path / "own")

    def write(own, files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    return write


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b\n", {"a/cpu.max": "250000 100000", "a/b/cpu.max": "max 100000"}, 2.5),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "150000 50000"}, 3.0),
        ("3:cpuset:/\n2:cpu,cpuacct:/jobs\n", {"cpu/jobs/cpu.cfs_quota_us": 50000, "cpu/jobs/cpu.cfs_period_us": 100000}, 0.5),
        ("2:cpu:/jobs\n", {"cpu/jobs/cpu.cfs_quota_us": -1, "cpu/jobs/cpu.cfs_period_us": 100000}, None),
        ("0::/\n", {}, None),
    ],
)  # fmt: skip
def test_the_least_grant_of_all_groups_counts(groups, own, files, expected):
    groups(own, files)
    assert most_cores() == expected


def test_whole_cores_are_used_and_at_least_one(groups, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)))
    for grant, expected in (("max", 6), ("250000", 2), ("50000", 1), ("900000", 6)):
        groups("0::/\n", {"cpu.max": f"{grant} 100000"})
        assert usable_cores() == expected
