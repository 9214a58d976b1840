import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.storage.local.leases import Leases
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage

ONE, TWO = ("toy", "1" * 64), ("toy", "2" * 64)
HOLDER = """
import os, sys, time
from pathlib import Path
from graphmill.assets.storage.local.leases import Leases
with Leases(Path(sys.argv[1])).hold(("toy", "1" * 64)):
    child = os.fork() if sys.argv[2] == "fork" else 0
    if child or sys.argv[2] != "fork":
        print(child, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def leases(tmp_path):
    return Leases(tmp_path)


def start_holder(home, how):
    command = [sys.executable, "-c", HOLDER, str(home), how]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


def test_a_lease_is_shared_and_ends_with_its_block(leases):
    with leases.hold(ONE, TWO):
        with leases.hold(ONE), leases.alone(ONE) as alone:
            assert not alone
        assert leases.held() == {ONE, TWO}
        with leases.alone(TWO) as alone:
            assert not alone
    assert leases.held() == set() and os.listdir(leases.folder) == []
    with leases.alone(ONE) as alone:
        assert alone
    assert os.listdir(leases.folder) == []


def test_a_lease_waits_for_who_is_alone(leases):
    events = []

    def job():
        with leases.hold(ONE):
            events.append("leased")

    with leases.alone(ONE) as alone:
        assert alone
        waiter = threading.Thread(target=job)
        waiter.start()
        time.sleep(0.1)
        events.append("done alone")
    waiter.join()
    assert events == ["done alone", "leased"] and os.listdir(leases.folder) == []


def test_a_killed_process_holds_nothing(leases, tmp_path):
    holder, _ = start_holder(tmp_path, "plain")
    try:
        assert leases.held() == {ONE}
    finally:
        holder.kill()
        holder.wait()
    assert os.listdir(leases.folder) != []
    assert leases.held() == set() and os.listdir(leases.folder) == []


def test_a_forked_child_does_not_keep_the_lease_of_its_dead_parent(leases, tmp_path):
    holder, child = start_holder(tmp_path, "fork")
    try:
        assert leases.held() == {ONE}
        holder.kill()
        holder.wait()
        # The child lives on, and drops its copy as soon as it is scheduled.
        waited = time.monotonic() + 120
        while leases.held() and time.monotonic() < waited:
            time.sleep(0.01)
        os.kill(child, 0)
        assert leases.held() == set()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_that_leaves_the_block_frees_nothing(leases):
    with leases.hold(ONE):
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert leases.held() == {ONE}
    if child == 0:
        os._exit(0)
    assert leases.held() == set()


def test_many_threads_that_lease_and_collect_never_meet(leases):
    inside, broken, stop = [0], [], time.monotonic() + 1.0
    guard = threading.Lock()

    def job():
        while time.monotonic() < stop:
            with leases.hold(ONE):
                with guard:
                    inside[0] += 1
                if removing[0]:
                    broken.append("a job while something is removed")
                with guard:
                    inside[0] -= 1

    def collector():
        while time.monotonic() < stop:
            with leases.alone(ONE) as alone:
                if alone:
                    removing[0] = True
                    if inside[0]:
                        broken.append("a removal while a job runs")
                    removing[0] = False

    removing = [False]
    threads = [threading.Thread(target=each) for each in (job, job, job, collector)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broken == [] and leases.held() == set()


class Reader(ToyStage):
    """A stage that reads a toy."""

    name = "reader"

    def __init__(self, during=lambda: None):
        super().__init__()
        self.during = during

    def inputs(self, semantic):
        return {"toy": "toy"}

    def build(self, building):
        self.during()
        assert building.inputs["toy"].array("features").shape == (5, 3)
        return super().build(building)


def test_building_leases_inputs_and_output(tmp_path):
    store, seen = Store(tmp_path), []
    toy = materialize(store, ToyStage(), Semantic(), Execution(), {})
    assert store.leases.held() == set()

    def during():
        seen.append(store.leases.held())
        assert not store.discard("toy", toy.version)

    made = materialize(store, Reader(during), Semantic(), Execution(), {"toy": toy})
    assert seen == [{("toy", toy.version), ("reader", made.version)}]
    assert store.leases.held() == set() and store.discard("toy", toy.version) and store.find("toy", toy.version) is None


def test_a_build_that_fails_lets_go(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(InputError, match="failed 1 check"):
        materialize(store, ToyStage(), Semantic(passes=False), Execution(), {})
    assert store.leases.held() == set() and os.listdir(store.leases.folder) == []


def test_an_input_that_was_collected_before_it_was_leased_is_named(tmp_path):
    store = Store(tmp_path)
    toy = materialize(store, ToyStage(), Semantic(), Execution(), {})
    store.discard("toy", toy.version)
    with pytest.raises(InputError, match=f"reader was to read toy {toy.label}, which was removed.*\n  remedy: run the"):
        materialize(store, Reader(), Semantic(), Execution(), {"toy": toy})
    assert [path.parent.name for path in store.folders()] == []


def test_finding_an_artifact_leaves_no_lease_file(tmp_path):
    store = Store(tmp_path)
    materialize(store, ToyStage(), Semantic(), Execution(), {})
    (tmp_path / "leases").rmdir()
    assert materialize(store, ToyStage(), Semantic(), Execution(), {}).reused and not (tmp_path / "leases").exists()
