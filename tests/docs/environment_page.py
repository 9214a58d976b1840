"""Writes docs/environment.md: `python -m tests.docs.environment_page`, or `make docs`."""

from __future__ import annotations

from graphmill.kernels.environment import VARIABLES
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "environment.md"
HEAD = """\
# Environment variables

Every variable that graphmill reads, who sets it, and what it says. A message that a variable causes names it; `graphmill doctor` shows
those that are set, and what is wrong with them. Pipeline files may name more: `${NAME}` in a path, and `webhook` of `[schedule]`.

None has to be set. Those of `torchrun`, `srun` and `mpirun` number the processes that such a launcher starts. Ranks under
`torchrun` are started by `python -m graphmill.trainers`; a `graphmill` command refuses to train as one of several processes, and `--ranks`
starts ranks without a launcher. A launcher that is gone may have left its variables in a shell: `unset` them.
"""


def page() -> str:
    """Returns what the page has to be."""
    rows = [f"| `{each.name}` | {each.set_by} | {each.meaning} |" for each in VARIABLES.values()]
    return "\n".join([HEAD, "| variable | set by | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} is written")
