"""Builds of the native module for processors of several levels: the best that runs is taken, and all give the same bits.

A clone has one build; a wheel has two.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.kernels import _native
from graphmill.kernels._native import BUILD_FILE, LEVELS, VARIABLE, choose_build, processor_flags

pytestmark = pytest.mark.smoke
ROOT = Path(__file__).parents[2]
BUILDS = {path.name.partition(".")[0] for path in Path(BUILD_FILE).parent.glob("*.so")}

BOTH = {"x86_64_v3", "x86_64_v4"}
V3 = LEVELS["x86-64-v3"] | {"sse4_2"}
V4 = V3 | LEVELS["x86-64-v4"]

TRAINED = """
import graphmill
from graphmill.kernels._native import BUILD
from tests.recipes import recipe, sbm

tables = [
    {"name": model, "model": model, "hidden": 24, "epochs": 1, "dtype": dtype}
    for model, dtype in (("sage", "float32"), ("gcn", "bf16"), ("gat", "float32"), ("gin", "float64"))
]
open("small.toml", "w").write(
    recipe(*tables, seed=1, graph=sbm(features=37), sampling={"fanouts": [4, -1], "batch_size": 32})
)
outcome = graphmill.run("small.toml", home="home")
print("build", BUILD)
for name, found in outcome.artifacts.items():
    print("artifact", name, *(f"{each.version} {each.files}" for each in found))
"""


def runs(level: str) -> bool:
    try:
        return choose_build(BUILDS, processor_flags(), level) == level.replace("-", "_")
    except ImportError:
        return False


def test_models_have_the_same_bits_with_each_build(tmp_path: Path) -> None:
    levels = [level for level in LEVELS if runs(level)]
    if len(levels) < 2:
        pytest.skip(f"there is one build that runs here: {', '.join(BUILDS)}")
    found = []
    for level in levels:
        folder = tmp_path / level
        folder.mkdir()
        environment = os.environ | {VARIABLE: level, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", TRAINED]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert f"build {level.replace('-', '_')}" in lines
        found.append([line for line in lines if line.startswith("artifact ")])
    assert len(found[0]) >= 6 and all(each == found[0] for each in found)


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
        (set(), V4, "", "run `make native` in the clone"),
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


def test_builds_for_another_python_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("native.cpython-39-x86_64-linux-gnu.so", Path(BUILD_FILE).name, "x86_64_v3.so.lock", "__init__.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(_native, "__path__", [str(tmp_path)])
    assert _native._found() == {Path(BUILD_FILE).name.partition(".")[0]}
