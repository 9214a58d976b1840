"""The memory that control groups leave a process, in both versions, nested, inside a container, and for real."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphmill.assets.storage.system import control_group
from graphmill.assets.storage.system.control_group import free_bytes, limit_bytes

MIB = 1 << 20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Returns a function that writes the files of a system, by path below its root."""
    monkeypatch.setattr(control_group, "MOUNT", tmp_path / "cgroup")
    monkeypatch.setattr(control_group, "OWN", tmp_path / "own")
    monkeypatch.setattr(control_group, "MACHINE", tmp_path / "meminfo")

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text))

    write(meminfo=f"MemTotal:       {800 * 1024} kB\nMemAvailable:   {700 * 1024} kB\n")
    return write


def test_version_2_counts_every_group_above(system):
    system(own="0::/a/b\n")
    system(cgroup__a__memory_DOT_max=500 * MIB, cgroup__a__memory_DOT_current=450 * MIB)
    system(cgroup__a__memory_DOT_stat=f"anon 1\ninactive_file {100 * MIB}\nactive_file {50 * MIB}\n")
    system(cgroup__a__b__memory_DOT_max="max\n")
    assert limit_bytes() == 500 * MIB
    assert free_bytes() == 200 * MIB, "pages of files are taken back"


def test_version_1_counts_the_groups_below_in_the_totals(system):
    system(own="4:memory:/jobs/mine\n3:cpuset:/\n0::/\n")
    folder = "cgroup__memory__jobs__mine__"
    system(**{f"{folder}memory_DOT_limit_in_bytes": 300 * MIB, f"{folder}memory_DOT_usage_in_bytes": 290 * MIB})
    system(
        **{
            f"{folder}memory_DOT_stat": f"inactive_file 5\ntotal_inactive_file {40 * MIB}\ntotal_active_file {50 * MIB}\n"
        }
    )
    system(cgroup__memory__memory_DOT_limit_in_bytes=2**63 - 4096, cgroup__memory__memory_DOT_usage_in_bytes=5)
    assert limit_bytes() == 300 * MIB
    assert free_bytes() == 100 * MIB


def test_a_group_of_version_1_without_a_limit_has_none(system):
    system(own="4:memory:/\n", cgroup__memory__memory_DOT_limit_in_bytes=2**63 - 4096)
    assert limit_bytes() is None and free_bytes() == 700 * MIB


def test_in_a_container_the_mount_is_the_group(system):
    system(own="0::/kubepods/pod7/whole-path-of-the-host\n", cgroup__memory_DOT_max=100 * MIB)
    assert limit_bytes() == 100 * MIB and free_bytes() == 100 * MIB


def test_without_groups_the_machine_counts(system, tmp_path):
    assert limit_bytes() is None and free_bytes() == 700 * MIB
    (tmp_path / "meminfo").unlink()
    assert free_bytes() is None


def _remove_group(group):
    """Removes a control group, whose last process may still be leaving it."""
    for _ in range(100):
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.1)
    return group.rmdir()


@contextmanager
def memory_group(num_bytes):
    """Yields the file by which a process enters a new control group with a limit."""
    memory = Path("/sys/fs/cgroup/memory")
    top, limit = (memory, "memory.limit_in_bytes") if memory.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
    group = top / f"graphmill-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(num_bytes))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        _remove_group(group)


def test_a_real_group_is_seen_from_inside():
    with memory_group(300 * MIB) as procs:
        code = "\n".join(
            (
                "import os, sys",
                f"open({str(procs)!r}, 'w').write(str(os.getpid()))",
                "from graphmill.assets.storage.system.control_group import free_bytes, limit_bytes",
                "before, held = free_bytes(), bytearray(100 << 20)",
                "print(limit_bytes(), before, free_bytes())",
            )
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    limit, before, after = map(int, done.stdout.split())
    assert limit == 300 * MIB and 250 * MIB < before <= limit
    assert 90 * MIB < before - after < 110 * MIB


def test_a_child_that_the_kernel_ended_is_told_as_that():
    """The largest process of a group goes first, so the parent lives to say why."""
    with memory_group(200 * MIB) as procs:
        code = "\n".join(
            (
                "import os, sys",
                f"open({str(procs)!r}, 'w').write(str(os.getpid()))",
                "from graphmill.assets.building.child import how_it_ended, start_child",
                "hungry = [sys.executable, '-c', 'held = bytearray(400 << 20); held[::4096] = bytes(len(held[::4096]))']",
                "print(how_it_ended(start_child(hungry).wait()))",
                "print(how_it_ended(-9))",
            )
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    words = "SIGKILL (by the kernel: the processes of this control group may take 200.0 MiB, and needed more)"
    assert done.stdout.splitlines() == [words, words]
