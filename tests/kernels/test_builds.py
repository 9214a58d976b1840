"""The builds of the native module, for processors of several levels, give the same bits. A clone has one build; a wheel has two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.kernels._native import BUILD_FILE, LEVELS, VARIABLE, choose_build, processor_flags

pytestmark = pytest.mark.smoke
BUILDS = {path.name.partition(".")[0] for path in Path(BUILD_FILE).parent.glob("*.so")}

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
