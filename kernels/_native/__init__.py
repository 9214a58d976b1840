"""The kernels in C++ (kernels/native/): the build for this processor. The modules in the other rooms are its front doors.

A clone has one build, `native`, for the processor of the machine that made it. A wheel has a build for each level of the x86-64
architecture in `LEVELS`; all give the same bits. `GRAPHMILL_PROCESSOR=x86-64-v3` takes the build of that level in place of a higher one.
"""

import os
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES

from graphmill.kernels import environment

LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
}
"""Level -> the names that Linux gives to what it adds, highest level first."""
VARIABLE = environment.PROCESSOR


def processor_flags() -> set[str]:
    """Returns the names of what this processor can do, as /proc/cpuinfo has them; empty if that cannot be read."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next((set(line.split()) for line in lines if line.startswith("flags")), set())
    except OSError:
        return set()


def choose_build(builds: set[str], flags: set[str], level: str = "") -> str:
    """Returns the name of the build for a processor.

    Args:
        builds: names of the builds that are there: "native", or levels with underscores.
        flags: what the processor can do, as in `processor_flags`.
        level: highest level that may be taken; "" for any.

    Raises:
        ImportError: no build runs on this processor, or there is no such level.
    """
    if level and level not in LEVELS:
        raise ImportError(f"{VARIABLE}={level}: give one of {', '.join(LEVELS)}")
    if "native" in builds and not level:
        return "native"
    needed: set[str] = set().union(*LEVELS.values())
    allowed = not level
    for name, adds in LEVELS.items():
        allowed |= name == level
        if allowed and needed <= flags and name.replace("-", "_") in builds:
            return name.replace("-", "_")
        needed -= adds
    if not builds:
        raise ImportError(
            "the native module is not built for this Python: run `make native` in the clone, or install a wheel"
        )
    lacking = ", ".join(sorted(LEVELS["x86-64-v3"] - flags)) or "a build of that level"
    raise ImportError(
        f"no build of the native module runs here, the processor lacks {lacking}: run `make native` in a clone"
    )


def _found() -> set[str]:
    """Returns the names of the builds beside this file for this version of Python."""
    named = (name.partition(".") for name in os.listdir(__path__[0]))
    return {build for build, dot, suffix in named if f"{dot}{suffix}" in EXTENSION_SUFFIXES}


BUILD = choose_build(_found(), processor_flags(), environment.read(VARIABLE))
_module = import_module(f"{__name__}.{BUILD}")
BUILD_FILE = str(_module.__file__)
globals().update({name: value for name, value in vars(_module).items() if not name.startswith("__")})
