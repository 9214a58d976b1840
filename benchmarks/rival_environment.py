"""Makes an environment with GraphBolt, the sampler and trainer of DGL 2.1, which wants an older torch than graphmill.

    python -m benchmarks.rival_environment FOLDER
    export GRAPHBOLT_PYTHON=FOLDER/bin/python

DGL 2.1.0 is the last release on PyPI. It loads a library that was built for the very release of torch, at most 2.2.1, and for Python up to
3.11. torch's build without CUDA is taken if pip finds one. PyPI has none for Linux: there the CUDA libraries that torch links are
installed, too (5 GB on the disk, two minutes), and triton is left out, which only compiled models need.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

TORCH, DGL = "2.2.1", "2.1.0"
NEWEST_PYTHON = (3, 11)
PACKAGES = (
    f"dgl=={DGL}", "numpy<2", "scipy", "networkx", "requests", "tqdm", "psutil", "pandas", "pyarrow", "pydantic<3", "pyyaml",
    "filelock", "typing-extensions", "sympy", "jinja2", "fsspec",
)  # fmt: skip
"""Beside torch and torchdata, which are installed without what they ask for: torchdata asks for a newest torch."""
CUDA = (
    "nvidia-cuda-nvrtc-cu12==12.1.105", "nvidia-cuda-runtime-cu12==12.1.105", "nvidia-cuda-cupti-cu12==12.1.105",
    "nvidia-cudnn-cu12==8.9.2.26", "nvidia-cublas-cu12==12.1.3.1", "nvidia-cufft-cu12==11.0.2.54", "nvidia-curand-cu12==10.3.2.106",
    "nvidia-cusolver-cu12==11.4.5.107", "nvidia-cusparse-cu12==12.1.0.106", "nvidia-nccl-cu12==2.19.3", "nvidia-nvtx-cu12==12.1.105",
)  # fmt: skip
"""Libraries that torch's CUDA build links: without them not even its CPU part loads."""


def make(folder: Path) -> Path:
    """Makes the environment, or finds it made.

    Args:
        folder: where it shall stand; one that does not import GraphBolt is replaced.

    Returns:
        Its interpreter.

    Raises:
        OSError: no interpreter of Python 3.11 or earlier is there, or a package cannot be installed.
    """
    python = folder / "bin" / "python"
    if works(python):
        return python
    _run(older_python(), "-m", "venv", "--clear", str(folder))
    install = (str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir")
    try:
        _run(*install, "--no-deps", f"torch=={TORCH}+cpu")
    except OSError:
        _run(*install, "--no-deps", f"torch=={TORCH}", *CUDA)
    _run(*install, "--no-deps", "torchdata==0.7.1")
    _run(*install, *PACKAGES)
    if not works(python):
        raise OSError(f"{python} does not import dgl.graphbolt")
    return python


def works(python: Path) -> bool:
    """Returns whether an interpreter imports GraphBolt."""
    environment = os.environ | {"DGLBACKEND": "pytorch"}
    command = [str(python), "-c", "import dgl.graphbolt"]
    return (
        python.exists() and subprocess.run(command, check=False, env=environment, capture_output=True).returncode == 0
    )


def older_python() -> str:
    """Returns an interpreter that DGL 2.1 has wheels for: this one, or one of 3.11 on the PATH.

    Raises:
        OSError: there is none.
    """
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return sys.executable
    found = shutil.which("python3.11")
    if found is None:
        raise OSError("DGL 2.1 has wheels up to Python 3.11, and no python3.11 is on the PATH")
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(said[-1] if said else f"{command[0]} ended with {done.returncode}")


def main() -> None:
    """Makes the environment that the command line names, or tells in one line why it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rival_environment", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    try:
        print(make(folder))
    except OSError as error:
        sys.exit(f"no environment with GraphBolt: {error}")


if __name__ == "__main__":
    main()
