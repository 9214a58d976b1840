"""Freed memory stays in the process: counted in page faults, not in time."""

import os
import subprocess
import sys

import pytest

from graphmill.assets.building.child import NO_CACHE, TUNABLES, child_environment
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.trainers.devices import malloc
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.malloc import keep_freed_memory
from tests.e2e.commands import ROOT

FAULTS = """
import resource, sys, torch
from graphmill.trainers.devices.malloc import keep_freed_memory
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

HELD = """
import torch
from graphmill.assets.storage.system.machine import anonymous_bytes
from graphmill.trainers.devices.malloc import keep_freed_memory
keep_freed_memory()
torch.ones(1 << 20) @ torch.ones(1 << 20)
before = anonymous_bytes()
for step in range(16):
    # Tensors a little larger than those of the step before, and small blocks between them that go to the lists of their sizes.
    large = []
    for number in range(8):
        large.append(torch.ones((1 << 19) + 4096 * step, requires_grad=True) * 2)
    sum(each.sum() for each in large).backward()
    alive = 4 * sum(each.numel() for each in large) * 2
    del large
print((anonymous_bytes() - before) / alive)
"""


RETURNED = """
import numpy as np
from graphmill.assets.storage.system.machine import anonymous_bytes
from graphmill.trainers.devices.malloc import keep_freed_memory, return_freed_memory
keep_freed_memory()
before = anonymous_bytes()
large, small = np.ones(32 << 20, np.uint8), np.ones(4096, np.uint8)
del large
kept = anonymous_bytes() - before
return_freed_memory()
print(kept, anonymous_bytes() - before)
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


def test_what_was_freed_before_a_training_is_given_back() -> None:
    import platform

    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc")
    done = subprocess.run([sys.executable, "-c", RETURNED], cwd=ROOT, capture_output=True, text=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 30 << 20 and left < 8 << 20


@pytest.mark.parametrize(("free", "held", "returned"), [(None, 9, 0), (100, 9, 0), (9, None, 0), (9, 100, 1)])
def test_freed_memory_is_given_back_while_training_only_if_there_is_little(
    free: int | None, held: int | None, returned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(malloc, "free_bytes", lambda: free)
    monkeypatch.setattr(malloc, "anonymous_bytes", lambda: held)
    monkeypatch.setattr(malloc, "return_freed_memory", lambda: given.append(1))
    malloc.return_if_short()
    assert len(given) == returned


def test_lent_rows_go_back_when_no_tensor_uses_them() -> None:
    pool = BufferPool()
    x = LogicalDevice().rows(pool, 30, 10, "float32")
    x[...] = 7.0
    kept = x[3:5].view(-1)
    address = x.data_ptr()
    del x
    other = LogicalDevice().rows(pool, 30, 10, "float32")
    assert other.data_ptr() != address  # the view still uses the memory
    assert (kept == 7).all()
    del kept
    assert LogicalDevice().rows(pool, 30, 10, "float32").data_ptr() == address
    assert LogicalDevice().rows(pool, 0, 10, "float32").shape == (0, 10)


def held_share(environment: dict[str, str]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", HELD], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def test_small_blocks_do_not_cut_the_heap_of_a_child() -> None:
    plain = {name: value for name, value in child_environment().items() if name != TUNABLES}
    whole, listed = held_share(child_environment()), held_share(plain)
    assert whole < listed
    assert whole < 1.6  # 1.3 to 1.4, and 1.9 with the lists


def test_a_setting_of_the_user_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNABLES, "glibc.malloc.check=1")
    assert child_environment()[TUNABLES] == f"glibc.malloc.check=1:{NO_CACHE}=0"
    monkeypatch.setenv(TUNABLES, f"{NO_CACHE}=5")
    assert child_environment()[TUNABLES] == os.environ[TUNABLES] == f"{NO_CACHE}=5"
