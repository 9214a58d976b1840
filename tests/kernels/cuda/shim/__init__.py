"""Runs CUDA kernels on the CPU, to prove them where there is no GPU.

A .cu file is compiled with the C++ compiler against shim.h, which says what threadIdx, __syncthreads, shuffles and atomics mean. The
threads of a block are fibers; blocks, and threads between meetings and at random accesses, run in an order drawn from a seed. Every load
and store is seen (the compiler's thread-sanitizer calls, with our functions behind them), so that a launch reports

    race         two threads touch a byte, one stores, and no barrier or __syncwarp lies between; found in every order
    outside      an access past a buffer, with buffer and distance
    misaligned   a 2- to 16-byte access at an address that is no multiple of it
    read-only    a store into an input
    divergent    a barrier or a warp operation that some threads do not reach, or reach elsewhere
    no thread    a deadlock; "no end" after 100 million accesses

and counts how often each byte of an output was stored. Without checks (`checked=False`) only the threads and their meetings are left: any
memory may be touched, and kernels are about a hundred times as fast.

Stricter than a device in one point: a barrier after some threads returned is an error. Blocks run one after the other, so a kernel whose
blocks wait for each other needs tickets drawn at run time. Not modelled: bank conflicts, caches, memory order between blocks (blocks that
share bytes without atomics race), textures, tensor cores.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.compile import SOURCES
from graphmill.kernels.cuda.protocol import Kernel, RowsView
from graphmill.kernels.errors import InputError

HERE = Path(__file__).parent
NATIVE = SOURCES.parent / "native"
BUILD = SOURCES.parents[1] / "build" / "cuda_shim"
"""Compiled kernels, named by a digest of everything they were made from."""
KERNEL_NAME = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")
NATIVE_HEADER = re.compile(r'#include "(graph/\w+\.h)"')
DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\[\];")
FLAGS = ("-std=c++17", "-fPIC", "-w", "-g1", f"-I{HERE}", f"-I{NATIVE}", f"-I{SOURCES}")
_ONE_LAUNCH = threading.Lock()


class ShimError(AssertionError):
    """What a kernel did wrong, and where."""


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("stores", ctypes.c_void_p),
    )


class Uploaded(np.ndarray):
    """An array that was uploaded: in device memory, which NumPy's own arrays are not known to be."""


class ShimDevice:
    """Stands in for `graphmill.kernels.cuda.device.CudaDevice`: NumPy arrays are its memory.

    A kernel may touch the arrays that this device was shown: `rows` and `upload` show theirs, `share` shows any other. Only those named in
    `writable`, and uploaded ones, may be stored to.

    Args:
        seed: of the order in which threads run.
        writable: names of arrays (as in `rows`, `share`) that kernels store to; `stores[name]` counts for each of their bytes.
        num_multiprocessors: what launching code is told.
        checked: whether accesses are seen and checked.
    """

    def __init__(
        self, seed: int = 0, writable: tuple[str, ...] = ("out",), num_multiprocessors: int = 1, checked: bool = True
    ):
        self.checked = checked
        self.seed, self.writable, self.num_multiprocessors = seed, writable, num_multiprocessors
        self.stores: dict[str, np.ndarray] = {}
        self.launches = 0
        self._shown: dict[str, np.ndarray] = {}
        self._recorded: list[Callable[[], None]] | None = None

    def share(self, array: np.ndarray, name: str) -> np.uint64:
        """Lets kernels touch an array under a name; returns its address."""
        self._shown[name] = array
        if name in self.writable and name not in self.stores:
            self.stores[name] = np.zeros(_span(array)[1] - _span(array)[0], np.uint8)
        return np.uint64(array.ctypes.data)

    def kernel(self, source: str, name: str, defines: Mapping[str, str]) -> Kernel:
        """Returns a kernel of kernels/cuda/SOURCE.cu, compiled with these preprocessor names."""
        return self.kernel_of((SOURCES / f"{source}.cu").read_text(), name, defines)

    def kernel_of(self, text: str, name: str, defines: Mapping[str, str] | None = None) -> Kernel:
        """Returns a kernel of a source text."""
        library = _load(text, tuple(sorted((defines or {}).items())), self.checked)

        def launch(
            grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], shared_mem: int = 0
        ) -> None:
            if self._recorded is not None:
                self._recorded.append(lambda: run(grid, block, arguments, shared_mem))
            else:
                run(grid, block, arguments, shared_mem)

        def run(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], shared_mem: int) -> None:
            self.launches += 1
            _launch(
                library,
                name,
                grid,
                block,
                arguments,
                shared_mem,
                self.seed + self.launches,
                self._buffers(),
                self.checked,
            )

        return launch

    def record(self, work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """Keeps what a function launches instead of running it; returns its result, and a function that runs all of it."""
        launches = self._recorded = []
        try:
            made = work()
        finally:
            self._recorded = None

        def replay() -> None:
            for launch in launches:
                launch()

        return made, replay

    def update(self, target: np.ndarray, values: np.ndarray) -> None:
        """Copies values to an uploaded array."""
        target[...] = values

    def _buffers(self) -> list[_Buffer]:
        made = []
        for name, array in self._shown.items():
            stores = self.stores[name].ctypes.data if name in self.stores else None
            if array.size:
                made.append(_Buffer(*_span(array), name.encode(), stores))
        return made

    def rows(self, array: np.ndarray, what: str) -> RowsView:
        """Returns a matrix as kernels see it, and lets them touch it."""
        self.share(array, what)
        count, width = array.shape
        return RowsView(array.ctypes.data, count, width, array.strides[0], dtype_name(array.dtype))

    def holds(self, array: np.ndarray) -> bool:
        """Says whether an array was uploaded."""
        return isinstance(array, Uploaded)

    def upload(self, values: np.ndarray, waits: bool = True) -> np.ndarray:
        """Returns a copy that kernels may load and store."""
        copy, name = np.array(values).view(Uploaded), f"uploaded array {len(self._shown)}"
        self.share(copy, name)
        self.stores[name] = np.zeros(copy.nbytes, np.uint8)
        return copy

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns an array that kernels may load and store; it holds garbage, as fresh memory of a device does."""
        made = np.empty(shape, dtype)
        made.reshape(-1).view(np.uint8)[...] = 0xA5
        return self.upload(made)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns an array of zeros that kernels may load and store."""
        return self.upload(np.zeros(shape, dtype))

    def enter_thread(self) -> None:
        """Every thread sees the one device."""

    def copy(self, array: np.ndarray) -> np.ndarray:
        """Returns a copy that kernels may load and store."""
        return self.upload(np.array(array))

    def download(self, array: np.ndarray) -> np.ndarray:
        """Returns a copy."""
        return np.array(array)

    def running_sums(self, values: np.ndarray) -> np.ndarray:
        """Returns running sums in an array that kernels may touch."""
        if self._recorded is None:
            return self.upload(np.cumsum(values, dtype=np.int32))
        sums = self.empty(values.shape, np.int32)
        self._recorded.append(lambda: np.cumsum(values, dtype=np.int32, out=sums))
        return sums

    def stable_order(self, keys: np.ndarray) -> np.ndarray:
        """Returns the order of keys in an array that kernels may touch."""
        return self.upload(np.argsort(keys, kind="stable").astype(np.int32))

    def synchronize(self) -> None:
        """A launch is done when it returns."""

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns host memory that kernels may load and store."""
        return self.empty(shape, dtype).view(np.ndarray)

    def pin(self, array: np.ndarray) -> None:
        """Every array is readable here once it is shown."""

    def pointer(self, array: np.ndarray, what: str) -> int:
        """Returns the address of the first element."""
        if not array.flags.c_contiguous:
            raise InputError(f"{what} is not contiguous in memory", "give a contiguous copy")
        return array.ctypes.data


def _span(array: np.ndarray) -> tuple[int, int]:
    return np.lib.array_utils.byte_bounds(array)


def _launch(library, name, grid, block, arguments, shared_mem, seed, buffers, checked) -> None:
    three = ctypes.c_uint * 3
    held = [np.asarray(argument).reshape(1) for argument in arguments]
    pointers = (ctypes.c_void_p * len(held))(*[argument.ctypes.data for argument in held])
    place = ctypes.c_uint64()
    threads = int(np.prod(block))
    assert 0 < threads <= 1024 and int(np.prod(grid)) > 0, f"a launch of {grid} blocks of {block} threads"
    # A kernel's module has one state, all kernels share their threads' stacks, and ctypes lets other threads of Python go on meanwhile.
    with _ONE_LAUNCH:
        problem = library.shim_launch(
            getattr(library, f"shim_kernel_{name}"),
            three(*(*grid, 1, 1)[:3]),
            three(*(*block, 1, 1)[:3]),
            ctypes.c_uint64(shared_mem),
            pointers,
            ctypes.c_uint64(seed),
            (_Buffer * len(buffers))(*buffers),
            ctypes.c_uint64(len(buffers)),
            ctypes.c_int(checked),
            ctypes.c_void_p(_stacks()),
            ctypes.byref(place),
        )
        problem = problem and problem.decode()
    if problem:
        raise ShimError(f"{name}: {problem}{_line(library._name, place.value)}")


def _line(path: str, place: int) -> str:
    """Where in the kernel's source, which the compiler read from its input, an access stands."""
    if not place or not shutil.which("addr2line"):
        return ""
    command = ["addr2line", "-s", "-e", path, hex(place)]
    file, _, line = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().partition(":")
    return f" (line {line.split()[0]} of the source)" if file == "<stdin>" else ""


@functools.cache
def _stacks() -> int:
    """Returns the address of the stacks for a block's threads."""
    text = 'extern "C" __global__ void nothing() {}'
    make = _load(text, (), False).shim_make_stacks
    make.restype = ctypes.c_void_p
    stacks = make()
    assert stacks, "no memory for the stacks of a block's threads"
    return stacks


@functools.cache
def _load(text: str, defines: tuple[tuple[str, str], ...], checked: bool) -> ctypes.CDLL:
    names = KERNEL_NAME.findall(text)
    assert names, 'no kernel: expected `extern "C" __global__ void name(`'
    text = DYNAMIC.sub(r"\1* \2 = static_cast<\1*>(shim::dynamic_shared());", text)
    entries = "\n".join(f"SHIM_KERNEL({name})" for name in names)
    given = "\n".join(f"#define {name} {value}" for name, value in defines)
    kernel = f'#include "shim.h"\n{given}\n#line 1\n{text}\n{entries}\n'
    flags = (*FLAGS, "-O0", "-fsanitize=thread") if checked else (*FLAGS, "-O1")
    # The sources of the runtime are linked into every module, so that each has its own state and its own shared memory.
    runtime = [_compile((HERE / name).read_text(), (*FLAGS, "-O2"), ".o") for name in ("threads.cpp", "memory.cpp")]
    module = _compile(kernel, (f"-I{_headers(flags)}", *flags), ".o")
    library = ctypes.CDLL(str(_link([module, *runtime])))
    library.shim_launch.restype = ctypes.c_char_p
    return library


def _compile(text: str, flags: tuple[str, ...], suffix: str) -> Path:
    return _made(BUILD / f"{_digest(text, flags)}{suffix}", ["-x", "c++", "-c", "-", *flags], text)


@functools.cache
def _headers(flags: tuple[str, ...]) -> Path:
    """Returns a folder with shim.h as the compiler has read it, which takes most of the time of a small kernel."""
    folder = BUILD / _digest("", flags)
    folder.mkdir(parents=True, exist_ok=True)
    _made(folder / "shim.h.gch", ["-x", "c++-header", str(HERE / "shim.h"), *flags], "")
    return folder


def _digest(text: str, flags: tuple[str, ...]) -> str:
    base, own = NATIVE / "base", [NATIVE / name for name in NATIVE_HEADER.findall(text)]
    included = sorted([*HERE.glob("*.h"), *SOURCES.rglob("*.cuh"), base / "half.h", base / "rng.h"]) + own
    headers = "".join(path.read_text() for path in included)
    return hashlib.sha256("\0".join([headers, text, *flags]).encode()).hexdigest()[:24]


def _link(objects: list[Path]) -> Path:
    digest = hashlib.sha256("".join(path.name for path in objects).encode()).hexdigest()[:24]
    return _made(BUILD / f"{digest}.so", ["-shared", *map(str, objects), "-ldl"], "")


def _made(path: Path, arguments: list[str], text: str) -> Path:
    if path.exists():
        return path
    BUILD.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")  # loaders compile on threads
    compiler = os.environ.get("CXX", "g++").split()
    result = subprocess.run(
        [*compiler, *arguments, "-o", str(unfinished)], input=text, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{' '.join(compiler + arguments)}\n{result.stderr}"
    unfinished.rename(path)
    return path
