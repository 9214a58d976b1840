"""What is measured once into the home, by whoever comes first."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from graphmill.assets.storage.system.filesystem import replace_atomically, take_lock, write_once


def test_threads_that_measure_first_at_once_keep_the_same(tmp_path):
    """None of them may remove what another is about to give its name to."""
    path = tmp_path / "measured" / "speeds.json"
    all_measured = Barrier(4)

    def measure(number):
        all_measured.wait(120)
        return f"{number}".encode()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: write_once(path, lambda: measure(number)), range(4)))
    assert found == [path.read_bytes()] * 4 and found[0] in {b"0", b"1", b"2", b"3"}
    assert os.listdir(path.parent) == [path.name]


def test_a_container_that_measures_later_leaves_the_file_whole(tmp_path, monkeypatch):
    """It may write its own measurement when the other one has just linked its; both run as process 1, in thread 1."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    monkeypatch.setattr("threading.get_native_id", lambda: 1)
    path, link = tmp_path / "measured" / "speeds.json", os.link
    seen = []

    def late(source, target):
        link(source, target)
        monkeypatch.setattr("os.link", link)
        monkeypatch.setattr("pathlib.Path.exists", lambda self: False)
        seen.append(write_once(path, lambda: b"another"))

    monkeypatch.setattr("os.link", late)
    assert write_once(path, lambda: b"first") == path.read_bytes() == b"first" and seen == [b"first"]


def test_what_was_measured_stays_until_it_is_replace_atomically(tmp_path):
    path = tmp_path / "measured" / "speeds.json"
    assert write_once(path, lambda: b"first") == write_once(path, lambda: b"second") == b"first"
    replace_atomically(path, b"third")
    assert write_once(path, lambda: b"fourth") == b"third"


KILLED = """
import os, sys
from pathlib import Path
from graphmill.assets.storage.system.filesystem import replace_atomically, write_once
os.replace = os.link = lambda *_: os._exit(9)
{work}
"""


@pytest.mark.parametrize(
    "work", ["replace_atomically(Path(sys.argv[1]), b'1')", "write_once(Path(sys.argv[1]), lambda: b'1')"]
)
def test_what_a_killed_process_wrote_goes_with_the_next_write(tmp_path, work):
    path = tmp_path / "measured" / "speeds.json"
    done = subprocess.run([sys.executable, "-c", KILLED.format(work=work), str(path)], check=False)
    assert done.returncode == 9
    (left,) = path.parent.iterdir()
    living = path.with_name(f"speeds.json.{'a' * 32}.tmp")
    lock = take_lock(living, create=True)
    other = path.with_name("memory.json.backup.tmp")  # not ours
    other.touch()
    replace_atomically(path, b"2")
    assert path.read_bytes() == b"2" and not left.exists() and living.exists() and other.exists()
    os.close(lock)
