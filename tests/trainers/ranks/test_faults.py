"""A rank that dies, hangs or raises ends the run in bounded time with its name and last lines, and nothing is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.commands import graphmill
from tests.recipes import recipe, sbm

ROOT = Path(__file__).parents[3]
GRAPHMILL = str(Path(sys.executable).with_name("graphmill"))
TWO = {"name": "two", "trainer": "distributed", "hidden": 8, "epochs": 500, "eval_every": 500, "samplers": 1}
RECIPE = recipe(
    TWO
    | {
        "distributed": {"ranks": 2, "timeout": 120, "exchange": "peer"}
    },  # ranks read rows of each other until one is gone
    name="faulty",
    graph=sbm(nodes=400, edges=3000, train_ratio=0.6),
    partitions={"method": "range", "parts": 2},
    hotness={"policy": "degree"},
    memory={"device": "20%", "host": "10%"},
    sampling={"method": "tests.trainers.ranks.faults:sample", "fanouts": [3, 3], "batch_size": 8},
)
WITHIN = 110
"""Seconds until all are gone: less than the timeout, so that nobody waits for it."""


PATHS = {"PYTHONPATH": str(ROOT)}
"""A script of the environment does not look for modules in the folder that it runs in; the sampling function of the recipe is there."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the artifacts of the recipe."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faulty.toml").write_text(RECIPE)
    (folder / "impatient.toml").write_text(RECIPE.replace("timeout = 120", "timeout = 6"))
    built = graphmill("build", str(folder / "faulty.toml"), home=folder / "home")
    assert built.returncode == 0, built.stderr
    return folder


def start(folder, fault="", rank=1, command=(sys.executable, "-m", "graphmill.trainers"), more=(), file="faulty.toml"):
    """Starts the launcher, and waits until both ranks train; returns it and the file that triggers the fault."""
    trigger = folder / f"trigger-{fault}-{time.monotonic_ns()}"
    environment = os.environ | PATHS | {"FAULT": fault, "FAULT_RANK": str(rank), "FAULT_FILE": str(trigger)}
    environment["GRAPHMILL_HOME"] = str(folder / "home")
    launcher = subprocess.Popen(
        [*command, str(folder / file), "two", "-v", *more], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert launcher.stderr
    for line in launcher.stderr:
        if "epoch" in line:
            return launcher, trigger
    raise AssertionError(launcher.wait())


def members(trigger):
    """Ids of the living processes that were started with a trigger, by rank; all others have rank -1."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"FAULT_FILE={trigger}".encode() in variables and state not in "ZX":
            ranks = [int(each[5:]) for each in variables if each.startswith(b"RANK=")]
            found[ranks[0] if ranks else -1] = int(entry.name)
    return found


def ended(launcher, trigger):
    """Waits for the end; returns exit code and what was said. No process is left."""
    _, said = launcher.communicate(timeout=WITHIN)
    assert members(trigger) == {}
    return launcher.returncode, said


def gone(trigger):
    """Waits until no process is left, and tells whether that came about."""
    limit = time.monotonic() + WITHIN
    while members(trigger) and time.monotonic() < limit:
        time.sleep(0.1)
    return members(trigger) == {}


@pytest.mark.slow("ranks that raise, run out of memory, exit or sleep")
@pytest.mark.parametrize(
    ("fault", "file", "words"),
    [
        ("raise", "faulty.toml", "ZeroDivisionError: a rank that raises"),
        ("memory", "faulty.toml", "MemoryError: no memory is left"),
        ("exit", "faulty.toml", "rank 1 of 2 ended with exit code 9"),
        ("sleep", "impatient.toml", "rank 1 of 2 did not answer"),
    ],
)
def test_a_rank_that_fails_ends_all(home, fault, file, words):
    launcher, trigger = start(home, fault, file=file)
    trigger.touch()
    code, said = ended(launcher, trigger)
    assert code == 1 and words in said


def test_a_rank_that_is_killed_ends_all(home):
    launcher, trigger = start(home)
    os.kill(members(trigger)[1], signal.SIGKILL)
    code, said = ended(launcher, trigger)
    assert code == 1 and "rank 1 of 2 was killed (SIGKILL" in said and "--resume goes on" in said


@pytest.mark.slow("a launcher that is killed beside real ranks; test_launch.py has the short form")
def test_a_killed_launcher_leaves_no_rank(home):
    launcher, trigger = start(home)
    assert set(members(trigger)) == {-1, 0, 1}
    launcher.kill()
    launcher.wait()
    assert gone(trigger)


@pytest.mark.slow("`graphmill train` that is killed beside real ranks")
def test_a_killed_command_leaves_no_rank(home):
    launcher, trigger = start(home, command=(GRAPHMILL, "train"), more=("--ranks", "2"))
    assert set(members(trigger)) == {-1, 0, 1}
    launcher.kill()
    launcher.wait()
    assert gone(trigger)


@pytest.mark.slow("Ctrl-C for real ranks")
def test_an_interrupt_ends_all_and_the_run_goes_on(home):
    launcher, trigger = start(home)
    os.killpg(launcher.pid, signal.SIGINT)
    code, said = ended(launcher, trigger)
    assert code == 130 and "interrupted" in said
    assert len(list((home / "home" / "checkpoints").glob("*.safetensors"))) == 1
