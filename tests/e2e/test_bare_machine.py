"""kernels and trainers run with only numpy, torch, xxhash, safetensors, click, rich or tqdm, on copied artifacts."""

import shutil
import subprocess
import sys
from pathlib import Path

from graphmill.assets.storage.store import Store
from tests.e2e.commands import ROOT, SMALL, environment, graphmill

BARE = """
import importlib, pkgutil, sys

# Besides the standard library: what a bare machine has, what torch itself needs, and the project.
ALLOWED = {"numpy", "torch", "xxhash", "safetensors", "click", "rich", "tqdm", "graphmill"}
ALLOWED |= {"typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock"}
ALLOWED |= {"pygments", "markdown_it", "mdurl", "torchgen", "functorch", "optree", "_distutils_hack", "setuptools"}

class OnlyAllowed:
    # Finds what a bare machine has; everything else is absent, as it would be there.

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        head = name.partition(".")[0]
        known = head in ALLOWED or head in sys.stdlib_module_names or head.startswith("_")
        return self.finder.find_spec(name, path, target) if known else None

sys.meta_path[:] = [OnlyAllowed(f) if f.__name__ == "PathFinder" else f for f in sys.meta_path if hasattr(f, "__name__")]
from graphmill import kernels, trainers
for package in (kernels, trainers):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
for name in ("polars", "matplotlib", "dagster", "duckdb", "dgl"):
    assert name not in sys.modules, name
from graphmill.trainers.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_training_runs_on_a_bare_machine(tmp_path: Path) -> None:
    pipeline, home, copied = tmp_path / "small.toml", tmp_path / "home", tmp_path / "copied"
    pipeline.write_text(SMALL)
    assert graphmill("build", str(pipeline), home=home).returncode == 0
    arguments = [str(pipeline), "sage", "--home", str(copied)]
    for each in Store(home).artifacts():
        shutil.copytree(each.path, copied / "store" / each.stage / each.version)
        arguments += ["--input", f"{each.stage}={each.version[:12]}"]
    command = [sys.executable, "-c", BARE, *arguments]
    result = subprocess.run(command, cwd=ROOT, env=environment(copied), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    models = [artifact for artifact in Store(copied).artifacts() if artifact.stage == "model"]
    assert len(models) == 1 and models[0].verify() == []
    # The same bytes as on the machine that has everything.
    assert graphmill("train", str(pipeline), "sage", home=home, forked=True).returncode == 0
    full = next(artifact for artifact in Store(home).artifacts() if artifact.stage == "model")
    assert full.version == models[0].version and full.files == models[0].files
