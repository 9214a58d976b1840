"""Freed memory stays in the process: counted in page faults, not in time."""

import subprocess
import sys

import pytest

from kernels.rows.aligned import BufferPool
from tests.e2e.commands import ROOT
from trainers.devices.malloc import keep_freed_memory, lent_rows

FAULTS = """
import resource, sys, torch
from trainers.devices.malloc import keep_freed_memory
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


def test_lent_rows_go_back_when_no_tensor_uses_them() -> None:
    pool = BufferPool(1 << 20)
    x = lent_rows(pool, 30, 10)
    x[...] = 7.0
    kept = x[3:5].view(-1)
    address = x.data_ptr()
    del x
    other = lent_rows(pool, 30, 10)
    assert other.data_ptr() != address  # the view still uses the memory
    assert (kept == 7).all()
    del kept
    assert lent_rows(pool, 30, 10).data_ptr() == address
    assert lent_rows(pool, 0, 10).shape == (0, 10)
