"""Ways to end a build in the middle: at a line of its code, in a forked child; and what must be left."""

import gc
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.storage.local.writer import STAGING
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError

HOUSE = str(ROOT / "assets")


def run_child(work):
    """Runs `work` in a forked child and returns its exit status: negative = the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_line(count, act, work):
    """Runs `work` and calls `act` before the count-th line of code in assets/. Returns the number of lines that ran."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(HOUSE):
            return None
        if event == "line":
            seen += 1
            if seen == count:
                act()
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return seen


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def assert_clean(home):
    assert os.listdir(Store(home).root / STAGING) == []


def fill_disks(
    mount: Callable[[int], Path], prepared: Path, more_bytes: Sequence[int], build: Callable[[Path], Any], copies: Path
) -> list[tuple[str, Path]]:
    """Builds on file systems that end so many bytes after what is prepared, until each is full.

    Returns:
        The text of each error, and a copy of what it left behind.
    """
    num_bytes = sum(path.stat().st_size // 4096 * 4096 + 4096 for path in prepared.rglob("*"))
    left = []
    for more in more_bytes:
        home = mount(num_bytes + more) / "home"
        shutil.copytree(prepared, home)
        with pytest.raises(InputError, match="the file system is full") as caught:
            build(home)
        text = str(caught.value)
        del caught  # its traceback holds mapped files, and the disk could not be unmounted
        gc.collect()
        assert_clean(home)
        shutil.copytree(home, copies / str(more))
        shutil.rmtree(home)
        left.append((text, copies / str(more)))
    return left
