"""Compiles CUDA sources with NVRTC, which needs no GPU and no driver: libnvrtc through ctypes, from the nvidia-cuda-nvrtc wheel."""

import ctypes
import functools
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from graphmill.kernels.cuda.compile import COMPILE_OPTIONS

ARCHITECTURES = (80, 90)


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(_find("lib/libnvrtc.so.*")))


def _find(pattern: str) -> Path:
    """The one file of the nvidia wheels that matches, in any of their folders (nvidia/cu13/lib, nvidia/cuda_nvrtc/lib)."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    found = sorted(path for folder in folders for path in folder.glob(f"*/{pattern}") if "builtins" not in path.name)
    assert found, f"no {pattern} in the nvidia packages: pip install -c constraints.txt -e '.[dev]'"
    return found[-1]


def _check(result: int) -> None:
    if result:
        _library().nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {_library().nvrtcGetErrorString(result).decode()}")


def compile_ptx(path: Path, architecture: int, options: Iterable[str] = ()) -> str:
    """Compiles one file to machine code for compute capability architecture / 10 and returns its PTX.

    Raises:
        AssertionError: it does not compile; the message is the compiler's.
    """
    include = f"--include-path={_find('include/cuda_fp16.h').parent}"
    flags = [flag.encode() for flag in (*COMPILE_OPTIONS, include, f"--gpu-architecture=sm_{architecture}", *options)]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    library = _library()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None))
    try:
        failed = library.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        _check(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        _check(library.nvrtcGetProgramLog(program, log))
        assert not failed, f"{path.name} {options}:\n{log.value.decode()}"
        _check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        assert size.value, "no machine code"
        _check(library.nvrtcGetPTXSize(program, ctypes.byref(size)))
        ptx = ctypes.create_string_buffer(size.value)
        _check(library.nvrtcGetPTX(program, ptx))
        return ptx.value.decode()
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
