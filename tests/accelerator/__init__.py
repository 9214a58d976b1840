"""Simulated accelerators: devices of torch, by the names "simulated:0" and so on, whose memory is this machine's.

They show what a GPU would show. A tensor on one has no `.numpy()`, operations refuse tensors of different devices, memory may be limited,
and every copy between host and device, or between devices, that the program asked for is counted. Torch's own operations run on the CPU
behind them, so they give the CPU's bits. Kernels of this project run on the CPU as well, through the shim (tests/kernels/cuda/shim) without
its checks; they read the memory of all devices, as GPUs do that reach each other.

A device is as late as a GPU may be. Kernels, and copies that nobody waits for, run when something on the same stream follows or somebody
waits for the stream. A copy from one device to another waits for the thread's streams of both. Freed memory of a device, and pinned memory
that nobody holds any more, is filled with garbage, as if somebody else had it by then. So work that does not wait for what it reads ends in
wrong bits. Memory that is given back while a launch that waits may still touch it is a fault, whatever the bits are (`take_fault`).

So the whole path of a training on a device runs where there is none, and a forgotten `.numpy()` is a test that fails.

The extension is compiled once (20 s) and kept in build/accelerator under a digest of what it was made from.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import subprocess
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

NAME = "simulated"
SOURCE = Path(__file__).parent / "accelerator.cpp"
BUILD = Path(__file__).parents[2] / "build" / "accelerator"
LAUNCHED = ctypes.CFUNCTYPE(None, ctypes.c_int64)
GARBAGE = 0xA5
"""Each byte of memory that nobody has written since it was lent."""


class Counts(NamedTuple):
    """What crossed, since the process began: calls and bytes by direction; waits of the host for a device, and its launches
    (accelerator.cpp says what counts); bytes alive on the device now, and the most of them.

    Bytes between devices count for the one that received them. Counts of all devices are sums, that of the most bytes alive as well.
    """

    h2d_calls: int
    h2d_bytes: int
    d2h_calls: int
    d2h_bytes: int
    d2d_bytes: int
    waits: int
    launches: int
    live_bytes: int
    peak_bytes: int

    def since(self, before: Counts) -> Counts:
        """Returns what crossed between two counts; bytes on the device stay as they are."""
        crossed = [now - then for now, then in zip(self[:7], before[:7], strict=True)]
        return Counts._make([*crossed, self.live_bytes, self.peak_bytes])


@functools.cache
def load() -> ctypes.CDLL:
    """Registers the device with torch, once per process, and returns the extension."""
    import torch

    library = ctypes.CDLL(str(_built()), mode=ctypes.RTLD_GLOBAL)
    number = ctypes.c_int64
    takes = {
        "counts": [number, ctypes.c_void_p], "faults": [ctypes.c_char_p, number, ctypes.c_bool], "follow": [number],
        "forget_peak": [number], "give_back": [ctypes.c_uint64, number, ctypes.c_char_p],
        "launch": [number, LAUNCHED, number, ctypes.c_char_p, ctypes.c_void_p, number], "lend": [ctypes.c_uint64, number],
        "limit": [number, number], "mark": [number], "new_stream": [number], "passed": [number, number],
        "clock": [], "record": [ctypes.c_void_p, number], "set_device": [number], "stamp": [number], "stamped": [number],
        "stream": [number], "use_stream": [number], "wait": [number], "wait_device": [number],
    }  # fmt: skip
    for name, kinds in takes.items():
        getattr(library, f"simulated_{name}").argtypes = kinds
    answers = (
        "clock", "current_device", "devices", "faults", "mark", "new_stream", "passed", "stamp", "stamped", "stream", "use_stream",
    )  # fmt: skip
    for name in answers:
        getattr(library, f"simulated_{name}").restype = number
    library.simulated_register()
    torch.utils.rename_privateuse1_backend(NAME)  # pyright: ignore[reportPrivateImportUsage]
    torch._register_device_module(NAME, _module(library))
    _give_each_device_one_thread(library.simulated_devices())
    return library


def _give_each_device_one_thread(devices: int) -> None:
    """Makes the backward passes of every device round alike.

    Autograd has a thread per device, which takes torch's number of threads at its first operation and keeps it. Trainings with other
    numbers come between the first operations of two devices, and the CPU behind them rounds by the number.
    """
    import torch

    class OneThread(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, *grads):
            torch.get_num_threads()  # takes the process's number, which may not happen later
            torch.set_num_threads(1)
            return grads[0]

    before = torch.get_num_threads()
    for index in range(devices):
        OneThread.apply(torch.ones(1, device=f"{NAME}:{index}", requires_grad=True)).backward()  # pyright: ignore
    torch.set_num_threads(before)


def num_devices() -> int:
    """Returns the number of devices."""
    return load().simulated_devices()


def counts(device: int | None = None) -> Counts:
    """Returns what crossed so far, of one device or of all."""
    found = []
    for index in range(num_devices()) if device is None else [device]:
        values = (ctypes.c_int64 * len(Counts._fields))()
        load().simulated_counts(index, values)
        found.append(values)
    return Counts._make(map(sum, zip(*found, strict=True)))


def forget_peak(device: int = 0) -> None:
    """Makes the bytes that are alive on a device now the most of them."""
    load().simulated_forget_peak(device)


def current_stream(device: int = 0) -> int:
    """Returns the number of this thread's stream of a device."""
    return load().simulated_stream(device)


def new_stream(device: int = 0) -> int:
    """Returns the number of a new stream of a device."""
    return load().simulated_new_stream(device)


def step_stream(device: int = 0) -> int:
    """Returns the number of the stream of a device on which training steps run."""
    return device << 32


@contextmanager
def using_stream(stream: int) -> Iterator[None]:
    """Makes a stream the one of this thread for its device, and the device the one of this thread."""
    library = load()
    device, before = library.simulated_current_device(), library.simulated_use_stream(stream)
    library.simulated_set_device(stream >> 32)
    try:
        yield
    finally:
        library.simulated_use_stream(before)
        library.simulated_set_device(device)


def wait_for(stream: int | None = None) -> None:
    """Runs what was put on a stream, this thread's of the first device unless it is given."""
    load().simulated_wait(current_stream() if stream is None else stream)


def wait_for_device(device: int) -> None:
    """Runs what was put on all streams of a device."""
    load().simulated_wait_device(device)


def wait_for_all() -> None:
    """Runs what was put on the streams of all devices."""
    for device in range(num_devices()):
        wait_for_device(device)


def give_back(address: int, num_bytes: int, what: str) -> None:
    """Notes a fault if a launch that waits, or runs on another thread, may touch memory that somebody else gets now."""
    load().simulated_give_back(address, num_bytes, what.encode())


def take_fault() -> str:
    """Returns the first fault so far, "" without one, and forgets all of them."""
    return _fault(forget=True)


def raise_fault() -> None:
    """Raises an AssertionError if there is a fault."""
    if found := _fault(forget=False):
        raise AssertionError(found)


def _fault(forget: bool) -> str:
    text = ctypes.create_string_buffer(512)
    return text.value.decode() if load().simulated_faults(text, len(text), forget) else ""


def follow(stream: int) -> None:
    """Lets what this thread launches from now on come after what is on a stream now; the host does not wait."""
    load().simulated_follow(stream)


def mark(stream: int) -> int:
    """Returns an event of a stream: the number of what was put on it so far."""
    return load().simulated_mark(stream)


def passed(stream: int, event: int) -> bool:
    """Returns whether a stream has passed an event."""
    return bool(load().simulated_passed(stream, event))


@contextmanager
def limited(num_bytes: int, device: int = 0) -> Iterator[None]:
    """Gives a device so many bytes; what asks for more gets torch.OutOfMemoryError."""
    load().simulated_limit(device, num_bytes)
    try:
        yield
    finally:
        load().simulated_limit(device, -1)


def _module(library: ctypes.CDLL) -> types.ModuleType:
    """What torch asks of a device's module."""
    import torch

    module = types.ModuleType(f"torch.{NAME}")
    answers = {
        "is_available": True, "is_initialized": True, "device_count": library.simulated_devices(), "_is_in_bad_fork": False,
        "manual_seed_all": None, "synchronize": None,
    }  # fmt: skip
    module.current_device = library.simulated_current_device  # pyright: ignore[reportAttributeAccessIssue]
    module.set_device = library.simulated_set_device  # pyright: ignore[reportAttributeAccessIssue]
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]  # pyright: ignore[reportAttributeAccessIssue]
    for name, answer in answers.items():
        setattr(module, name, lambda *_, answer=answer: answer)
    return module


def _built() -> Path:
    import torch

    text = SOURCE.read_bytes()
    path = BUILD / f"{hashlib.sha256(text + torch.__version__.encode()).hexdigest()[:24]}.so"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of a test run ask at once
        if not path.exists():
            _build(path)
    return path


def _build(path: Path) -> None:
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    unfinished = path.with_suffix(f".{os.getpid()}")
    folders = library_paths()
    result = subprocess.run(
        [
            *os.environ.get("CXX", "g++").split(), "-std=c++20", "-O1", "-fPIC", "-shared", "-w",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            *(f"-I{folder}" for folder in include_paths()), str(SOURCE), "-o", str(unfinished),
            *(f"-L{folder}" for folder in folders), "-ltorch", "-ltorch_cpu", "-lc10",
            *(f"-Wl,-rpath,{folder}" for folder in folders),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    unfinished.rename(path)
