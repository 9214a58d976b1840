"""Rows of a device that other processes and devices read in place: parts of the CPU, the simulated accelerator, and contexts of a GPU."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.protocol import CACHE, OverBudget
from tests.accelerator.peer_child import ROWS, WIDTH, digest, make_device, make_rows, read_rows

KINDS = ["cpu", "simulated", pytest.param("cuda", marks=pytest.mark.gpu)]
BYTES = ROWS * WIDTH * 2


class Child:
    """A process of tests/accelerator/peer_child.py."""

    def __init__(self, kind: str, seed: int):
        command = [sys.executable, "-m", "tests.accelerator.peer_child", kind, str(seed)]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **streams)
        self.handle = self._line()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait()}"
        return json.loads(line)

    def ask(self, line: str) -> dict[str, Any]:
        """Sends a line and returns the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._line()


@contextmanager
def child(kind: str, seed: int) -> Iterator[Child]:
    found = Child(kind, seed)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def expected(seed: int) -> np.ndarray:
    return make_rows(seed)[::-1].astype(np.float32)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_two_processes_read_the_rows_of_each_other_in_place(kind: str) -> None:
    """And go on when the one that has the rows is gone; whoever comes later is told."""
    device = make_device(kind)
    own, handle = device.export_rows(make_rows(1))
    with child(kind, 2) as other, child(kind, 3) as third:
        peer = device.open_peer(json.loads(json.dumps(third.handle)))
        np.testing.assert_array_equal(read_rows(device, peer), expected(3))
        assert other.ask("open " + json.dumps(handle)) == {"digest": digest(expected(1))}
        assert third.ask("open " + json.dumps(other.handle)) == {"digest": digest(expected(2))}
        other.process.kill()
        other.process.wait()
        # What was mapped stays mapped; at least no process ends by it, and no wrong row is read.
        answer = third.ask("again")
        assert answer == {"digest": digest(expected(2))} or (kind == "cuda" and "problem" in answer), answer
        assert third.process.poll() is None
        if kind == "cuda" and "digest" in answer:  # a driver may open what another process still has mapped
            with suppress(InputError):
                np.testing.assert_array_equal(read_rows(device, device.open_peer(other.handle)), expected(2))
    with pytest.raises(InputError, match=f"process {other.handle['process']}"):
        device.open_peer(other.handle)
    np.testing.assert_array_equal(read_rows(device, own), expected(1))


def test_a_process_opens_its_own_rows_and_drops_them(kind: str) -> None:
    device = make_device(kind)
    own, handle = device.export_rows(make_rows(1))
    again = device.open_peer(handle)
    del own
    gc.collect()
    np.testing.assert_array_equal(read_rows(device, again), expected(1))
    del again
    gc.collect()
    with pytest.raises(InputError, match="process"):
        device.open_peer(handle)


def test_no_rows_are_exported_and_opened(kind: str) -> None:
    device = make_device(kind)
    own, handle = device.export_rows(np.empty((0, WIDTH), np.float16))
    assert tuple(own.shape) == tuple(device.open_peer(handle).shape) == (0, WIDTH)


def test_exported_rows_are_cached_rows_within_their_budget(kind: str) -> None:
    device = make_device(kind)
    device.cache_bytes = BYTES
    own, _ = device.export_rows(make_rows(1))
    assert device.peak[CACHE] == BYTES
    with pytest.raises(OverBudget, match="cache on device 0"):
        device.export_rows(make_rows(2)[:1])
    assert tuple(own.shape) == (ROWS, WIDTH)


@pytest.mark.gpu
def test_a_gpu_reads_the_memory_of_another_of_its_process() -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    from graphmill.trainers.devices.accelerator import Accelerator
    from graphmill.trainers.devices.cuda import CudaBackend

    first, second = (Accelerator(CudaBackend(index), index) for index in (0, 1))
    _own, handle = first.export_rows(make_rows(1))
    np.testing.assert_array_equal(read_rows(second, second.open_peer(handle)), expected(1))
