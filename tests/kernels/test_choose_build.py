"""Which build of the native module runs: the best that a processor can, and no better one than the user allows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.kernels._native import LEVELS, VARIABLE, choose_build

ROOT = Path(__file__).parents[2]
BOTH = {"x86_64_v3", "x86_64_v4"}
V3 = LEVELS["x86-64-v3"] | {"sse4_2"}
V4 = V3 | LEVELS["x86-64-v4"]


@pytest.mark.parametrize(
    ("builds", "flags", "level", "taken"),
    [
        (BOTH, V4, "", "x86_64_v4"),
        (BOTH, V3, "", "x86_64_v3"),
        (BOTH, V4, "x86-64-v3", "x86_64_v3"),
        (BOTH, V4, "x86-64-v4", "x86_64_v4"),
        (BOTH, V4 - {"avx512dq"}, "", "x86_64_v3"),
        ({"x86_64_v3"}, V4, "", "x86_64_v3"),
        ({"native"}, set(), "", "native"),
        ({"native", *BOTH}, V4, "", "native"),
        ({"native", *BOTH}, V4, "x86-64-v3", "x86_64_v3"),
    ],
)
def test_the_highest_level_that_runs_is_taken(builds: set[str], flags: set[str], level: str, taken: str) -> None:
    assert choose_build(builds, flags, level) == taken


@pytest.mark.parametrize(
    ("builds", "flags", "level", "said"),
    [
        (BOTH, V3 - {"avx2"}, "", "the processor lacks avx2"),
        (BOTH, V3, "x86-64-v2", "give one of x86-64-v4, x86-64-v3"),
        ({"native"}, V4, "x86-64-v3", "a build of that level"),
        (set(), V4, "", "run `make` in the clone"),
    ],
)
def test_no_build_is_an_error_with_a_remedy(builds: set[str], flags: set[str], level: str, said: str) -> None:
    with pytest.raises(ImportError, match=said):
        choose_build(builds, flags, level)


def test_the_variable_is_heeded() -> None:
    code = "from graphmill.kernels import _native"
    environment = os.environ | {VARIABLE: "x86-64-v2"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and f"{VARIABLE}=x86-64-v2: give one of" in done.stderr
