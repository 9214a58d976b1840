"""What an installed package holds: one name, every file that is read beside a module, and nothing that a user's project would miss."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from graphmill.kernels import _native
from tests.e2e.commands import SMALL

ROOT = Path(__file__).parents[1]
LAYERS = ("assets", "jobs", "kernels", "trainers")
LEFT_OUT = {".pyc", ".so"}
"""Files that Python or the compiler writes beside the sources."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel without its native module, which takes minutes to compile and comes from this clone in its place."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from scikit_build_core.build import build_wheel; build_wheel({str(folder)!r}, {{'wheel.cmake': 'false'}})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages that holds the wheel."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    shutil.copy(_native.BUILD_FILE, folder / "graphmill" / "kernels" / "_native")
    return folder


def test_the_wheel_has_one_name_of_ours(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"graphmill"}


def test_every_file_of_the_layers_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("graphmill/")}
    files = {
        f"graphmill/{path.relative_to(ROOT)}" for each in LAYERS for path in (ROOT / each).rglob("*") if path.is_file()
    }
    files |= {str(path.relative_to(ROOT)) for path in (ROOT / "graphmill").rglob("*") if path.is_file()}
    wanted = {name for name in files if Path(name).suffix not in LEFT_OUT}
    assert any(name.endswith(".toml") for name in wanted) and any(name.endswith(".cu") for name in wanted)
    assert {name for name in packed if Path(name).suffix not in LEFT_OUT} == wanted


REMEDIES = """
import json
from graphmill.kernels.errors import install_extra
extras = json.loads({extras!r})
print(json.dumps({{extra: install_extra(extra) for extra in extras}}))
"""


def test_remedies_name_the_packages_of_each_extra_where_there_is_no_clone(site: Path, tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-c", REMEDIES.format(extras=json.dumps(list(extras)))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    for extra, packages in extras.items():
        asked = [Requirement(word) for word in shlex.split(found[extra].removeprefix("pip install "))]
        assert [(each.name, each.extras, each.specifier) for each in asked] == [
            (each.name, each.extras, each.specifier) for each in map(Requirement, packages)
        ]


PROJECT = """
import assets, jobs, kernels, trainers, graphmill
assert [each.OWNER for each in (assets, jobs, kernels, trainers)] == ["shop"] * 4
assert graphmill.__file__.startswith({site!r}), graphmill.__file__
outcome = graphmill.run("small.toml", "sage", home="home")
from graphmill.jobs.definitions import build_defs
import graphmill.trainers.loop.loop as loop
assert loop.__file__.startswith({site!r}), loop.__file__
print(sorted(outcome.artifacts))
"""


def test_a_project_keeps_its_packages_of_the_same_names(site: Path, tmp_path: Path) -> None:
    """A Dagster project calls its packages `assets` and `jobs`; trainings are child processes that get its path, too."""
    for name in LAYERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('OWNER = "shop"\n')
    (tmp_path / "small.toml").write_text(SMALL)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, site)))}
    command = [sys.executable, "-c", PROJECT.format(site=str(site))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "graph" in done.stdout.splitlines()[-1]
