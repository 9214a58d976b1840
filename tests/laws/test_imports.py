"""Imports go one way, kernels <- assets <- trainers <- jobs, and heavy packages load only where they are used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("kernels", "assets", "trainers", "jobs")
HEAVY = ("torch", "dgl", "cupy", "polars", "duckdb", "matplotlib", "pymetis")


def sources(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


def imported(path: Path, *, only_top: bool = False) -> list[tuple[str, int]]:
    """Every (top-level package, line) that a file imports; with only_top those that run when it is imported."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if only_top else list(ast.walk(tree))
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name.split(".")[0], node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.module.split(".")[0], node.lineno))
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_no_import_runs_upwards(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    assert sources(layer)
    wrong = [(p.relative_to(ROOT), line, name) for p in sources(layer) for name, line in imported(p) if name in above]
    assert not wrong


@pytest.mark.parametrize("layer", ["kernels", "assets", "jobs"])
def test_heavy_packages_are_imported_inside_functions(layer: str) -> None:
    wrong = [
        (path.relative_to(ROOT), line, name)
        for path in sources(layer)
        for name, line in imported(path, only_top=True)
        if name in HEAVY
    ]
    assert not wrong


def test_dagster_is_in_one_file_of_assets_and_in_jobs_only() -> None:
    files = [p.relative_to(ROOT) for layer in LAYERS[:3] for p in sources(layer) if "dagster" in dict(imported(p))]
    assert set(files) <= {Path("assets/definitions.py")}


@pytest.mark.parametrize("layer", LAYERS)
def test_the_folders_are_ours(layer: str) -> None:
    """A package from an index with one of these names would shadow the project (one called kernels exists)."""
    command = [sys.executable, "-c", f"import {layer}; print({layer}.__file__)"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found) == ROOT / layer / "__init__.py"
