"""The peak counts memory that was taken and given back, and no page of a mapped file."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.storage.system.machine import STATM, anonymous_bytes
from graphmill.trainers.record.memory import PeakMemory, measured_memory

MIB = 1 << 20
SLACK = 8 * MIB

pytestmark = pytest.mark.skipif(not STATM.exists(), reason="reads /proc")


def test_memory_that_was_given_back_is_in_the_peak() -> None:
    before, memory = anonymous_bytes(), PeakMemory()
    assert before is not None
    with memory.watched():
        taken = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        np.frombuffer(taken, np.uint8)[:: mmap.PAGESIZE] = 1
        held = anonymous_bytes()
        while memory.bytes is not None and held is not None and memory.bytes < held - SLACK:  # the next sample sees it
            pass
        taken.close()
    assert memory.bytes is not None and memory.bytes - before >= 64 * MIB - SLACK
    assert (anonymous_bytes() or 0) - before < 64 * MIB - SLACK


def test_pages_of_a_mapped_file_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(64 * MIB))
    memory = PeakMemory()
    before = anonymous_bytes()
    with memory.watched():
        assert np.memmap(path, np.uint8, "r").sum() == 0
    assert memory.bytes is not None and before is not None and memory.bytes - before < 64 * MIB - SLACK


def test_the_peak_of_ranks_is_their_sum_if_all_are_known() -> None:
    ranks = [{"peak_memory_bytes": 5}, {"peak_memory_bytes": 7}]
    assert measured_memory({"peak_memory_bytes": 5}) == 5
    assert measured_memory({"peak_memory_bytes": 5, "ranks": ranks}) == 12
    assert measured_memory({"peak_memory_bytes": 5, "ranks": [*ranks, {"peak_memory_bytes": None}]}) is None
    assert measured_memory({}) is None
