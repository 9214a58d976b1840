"""Dagster's command `dg` in a project whose own packages are called `assets` and `jobs`: it lists, writes, checks and runs pipelines."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from itertools import takewhile
from pathlib import Path

import pytest

import graphmill
from graphmill.assets.storage.names.home import IMPORTED_FROM
from graphmill.assets.storage.store import Store
from tests.docs.pages import ROOT, fences

pytest.importorskip("create_dagster", reason="the command create-dagster is not installed: the extra dev has it")

PROGRAMS = Path(sys.executable).parent
OWN = """
import assets
import jobs

assert assets.OWN and jobs.OWN
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that `create-dagster` made, whose definitions import packages of its own that are called like layers of graphmill.

    The entry points of pyproject.toml stand in it as those of an installed package.
    """
    folder = tmp_path_factory.mktemp("projects") / "shop"
    run(folder.parent, "create-dagster", "project", folder.name, "--no-uv-sync")
    for name in ("assets", "jobs"):
        (folder / f"src/{name}").mkdir()
        (folder / f"src/{name}/__init__.py").write_text("OWN = True")
    definitions = folder / "src/shop/definitions.py"
    definitions.write_text(definitions.read_text() + OWN)
    points = tomllib.loads((IMPORTED_FROM / "pyproject.toml").read_text())["project"]["entry-points"]
    registered = folder / "src/registered-0.dist-info"
    registered.mkdir()
    lines = [f"[{group}]\n{name} = {value}\n" for group, each in points.items() for name, value in each.items()]
    (registered / "entry_points.txt").write_text("".join(lines))
    (registered / "METADATA").write_text("Metadata-Version: 2.1\nName: registered\n")
    return folder


def run(folder: Path, program: str, *words: str, **more: str) -> str:
    """Runs a program of the environment in a project, with more variables, and returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GRAPHMILL_", "DAGSTER_"))}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(IMPORTED_FROM)]),
        "PATH": f"{PROGRAMS}{os.pathsep}{environment['PATH']}",
        "DG_CLI_CONFIG": str(folder / "none"),
        "CREATE_DAGSTER_CLI_CONFIG": str(folder / "none"),
        "DAGSTER_DG_UPDATE_CHECK_ENABLED": "0",
        "VIRTUAL_ENV": str(PROGRAMS.parent),
        **more,
    }
    command = [str(PROGRAMS / program), *words]
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.first
def test_what_dg_writes_is_sound_and_trains(project: Path) -> None:
    listed = {each["key"] for each in json.loads(run(project, "dg", "list", "components", "--json"))["items"]}
    assert {"graphmill.PipelineComponent", "graphmill.PipelineFolderComponent"} <= listed
    described = run(project, "dg", "utils", "inspect-component", "graphmill.PipelineComponent")
    assert "Path of the TOML file" in described and "Folder of the artifacts" in described
    for component, name in (("PipelineComponent", "communities"), ("PipelineFolderComponent", "all")):
        run(project, "dg", "scaffold", "defs", f"graphmill.{component}", name)
        assert (project / f"src/shop/defs/{name}/{name}.toml").is_file()
    run(project, "dg", "check", "defs")
    defs = json.loads(run(project, "dg", "list", "defs", "--json"))
    assets = {each["asset_key"]: each for each in defs["assets"]}
    assert {f"{group}/{step}" for group in ("communities", "all") for step in ("graph", "features", "sage")} <= {
        *assets
    }
    assert all(assets[f"{group}/sage"]["description"] for group in ("communities", "all"))
    run(project, "dg", "launch", "--assets", "key:communities/sage+ or +key:communities/sage")
    stages = sorted(each.stage for each in Store(project / ".graphmill").artifacts())
    assert stages == ["features", "graph", "model"]


@pytest.mark.slow("docs/dagster.md, followed in an empty folder by its commands alone")
def test_the_page_makes_a_project_by_its_commands(tmp_path: Path) -> None:
    page, variables, said = ROOT / "docs" / "dagster.md", {}, ""
    for fence in takewhile(lambda each: "/lake" not in each.text, fences(page)):  # then come other examples
        first, *_ = lines = fence.text.splitlines()
        if fence.language == "sh":
            for program, *words in map(shlex.split, lines):
                if program == "export":
                    variables |= dict(word.replace("$PWD", str(tmp_path)).split("=", 1) for word in words)
                else:
                    said += run(tmp_path, program, *words, **variables)
        elif first.startswith("# "):
            path = tmp_path / first.removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.text)
    for key in (
        "shop/edges",
        "shop/nodes",
        "communities/graph",
        "communities/features",
        "communities/sage",
        "largest_class",
    ):
        assert key in said
    stages = sorted(each.stage for each in Store(tmp_path / ".graphmill").artifacts())
    assert stages == ["features", "graph", "model"]


def test_the_attributes_are_described() -> None:
    for component in (graphmill.PipelineComponent, graphmill.PipelineFolderComponent):
        schema = component.get_model_cls()
        assert schema is not None
        described = {name: each.description for name, each in schema.model_fields.items()}
        assert len(described) == 4 and all(described.values()), described
