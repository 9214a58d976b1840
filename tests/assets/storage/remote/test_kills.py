"""SIGKILL in the middle of an upload and of a fetch leaves neither place with half an artifact."""

import os
import signal
import subprocess
import sys

import pytest

from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.remote.leases import FOLDER
from graphmill.assets.storage.remote.objects import require_objects
from tests.assets.storage.remote.test_copies import publish, version
from tests.assets.storage.tiny_artifacts import present

CHILD = """
import os, signal, sys
from graphmill.assets.storage.remote.objects import Objects
from graphmill.assets.storage.store import Store
from tests.assets.storage.remote.test_copies import publish, version

home, name, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
whole = getattr(Objects, name)

def kill(self, *given):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return whole(self, *given)

setattr(Objects, name, kill)
store = Store(home)
publish(store) if name in ("send", "create") else store.open("toy", version(0)).here()
"""


def killed(home, name, left):
    command = [sys.executable, "-c", CHILD, str(home), name, str(left)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize(("name", "left"), [("send", 2), ("create", 0)])
def test_a_killed_upload(stores, name, left):
    one, other = stores
    killed(one.home, name, left)
    assert len(present(one)) == 1 and other.find("toy", version(0)) is None
    assert len(require_objects().listed(FOLDER)) == 1, "its lease expires"
    made = publish(other)
    assert not made.reused, "nothing of the killed one counts"
    one.open("toy", version(0)).shared()
    assert one.open("toy", version(0)).verify() == []


def test_a_killed_fetch(stores):
    one, other = stores
    made = publish(one)
    killed(other.home, "read_range", 3)  # entry twice and digests are read first
    assert present(other) == set() and len(list((other.root / ".staging").iterdir())) > 0
    assert other.open("toy", version(0)).array("values")[1] == 1
    assert other.open("toy", version(0)).content == made.content
    assert list((other.root / ".staging").iterdir()) == [], "what the killed one left is swept"
