"""Dagster's command `dg` in a project whose own packages are called `assets` and `jobs`: it lists, writes, checks and runs pipelines."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import graphmill
from graphmill.assets.storage.names.home import IMPORTED_FROM
from graphmill.assets.storage.store import Store

pytest.importorskip("dagster_dg_cli", reason="the command dg is not installed: the extra dev has it")

FILES = {
    "pyproject.toml": """
[project]
name = "shop"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
""",
    "src/shop/__init__.py": "",
    "src/shop/defs/__init__.py": "",
    "src/shop/definitions.py": """
from pathlib import Path

import assets
import dagster as dg
import jobs


@dg.definitions
def defs() -> dg.Definitions:
    assert assets.OWN and jobs.OWN
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    "src/assets/__init__.py": "OWN = True",
    "src/jobs/__init__.py": "OWN = True",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, and the entry points of pyproject.toml as an installed package has them."""
    folder = tmp_path_factory.mktemp("project")
    points = tomllib.loads((IMPORTED_FROM / "pyproject.toml").read_text())["project"]["entry-points"]
    text = "".join(f"[{group}]\n{name} = {value}\n" for group, each in points.items() for name, value in each.items())
    registered = "src/registered-0.dist-info"
    more = {
        f"{registered}/entry_points.txt": text,
        f"{registered}/METADATA": "Metadata-Version: 2.1\nName: registered\n",
    }
    for name, content in (FILES | more).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "history").mkdir()
    return folder


def dg(project: Path, *words: str) -> str:
    """Runs a command of dg in the project, and returns what it prints."""
    paths = os.pathsep.join([str(project / "src"), str(IMPORTED_FROM)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHMILL_")}
    environment |= {
        "PYTHONPATH": paths,
        "DAGSTER_HOME": str(project / "history"),
        "DG_CLI_CONFIG": str(project / "none"),
    }
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = [str(Path(sys.executable).parent / "dg"), *words]
    done = subprocess.run(
        command, check=False, cwd=project, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.first
def test_what_dg_writes_is_sound_and_trains(project: Path) -> None:
    listed = {each["key"] for each in json.loads(dg(project, "list", "components", "--json"))["items"]}
    assert {"graphmill.PipelineComponent", "graphmill.PipelineFolderComponent"} <= listed
    for component, name in (("PipelineComponent", "communities"), ("PipelineFolderComponent", "all")):
        dg(project, "scaffold", "defs", f"graphmill.{component}", name)
        assert (project / f"src/shop/defs/{name}/{name}.toml").is_file()
    dg(project, "check", "defs")
    dg(project, "launch", "--assets", "key:communities/sage+ or +key:communities/sage")
    stages = sorted(each.stage for each in Store(project / ".graphmill").artifacts())
    assert stages == ["features", "graph", "model"]


def test_the_attributes_are_described() -> None:
    for component in (graphmill.PipelineComponent, graphmill.PipelineFolderComponent):
        schema = component.get_model_cls()
        assert schema is not None
        described = {name: each.description for name, each in schema.model_fields.items()}
        assert len(described) == 4 and all(described.values()), described
