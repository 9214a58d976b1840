"""Processes that end with the one that started them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assets.building.child import child_environment
from jobs.commands.ui import server_environment


@pytest.mark.parametrize("module", ["assets.partitions.metis_child", "assets.sources.dgl.reader"])
def test_a_child_whose_parent_is_gone_before_it_begins_ends(module):
    """It is told who started it; here that is not so. Beyond that look it would fail with a traceback: nothing else is given."""
    # Process 0 is nobody's parent.
    ended = subprocess.run(
        [sys.executable, "-m", module, "0"], env=child_environment(), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")


@pytest.mark.parametrize("whose", ["a child", "a server"])
def test_modules_in_the_users_folder_are_not_imported(tmp_path: Path, whose: str) -> None:
    """A Dagster project has folders of the same names as this one, and everybody may have a `numpy.py`."""
    for name in ("assets/__init__.py", "jobs/__init__.py", "dagster/__init__.py", "numpy.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('the user's code was run')")
    server = os.environ | server_environment(tmp_path / "home", 3000)
    code = "import assets.storage.home, dagster, numpy; print(assets.storage.home.ROOT)"
    (tmp_path / "inner.py").write_text("raise SystemExit('the user's module was run')")
    environment = child_environment() if whose == "a child" else server
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    missing = subprocess.run(
        [sys.executable, "-m", "inner"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "No module named inner" in missing.stderr
