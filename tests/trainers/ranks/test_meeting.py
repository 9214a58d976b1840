"""Ranks meet: who works is waited for, who stands still is named."""

import itertools
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.ranks import meeting
from graphmill.trainers.ranks.launch import LISTENER, RankError, run_ranks
from graphmill.trainers.ranks.meeting import LateRank, Meeting


@pytest.fixture
def store():
    """A store of this process."""
    return dist.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)


def works(store, turns, seconds, then_arrives=True):
    """Tells signs of work as rank 1 does, in a thread."""

    def tell():
        for turn in range(turns):
            store.set("graphmill/working/1", f"{turn} 0")
            time.sleep(seconds)
        if then_arrives:
            store.set("graphmill/arrived/1", "1")

    thread = threading.Thread(target=tell)
    thread.start()
    return thread


def test_a_rank_that_works_is_waited_for(store):
    """Its signs come for four times as long as one that stands still is waited for."""
    thread, own = works(store, 40, 0.1), Meeting(store, 0, 2, silence=1.0, beat=0.05)
    own.wait()
    assert store.check(["graphmill/arrived/0"]) and not thread.join()
    own.close()


def test_a_machine_that_stood_still_blames_nobody(store, monkeypatch):
    """The clock leaps by ten minutes between two looks, and no sign came meanwhile."""
    thread, own = works(store, 5, 0.1), Meeting(store, 0, 2, silence=2.0, beat=0.05)
    leaps = itertools.chain([0.0, 0.0, 0.0, 600.0], itertools.repeat(600.0))
    leaping = SimpleNamespace(**vars(time) | {"monotonic": lambda: time.monotonic() + next(leaps)})
    monkeypatch.setattr(meeting, "time", leaping)
    own.wait()
    thread.join()
    monkeypatch.undo()
    own.close()


@pytest.mark.parametrize(
    ("turns", "words"), [(0, "gave no sign for 0.5 s"), (3, "used no CPU time and read nothing for 0.5 s")]
)
def test_a_rank_that_stands_still_is_named(store, turns, words):
    thread, own = works(store, turns, 0.05, then_arrives=False), Meeting(store, 0, 2, silence=0.5, beat=0.05)
    with pytest.raises(LateRank, match=f"rank 1 of 2 {words} before the training began"):
        own.wait()
    thread.join()
    own.close()


def test_signs_are_of_work_and_not_of_the_thread_that_tells_them(store, monkeypatch):
    told = []
    monkeypatch.setattr(store.__class__, "set", lambda self, key, value: told.append((key, value)))
    own = Meeting(store, 1, 2, beat=0.001)
    time.sleep(0.3)
    asleep = len(told)
    limit = time.process_time() + 20 * meeting.CPU_STEP
    while time.process_time() < limit:
        pass
    own.close()
    assert {key for key, _ in told} == {"graphmill/working/1"}
    assert asleep <= 2 and len(told) >= 10


def test_a_store_that_nobody_opens_is_waited_for_in_vain(monkeypatch):
    """A socket that takes connections and answers none, as the launcher's does until the first rank is there."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", listener.getsockname()[1]), (LISTENER, "")):
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(meeting, "SILENCE_SECONDS", 0.5)
        with pytest.raises(LateRank, match=r"rank 0 of 2 gave no sign for 0.5 s"):
            meeting.open_store(1, 2)


RANK = """
import json, os, sys, time
order = json.load(sys.stdin)
def stand_still(where):
    if order["fault"] == where and order["rank"] == int(os.environ["RANK"]):
        time.sleep(3600)
stand_still("before it says anything")
from graphmill.trainers.ranks.group import PeerError, coming, joined
try:
    with coming() as met:
        stand_still("on its way")
        with joined(10, met) as ranks:
            assert ranks.main.gather_values(ranks.rank) == [0, 1]
except PeerError as error:
    print(error, file=sys.stderr, flush=True)
    os._exit(75)
"""


@pytest.mark.slow("real ranks of which one stands still before they meet")
@pytest.mark.parametrize("fault", ["nowhere", "before it says anything", "on its way"])
@pytest.mark.parametrize("rank", [0, 1])
def test_real_ranks_do_not_wait_for_one_that_stands_still(capfd, monkeypatch, fault, rank):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command, order = [sys.executable, "-c", RANK], {"fault": fault, "rank": rank}
    if fault == "nowhere":
        run_ranks(command, order, 2)
        return
    with pytest.raises(RankError, match=f"rank {rank} of 2 did not answer"):
        run_ranks(command, order, 2)
    what = "gave no sign" if fault.startswith("before") else "used no CPU time and read nothing"
    assert f"rank {rank} of 2 {what} for 40 s before the training began" in capfd.readouterr().err
