"""A signal ends a program wherever the exception is lost, with its children, with one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphmill.assets.building import interrupts
from tests.jobs.runs.processes import heed_interrupts, wait_until_gone

ROOT = Path(__file__).parents[3]
BEGIN = "from graphmill.assets.building import interrupts\ninterrupts.begin('one line')\nimport os, subprocess, sys, threading, time\n"
READY = "print('ready', flush=True)\n"
LOST = {
    "swallowed": READY + "while True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass",
    "in a destructor": (
        f"class Slow:\n    def __del__(self):\n        {READY}        time.sleep(60)\nSlow()\ntime.sleep(60)"
    ),
    "at the top": READY + "time.sleep(60)",
    "as another error": READY + "try:\n    time.sleep(60)\nexcept BaseException:\n    raise ImportError('broken')",
    "in a thread": "threading.Thread(target=time.sleep, args=(60,)).start()\n" + READY + "time.sleep(60)",
    "at the end": "import atexit\natexit.register(lambda: (print('ready', flush=True), time.sleep(60)))\ninterrupts.leave(0)",
    "handled by others": "import signal\nfor n in interrupts.STOPS:\n    signal.signal(n, lambda *_: None)\n"
    + READY
    + "time.sleep(60)",
}
CHILD = "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\nprint(child.pid, flush=True)\n"


@pytest.mark.parametrize("place", LOST)
def test_the_end_comes_with_one_line_and_takes_the_children_along(place: str) -> None:
    number = interrupts.STOPS[len(place) % 3]
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + CHILD + LOST[place]], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509
    )  # fmt: skip
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.send_signal(number)
    began = time.monotonic()
    assert process.communicate(timeout=60)[1] == "one line\n" and process.returncode == 128 + number
    assert time.monotonic() - began < 20
    wait_until_gone([child])


def test_a_signal_that_is_ignored_stays_so_and_a_program_that_is_done_ends_with_its_code() -> None:
    code = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + BEGIN
    code += "os.kill(os.getpid(), signal.SIGHUP)\nassert not interrupts.came()\ninterrupts.leave(7)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=heed_interrupts
    )
    assert done.returncode == 7 and done.stderr == ""


def test_a_child_that_is_started_blocked_gets_its_signal_when_it_has_begun() -> None:
    child = f"import os, time\\nprint('up', flush=True)\\ntime.sleep(0.3)\\n{BEGIN.replace(chr(10), chr(92) + 'n')}time.sleep(60)"
    code = "import subprocess, sys, signal\nfrom graphmill.assets.building.interrupts import blocked\nwith blocked():\n"
    code += f'    child = subprocess.Popen([sys.executable, "-c", "{child}"], stdout=subprocess.PIPE)\n'
    code += "child.stdout.readline()\nchild.send_signal(signal.SIGINT)\nprint(child.wait(60))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, preexec_fn=heed_interrupts
    )
    assert done.stdout == "130\n" and done.stderr == "one line\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_watch_notices_an_interrupt_whoever_handles_it(number: int) -> None:
    previous = signal.signal(number, lambda *_: None)
    try:
        with interrupts.watched_interrupts() as noticed:
            assert not noticed()
            signal.signal(number, lambda *_: None)
            os.kill(os.getpid(), number)
            assert noticed() and noticed()
    finally:
        signal.signal(number, previous)
