"""CUDA sources to machine code: by NVRTC, once per machine and combination of preprocessor names.

CuPy's own compiler is not used. It adds -ftz=true, with which float32 values below 1.2e-38 become 0 that the CPU keeps, and what it keeps
on disk does not change with the files that a source includes.
"""

import functools
import hashlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphmill.kernels import environment
from graphmill.kernels.errors import InputError

SOURCES = Path(__file__).parent
NATIVE = SOURCES.parent / "native"
COMPILE_OPTIONS = ("--std=c++17", "--fmad=false", f"-I{SOURCES}", f"-I{NATIVE}")
"""Without fused multiply-adds, so that sums have the CPU's bits; the kernels' bound is memory."""
DIGEST_BYTES = 32
"""Bytes of the SHA-256 before the code in a file."""


def machine_code(cupy: Any, source: str, defines: Mapping[str, str], capability: str) -> bytes:
    """Returns the machine code of kernels/cuda/SOURCE.cu, of this machine's files if it was compiled before.

    Args:
        source: path of the source below this folder, without its suffix.
        capability: of the GPU, as "90" for 9.0.

    Raises:
        InputError: the source does not compile: headers of CUDA are missing.
    """
    names = tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))
    options = (*COMPILE_OPTIONS, *names, f"-arch=sm_{capability}")
    version = cupy.cuda.nvrtc.getVersion()
    made_from = hashlib.sha256(repr((source, _texts(), options, version)).encode()).hexdigest()
    kept = _folder() / f"{made_from[:32]}.cubin"
    if (code := _read(kept)) is None:
        code = _compiled(cupy.cuda.nvrtc, source, (*options, *_headers(cupy)))
        _keep(kept, code)
    return code


def _read(path: Path) -> bytes | None:
    """Returns the code that a file keeps, None if there is none or its bytes are not those of its digest."""
    with suppress(OSError):
        digest, code = (whole := path.read_bytes())[:DIGEST_BYTES], whole[DIGEST_BYTES:]
        return code if hashlib.sha256(code).digest() == digest else None
    return None


def _keep(path: Path, code: bytes) -> None:
    """Writes code behind its digest; a folder that cannot be written costs the time of compiling, and nothing else."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # goes with what was not written whole
            (written := Path(folder) / path.name).write_bytes(hashlib.sha256(code).digest() + code)
            os.replace(written, path)


def _compiled(nvrtc: Any, source: str, options: tuple[str, ...]) -> bytes:
    path = SOURCES / f"{source}.cu"
    program = nvrtc.createProgram(path.read_text(), path.name, (), ())
    try:
        nvrtc.compileProgram(program, options)
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        first = next((line for line in log.splitlines() if "error" in line), str(error))
        problem = f"kernels/cuda/{source}.cu does not compile: {first}"
        remedy = "CuPy finds no CUDA headers where cuda_fp16.h is missing: pip install 'cupy-cuda13x[ctk]' (or cuda12x)"
        raise InputError(problem, remedy) from error
    finally:
        nvrtc.destroyProgram(program)


@functools.cache
def _headers(cupy: Any) -> tuple[str, ...]:
    """Returns options that name the folders of CUDA's headers: of the wheels of `[ctk]`, of conda, of the system."""
    from cuda.pathfinder import find_nvidia_header_directory  # pyright: ignore[reportMissingImports]  # needed by CuPy

    toolkit = cupy.cuda.get_cuda_path()
    folders = (find_nvidia_header_directory("cudart"), toolkit and f"{toolkit}/include")
    return tuple(f"-I{folder}" for folder in folders if folder)


@functools.cache
def _texts() -> str:
    """Returns a digest of all sources and of what they may include."""
    files = sorted(
        path for folder in (SOURCES, NATIVE) for path in folder.rglob("*") if path.suffix in (".cu", ".cuh", ".h")
    )
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _folder() -> Path:
    caches = environment.read(environment.CACHES) or os.path.expanduser("~/.cache")
    return Path(caches) / "graphmill" / "cuda"
