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

native = Pybind11Extension(
    "kernels._native",
    sorted(str(path) for path in Path("kernels/native").rglob("*.cpp")),
    depends=sorted(str(path) for path in Path("kernels/native").rglob("*.h")),
    include_dirs=["kernels/native"],
    cxx_std=17,
    extra_compile_args=FLAGS,
    extra_link_args=["-fopenmp"],
)

if __name__ == "__main__":
    ParallelCompile("GRAPHMILL_BUILD_JOBS", default=os.cpu_count() or 1).install()
    setup(ext_modules=[native])
