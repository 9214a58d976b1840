"""Builds the native module `kernels._native`; everything else is declared in pyproject.toml."""

import os
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
from setuptools import setup

# The project runs in place, on the machine that built it. Set GRAPHMILL_MARCH (for example x86-64-v3) to build for others.
MARCH = os.environ.get("GRAPHMILL_MARCH", "native")
# Contracted multiply-adds would round differently from machine to machine, so they stay off.
FLAGS = [
    "-O3",
    f"-march={MARCH}",
    "-ffp-contract=off",
    "-fopenmp",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
]

# What every object is made from besides its own source; the file of flags is written anew when they change.
STAMP = Path("build/native_flags.txt")
SHARED = sorted(str(path) for path in (Path("setup.py"), STAMP, *Path("kernels/native").rglob("*.h")))

native = Pybind11Extension(
    "kernels._native",
    sorted(str(path) for path in Path("kernels/native").rglob("*.cpp")),
    depends=SHARED,
    include_dirs=["kernels/native"],
    cxx_std=17,
    extra_compile_args=FLAGS,
    extra_link_args=["-fopenmp"],
)


def needs_recompile(made: str, source: str) -> bool:
    """Says whether an object is missing or older than its source, a header, or the flags."""
    if not os.path.exists(made):
        return True
    return any(os.path.getmtime(path) > os.path.getmtime(made) for path in (source, *SHARED))


def note_flags() -> None:
    """Writes the flags down where they are not those of the last build."""
    flags = " ".join([*FLAGS, os.environ.get("CXX", ""), os.environ.get("CFLAGS", "")])
    if not STAMP.exists() or STAMP.read_text() != flags:
        STAMP.parent.mkdir(exist_ok=True)
        STAMP.write_text(flags)


if __name__ == "__main__":
    note_flags()
    ParallelCompile("GRAPHMILL_BUILD_JOBS", default=os.cpu_count() or 1, needs_recompile=needs_recompile).install()
    setup(ext_modules=[native])
