"""Runs the graphmill command in a process of its own, as a user does."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphmill.jobs.runs.children import ChildProcesses
from tests import forks
from tests.recipes import recipe, sbm

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from graphmill.jobs.cli import main; main()"]
FORKED = ["-c", "from tests.e2e.commands import quick; quick()"]
"""The same for a fork whose trainings are forks, too."""

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
    *arguments: str,
    home: Path,
    cwd: Path | None = None,
    extra: Mapping[str, str] | None = None,
    forked: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs `graphmill ARGUMENTS` to its end, in a fork of a process that has imported what commands need (tests/forks.py).

    Args:
        arguments: arguments of the command.
        home: its home.
        cwd: the folder that it runs in, by default that of the home.
        extra: more environment variables.
        forked: whether its trainings are forks, too, and not processes behind a guard, each of which imports torch.
    """
    words = FORKED if forked else COMMAND[1:]
    return forks.run([*words, *arguments], cwd=cwd or home.parent, env=environment(home, extra), imports=forks.COMMANDS)


def quick() -> None:
    """Runs the command that `sys.argv` says, its trainings in forks."""
    from graphmill.jobs.cli import main

    ChildProcesses._run_to_end = train_in_fork  # pyright: ignore[reportAttributeAccessIssue]
    main()


def train_in_fork(self: ChildProcesses, command: Sequence[str], environment: dict[str, str], context: object) -> int:
    """Stands for `ChildProcesses._run_to_end`: runs the command in a fork of a process that has imported torch, without a guard."""
    done = forks.run(command[1:], cwd=ROOT, env=environment, imports=forks.TRAININGS)
    print(done.stdout, end="")
    if self.stderr is None:
        print(done.stderr, end="", file=sys.stderr)
    else:
        os.write(self.stderr, done.stderr.encode())
    return done.returncode
