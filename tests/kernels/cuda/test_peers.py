"""Exported rows of a GPU, against a runtime of the host's memory. Real ones are in tests/accelerator/test_peers.py."""

from __future__ import annotations

import ctypes
import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphmill.kernels.cuda.peers import STEP_BYTES, export_rows, open_peer
from graphmill.kernels.errors import InputError

ROWS = np.arange(12, dtype=np.float16).reshape(4, 3)


class Refused(RuntimeError):
    """CUDA's error."""


class Runtime:
    """What `cupy.cuda.runtime` is to peers: memory of the host, by address; handles are the address as text."""

    CUDARuntimeError = Refused

    def __init__(self, free: int = 1 << 30):
        self.free_bytes, self.held, self.mapped = free, {}, []

    def malloc(self, num_bytes: int) -> int:
        if num_bytes > self.free_bytes:
            raise Refused("out of memory")
        memory = ctypes.create_string_buffer(num_bytes)
        self.held[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    def memcpy(self, to: int, source: int, num_bytes: int, kind: int) -> None:
        assert kind == 1
        ctypes.memmove(to, source, num_bytes)

    def deviceSynchronize(self) -> None:  # noqa: N802
        pass

    def ipcGetMemHandle(self, pointer: int) -> bytes:  # noqa: N802
        return str(pointer).encode()

    def ipcOpenMemHandle(self, handle: bytes) -> int:  # noqa: N802
        if int(handle) not in self.held:
            raise Refused("invalid resource handle")
        self.mapped.append(int(handle))
        return int(handle)

    def ipcCloseMemHandle(self, pointer: int) -> None:  # noqa: N802
        self.mapped.remove(pointer)


def make_device(runtime: Runtime, index: int = 0) -> Any:
    reached: list[int] = []
    cuda = SimpleNamespace(runtime=runtime, Device=lambda number: nullcontext())
    return SimpleNamespace(
        cupy=SimpleNamespace(cuda=cuda), index=index, active=nullcontext, reach=lambda other, what: reached.append(other),
        reached=reached,
    )  # fmt: skip


def content(rows: Any) -> np.ndarray:
    view = rows.view()
    return np.frombuffer(ctypes.string_at(view.pointer, view.count * view.row_bytes), rows.dtype).reshape(rows.shape)


def test_rows_are_allocated_apart_and_freed_with_their_last_reader():
    runtime = Runtime()
    first, second = make_device(runtime), make_device(runtime, 1)
    own, handle = export_rows(first, ROWS)
    (memory,) = runtime.held.values()
    assert len(memory) == STEP_BYTES and np.array_equal(content(own), ROWS)
    peer = open_peer(second, handle)
    assert peer.pointer == own.pointer and second.reached == [0] and not runtime.mapped
    assert open_peer(first, handle).pointer == own.pointer and not first.reached
    del own, memory
    gc.collect()
    assert np.array_equal(content(peer), ROWS)
    del peer
    gc.collect()
    assert not runtime.held
    with pytest.raises(InputError, match="rows of this process that were dropped"):
        open_peer(first, handle)


def test_rows_of_another_process_are_mapped_and_unmapped():
    runtime = Runtime()
    device = make_device(runtime)
    own, handle = export_rows(device, ROWS)
    theirs = handle | {"name": "of another process", "process": 0}
    peer = open_peer(device, theirs)
    assert np.array_equal(content(peer), ROWS) and runtime.mapped == [own.pointer]
    del peer
    gc.collect()
    assert not runtime.mapped and runtime.held
    del own
    gc.collect()
    with pytest.raises(
        InputError, match=r"device 0 cannot open the rows of process 0: invalid(?s:.*)nvidia-smi topo -p2p"
    ):
        open_peer(device, theirs)


def test_no_rows_take_no_memory_and_too_many_are_told():
    runtime = Runtime(free=STEP_BYTES)
    device = make_device(runtime)
    own, handle = export_rows(device, ROWS[:0])
    assert own.view().pointer == 0 and open_peer(device, handle | {"name": "", "process": 0}).shape == (0, 3)
    with pytest.raises(
        InputError, match=r"do not fit into the free memory of device 0: out of memory(?s:.*)lower `device`"
    ):
        export_rows(device, np.zeros((STEP_BYTES, 2), np.float16))
    assert not runtime.held


def test_memory_that_cannot_be_shown_is_told_to_who_opens_it(monkeypatch):
    def refused(self, pointer):
        raise Refused("not supported")

    monkeypatch.setattr(Runtime, "ipcGetMemHandle", refused)
    device = make_device(Runtime())
    own, handle = export_rows(device, ROWS)
    assert np.array_equal(content(open_peer(device, handle)), ROWS) and own.pointer
    with pytest.raises(InputError, match="process 0 are on a device whose memory CUDA shows to no other process"):
        open_peer(device, handle | {"name": "", "process": 0})
