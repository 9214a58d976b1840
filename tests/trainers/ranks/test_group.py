"""Real ranks end cleanly: nothing of the library runs any more when the interpreter ends."""

import sys

from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.ranks.launch import run_ranks

RANK = """
import contextlib, json, pathlib, sys, time
import numpy as np
from graphmill.trainers.ranks.group import joined

def threads():
    found = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found.append((task / "comm").read_text().strip())
    return [name for name in found if "gloo" in name]

json.load(sys.stdin)
with joined(30) as ranks:
    lanes = [ranks.main, ranks.lane(), ranks.lane().unmodelled()]
    for lane in lanes:
        lane.all_to_all(np.zeros(8, np.uint8), [8 * (rank != ranks.rank) for rank in (0, 1)], [8 * (rank != ranks.rank) for rank in (0, 1)])
    print("during", len(threads()) > 0, flush=True)
limit = time.monotonic() + 30  # the system may list a thread for a moment after it was waited for
while threads() and time.monotonic() < limit:
    time.sleep(0.01)
print("after", threads(), flush=True)
"""


def test_no_thread_of_the_library_outlives_the_training(capfd, monkeypatch):
    """Lanes are still referred to, as those of a finished training may be: a thread that drops a call's tensors late aborts the process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    run_ranks([sys.executable, "-c", RANK], {}, 2)
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "[rank 1] after []", "[rank 1] during True", "after []", "during True",
    ]  # fmt: skip
