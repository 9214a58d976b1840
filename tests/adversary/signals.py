"""Signals at drawn moments: a command that is asked to stop says so in one line and ends, whatever it is doing, and so do its children."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from graphmill.assets.storage.store import Store
from tests.adversary.attack import SOUND, Attack, WrongError
from tests.adversary.house import TRAINED, WAITING, grounds_of, moved_in
from tests.e2e.commands import COMMAND, environment
from tests.jobs.runs.processes import heed_interrupts

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EARLIEST, LATEST = 0.5, 8.0
"""Seconds from the start of a command to its signal."""
SECONDS = 3.0
"""Seconds in which it ends, on a machine with a processor for it."""
PATIENCE = 60.0
LINE = ": interrupted;"
MARK = "GRAPHMILL_TEST_MARK"
FAULTS = ("Traceback", "Exception ignored", "Error", "Warning:", "frame #")
COMMANDS = {
    "build": ("build", "RECIPE", "--set", "seed=7"),
    "run": ("run", "RECIPE", "--set", "seed=8", "-q"),
    "train": ("train", "RECIPE", WAITING, "--resume"),
    "retrain": ("train", "RECIPE", TRAINED, "--retrain"),
    "predict": ("predict", "RECIPE", TRAINED, "--out", "HOUSE/again.parquet"),
    "plan": ("plan", "RECIPE"),
    "inspect": ("inspect", "RECIPE"),
    "validate": ("validate", "RECIPE"),
    "doctor": ("doctor", "--refresh"),
    "report": ("report", "RECIPE"),
    "verify": ("verify",),
    "sql": ("sql", "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"),
}


def signalled_command(seed: int) -> str:
    """Returns the command that gets the signal of a seed."""
    return list(COMMANDS)[seed % len(COMMANDS)]


def signals(reference: Path) -> Attack:
    """Returns the attack that sends a command one of three signals at a drawn moment: to it or to its group, once or twice.

    Args:
        reference: home with everything, sound; the house stands beside it.
    """

    def attack(seed: int, folder: Path) -> str:
        draw, grounds = random.Random(seed), grounds_of(reference)
        house, number = moved_in(grounds, folder), draw.choice(STOPS)
        words = [
            word.replace("RECIPE", str(grounds / "house.toml")).replace("HOUSE", str(house))
            for word in COMMANDS[signalled_command(seed)]
        ]
        mark = uuid.uuid4().hex
        process = subprocess.Popen(
            [*COMMAND, *words], env=environment(house / "home", {MARK: mark, "NO_COLOR": "1"}), cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            preexec_fn=heed_interrupts,  # noqa: PLW1509
        )  # fmt: skip
        send: Callable[[int, int], None] = draw.choice((os.kill, os.killpg))
        time.sleep(EARLIEST + (LATEST - EARLIEST) * draw.random() ** 2)
        done = process.poll() is not None
        for _ in range(0 if done else draw.choice((1, 1, 2))):
            send(process.pid, number)
        sent = time.monotonic()
        try:
            said = process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise WrongError(f"{words}: never ends after {number.name}") from error
        seconds, left = time.monotonic() - sent, _alive(mark)
        if not done:
            _require_end(words, number, process.returncode, said, seconds)
        if left:
            raise WrongError(f"{words}: after {number.name} these processes are left: {left}")
        if damaged := Store(house / "home").damaged():
            raise WrongError(f"{words}: after {number.name} the store has damaged artifacts: {damaged}")
        return SOUND

    return attack


def _require_end(words: list[str], number: signal.Signals, code: int, said: str, seconds: float) -> None:
    """Refuses another end than the one line, the exit code of the signal and nothing else, at once; or none, if it had not begun."""
    what = f"{words} after {number.name}"
    if code == -number and not said:  # on a busy machine it had not begun
        return
    if code != 128 + number or said.count(LINE) != 1:
        raise WrongError(f"{what}: exit code {code}, and it says\n{said}")
    if found := [fault for fault in FAULTS if fault in said]:
        raise WrongError(f"{what}: {found} in\n{said}")
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    if seconds > SECONDS * busy:
        raise WrongError(f"{what}: it ends {seconds:.1f} s later, on a machine that is {busy:.1f} times busy")


def _alive(mark: str) -> list[str]:
    """Returns the command lines of the living processes with a mark in their environment."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (each / "environ").read_bytes():
                    found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:  # it ended meanwhile, or is another user's
                continue
    return found
