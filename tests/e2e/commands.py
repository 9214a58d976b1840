"""Runs the graphmill command in a process of its own, as a user does."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import forks
from tests.recipes import recipe, sbm

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from graphmill.jobs.cli import main; main()"]

SMALL = recipe(
    {"name": "sage", "model": "sage", "hidden": 16, "epochs": 2},
    {"name": "gcn", "model": "gcn", "hidden": 16, "epochs": 2, "seeds": [0, 1]},
    name="small",
    seed=3,
    graph=sbm(nodes=3000, edges=24000, features=16, classes=4),
    sampling={"fanouts": [5, 5], "batch_size": 256},
)


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: the project on the path, a home of its own."""
    return os.environ | {"PYTHONPATH": str(ROOT), "GRAPHMILL_HOME": str(home)} | dict(extra or {})


def graphmill(
    *arguments: str, home: Path, cwd: Path | None = None, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `graphmill ARGUMENTS` to its end, in a fork of a process that has imported what commands need (tests/forks.py)."""
    return forks.run(
        [*COMMAND[1:], *arguments], cwd=cwd or home.parent, env=environment(home, extra), imports=forks.COMMANDS
    )
