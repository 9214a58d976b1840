"""Builds the native module `kernels._native`; everything else is declared in pyproject.toml.

Objects are kept in build/, beside a list of the headers that each was made from, so a second build compiles what has changed and nothing
else: an editable install too, which by itself would build in a temporary folder.
"""

import os
import sys
from pathlib import Path

import pybind11
from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
from setuptools import setup
from setuptools.command.build_ext import build_ext

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
    "-MMD",  # writes the headers of an object to a file beside it
]

NATIVE = Path("kernels/native")
SOURCES = sorted(str(path) for path in NATIVE.rglob("*.cpp"))
HEADERS = sorted(str(path) for path in NATIVE.rglob("*.h"))
# Flags and versions, which every object depends on, and the sources that the module is linked from; written anew when they change.
FLAGS_NOTED, SOURCES_NOTED = Path("build/native_flags.txt"), Path("build/native_sources.txt")

native = Pybind11Extension(
    "kernels._native",
    SOURCES,
    depends=[*HEADERS, str(FLAGS_NOTED), str(SOURCES_NOTED)],
    include_dirs=[str(NATIVE)],
    cxx_std=17,
    extra_compile_args=FLAGS,
    extra_link_args=["-fopenmp"],
)


class BuildNative(build_ext):
    """Keeps objects and the linked module in build/, where the next build finds them."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.inplace:
            self.build_temp, self.build_lib = "build/objects", "build/native"


def needs_recompile(made: str, source: str) -> bool:
    """Says whether an object is missing, or older than its source, a header that it includes, or the flags."""
    listed = Path(made).with_suffix(".d")
    if not os.path.exists(made) or not listed.exists():
        return True
    # Headers of pybind11 and Python may lie in an environment that is gone; the noted flags have their versions.
    included = [word for word in listed.read_text().split() if word.startswith(f"{NATIVE}/")]
    needed = [source, str(FLAGS_NOTED), *included]
    return any(not os.path.exists(path) or os.path.getmtime(path) > os.path.getmtime(made) for path in needed)


def note(path: Path, text: str) -> None:
    """Writes a text where it is not that of the last build."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    asked = [os.environ.get(name, "") for name in ("CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS")]
    note(FLAGS_NOTED, "\n".join([*FLAGS, *asked, pybind11.__version__, sys.version]))
    note(SOURCES_NOTED, "\n".join(SOURCES))
    ParallelCompile("GRAPHMILL_BUILD_JOBS", default=os.cpu_count() or 1, needs_recompile=needs_recompile).install()
    # The Makefile builds the module by a rule of its own.
    apart = os.environ.get("GRAPHMILL_NATIVE") == "apart"
    setup(ext_modules=[] if apart else [native], cmdclass={"build_ext": BuildNative})
