"""Freed memory stays in the process: counted in page faults, not in time."""

import subprocess
import sys

import pytest

from tests.e2e.commands import ROOT
from trainers.memory import keep_freed_memory

FAULTS = """
import resource, sys, torch
from trainers.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()

def faults_of(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        x = torch.ones(16 << 20)  # 64 MiB
        y = x + 1
        del x, y
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of(20)  # the heap settles in some steps
print(faults_of(5))
"""


def count_faults(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, mode], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_large_buffers_are_faulted_in_once() -> None:
    import platform

    if platform.libc_ver()[0] != "glibc":
        assert not keep_freed_memory()
        pytest.skip("the C library is not glibc")
    fresh, kept = count_faults("fresh"), count_faults("keep")
    assert fresh > 5 * 2 * (64 << 20) // 4096 * 0.5
    # One of the ten buffers may still grow the heap; all others are reused.
    assert kept < fresh / 5
