"""Real ranks end cleanly: nothing of the library runs any more when the interpreter ends."""

import sys

from assets.storage.home import ROOT
from trainers.ranks.launch import run_ranks

RANK = """
import json, os, pathlib, sys
import numpy as np
from trainers.ranks.group import joined

def threads():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return [name for task in tasks if "gloo" in (name := (task / "comm").read_text().strip())]

json.load(sys.stdin)
with joined(30) as ranks:
    lanes = [ranks.main, ranks.lane(), ranks.lane().unmodelled()]
    for lane in lanes:
        lane.all_to_all(np.zeros(8, np.uint8), [8 * (rank != ranks.rank) for rank in (0, 1)], [8 * (rank != ranks.rank) for rank in (0, 1)])
    print("during", len(threads()) > 0, flush=True)
print("after", threads(), flush=True)
"""


def test_no_thread_of_the_library_outlives_the_training(capfd, monkeypatch):
    """Lanes are still referred to, as those of a finished training may be: a thread that drops a call's tensors late aborts the process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    run_ranks([sys.executable, "-c", RANK], {}, 2)
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "[rank 1] after []", "[rank 1] during True", "after []", "during True",
    ]  # fmt: skip
