"""The launcher, with ranks that only sleep, fail or write: who was at fault, what is said, and that nothing is left."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from graphmill.assets.storage.names.home import ROOT
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks import launch
from graphmill.trainers.ranks.launch import RankError, run_ranks

RANK = """
import json, os, sys, time
order, rank = json.load(sys.stdin), os.environ["RANK"]
what = order.get(rank, "sleep")
print(f"rank {rank} of {os.environ['WORLD_SIZE']}: {what}", file=sys.stderr, flush=True)
if what != "lose":
    open(os.path.join(order["folder"], rank), "w").close()
else:
    # As a peer does, after the other one: all that do not lose are there, and have failed if they do.
    while len(os.listdir(order["folder"])) < sum(order.get(str(each)) != "lose" for each in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.01)
    time.sleep(0.2)
    os._exit(75)
if what == "input":
    with open(int(os.environ["GRAPHMILL_RANK_ERRORS"]), "w") as pipe:
        json.dump({"problem": "parts are odd", "remedy": "make them even"}, pipe)
    sys.exit(1)
if what == "kill":
    os.kill(os.getpid(), 9)
if what == "stubborn":
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what == "fail":
    sys.exit(9)
if what != "end":
    time.sleep(3600)
"""
LAUNCHER = """
import sys
from graphmill.assets.building.child import end_with_parent
from graphmill.trainers.ranks.launch import run_ranks
rank = "import os; from graphmill.assets.building.child import end_with_parent; end_with_parent(int(os.environ['GRAPHMILL_RANKS_PARENT']))"
run_ranks([sys.executable, "-c", rank + "; print('here', flush=True); import time; time.sleep(3600)"], {}, 2)
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Waits that are as long as these ranks need on a busy machine; one that hangs makes the whole of the first pass."""
    monkeypatch.setattr(launch, "SETTLE_SECONDS", 5.0)
    monkeypatch.setattr(launch, "GRACE_SECONDS", 1.0)


def run(order, world=2):
    heard = []
    with tempfile.TemporaryDirectory() as folder:
        run_ranks([sys.executable, "-S", "-c", RANK], {**order, "folder": folder}, world, heard.append)
    return heard


def test_ranks_that_end_well_end_the_run():
    assert run({"0": "end", "1": "end"}) == ["rank 0 of 2: end"]


def test_each_rank_has_a_gpu_for_itself(monkeypatch, capfd):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-9")
    tell = "import os, sys; sys.stdin.read(); print('sees', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
    run_ranks([sys.executable, "-S", "-c", tell], {}, 3)
    said = sorted(capfd.readouterr().out.split("\n"))
    assert said == ["", "[rank 1] sees GPU-9", "[rank 2] sees 4", "sees 4"]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({"1": "kill"}, r"rank 1 of 3 was killed \(SIGKILL, often: out of memory\); its last lines:\n  rank 1 of 3: kill"),
        ({"1": "fail", "0": "lose", "2": "lose"}, r"rank 1 of 3 ended with exit code 9; its last lines"),
        ({"1": "sleep", "0": "lose", "2": "lose"}, r"rank 1 of 3 did not answer: the others waited for it until their timeout"),
        ({"1": "stubborn", "0": "fail"}, r"rank 0 of 3 ended with exit code 9"),
    ],
    ids=["killed", "failed", "hangs", "stubborn"],
)  # fmt: skip
def test_the_rank_at_fault_is_named_and_all_are_gone(order, words, monkeypatch):
    started = []

    class Noted(launch.LocalRank):
        def __init__(self, *given):
            super().__init__(*given)
            started.append(self.process)

    monkeypatch.setattr(launch, "LocalRank", Noted)
    with pytest.raises(RankError, match=words):
        run(order, 3)
    assert len(started) == 3 and all(child.poll() is not None for child in started)


def test_a_mistake_that_a_rank_told_keeps_its_remedy():
    with pytest.raises(InputError, match=r"parts are odd\n  remedy: make them even") as caught:
        run({"1": "input", "0": "lose"})
    assert not isinstance(caught.value, RankError)


def alive(group):
    """Ids of the processes of a group that have not ended."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "-g", str(group)], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if "Z" not in line]


def test_a_killed_launcher_leaves_no_rank():
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert launcher.stdout
    assert {launcher.stdout.readline(), launcher.stdout.readline()} == {"here\n", "[rank 1] here\n"}
    assert len(alive(launcher.pid)) == 3
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    limit = time.monotonic() + 120
    while alive(launcher.pid) and time.monotonic() < limit:
        time.sleep(0.05)
    assert alive(launcher.pid) == []
