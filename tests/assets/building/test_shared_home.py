"""Two machines that share a home share the parts of a fan-out stage by their claims.

A machine is a process here with a mount namespace and process ids of its own, and with the home mounted at a place of its own, as two
machines see a volume. The kernel's locks are those of the file, whatever its path. Without the right to make namespaces, that form is
skipped; two homes whose store is one folder are always tried.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.storage.store import Store
from tests.assets.building.parted_stage import PARTED, Execution, Semantic
from tests.assets.building.test_parts import ROOT, digests, parts_of, until

NUM_PARTS = 6
BUILD = f"""
import os, sys
from pathlib import Path
from graphmill.assets.building.materialize import materialize
from graphmill.assets.storage.store import Store
from tests.assets.building.parted_stage import PARTED, Execution, Semantic
execution = Execution(trouble=(sys.argv[2], "wait"))
made = materialize(Store(Path(sys.argv[1])), PARTED, Semantic(parts={NUM_PARTS}), execution, {{}})
print(os.getpid(), made.reused, made.verify())
"""
NAMESPACES = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
MOUNTED = 'mount --bind "$0" "$1" && exec "$2" -c "$3" "$1" "$4"'


def may_make_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


def machine_of_its_own(home: Path, name: str, hangs_at: str) -> subprocess.Popen[str]:
    """Builds in namespaces of its own, with the home mounted elsewhere."""
    place = home.parent / f"mounted-{name}"
    place.mkdir()
    return start([*NAMESPACES, "sh", "-c", MOUNTED, str(home), str(place), sys.executable, BUILD, hangs_at])


def home_of_its_own(home: Path, name: str, hangs_at: str) -> subprocess.Popen[str]:
    """Builds in a home of its own whose store is that of the first."""
    other = home.parent / f"home-{name}"
    other.mkdir()
    (other / "store").symlink_to(home / "store")
    return start([sys.executable, "-c", BUILD, str(other), hangs_at])


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("begin", [machine_of_its_own, home_of_its_own])
def test_machines_that_share_a_store_build_different_parts(tmp_path, begin):
    """One hangs in p4; the other builds what is left, waits for p4, and takes it over when the first machine is gone."""
    if begin is machine_of_its_own and not may_make_namespaces():
        pytest.skip("this user may not make namespaces: the form with two homes over one store was tried alone")
    store = Store(tmp_path / "home")
    (store.home / "store").mkdir(parents=True)
    first = begin(store.home, "first", "p4")
    second = None
    try:
        until(lambda: len(parts_of(store)) == 4 and any((store.root / ".claims").iterdir()))
        built_by_first = parts_of(store)
        second = begin(store.home, "second", "")
        until(lambda: len(parts_of(store)) == 5)
        assert built_by_first < parts_of(store) and first.poll() is None and second.poll() is None
        os.kill(first.pid, signal.SIGKILL)
        out, err = second.communicate(timeout=60)
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.communicate()
    assert second.returncode == 0, err
    assert out.split()[1:3] == ["False", "[]"] and len(parts_of(store)) == NUM_PARTS
    # The same bytes as one process makes alone, and nothing of the dead machine is left.
    alone = materialize(Store(tmp_path / "alone"), PARTED, Semantic(parts=NUM_PARTS), Execution(), {})
    (shared,) = [each for each in store.artifacts() if each.stage == "parted"]
    assert digests(shared) == digests(alone)
    store.sweep()
    assert os.listdir(store.root / ".staging") == [] and os.listdir(store.root / ".claims") == []
