"""What a launcher makes of supervisors that answer late or not at all, without a cluster."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from graphmill.assets.building.child import ERR
from graphmill.trainers.ranks.cluster import cluster_rank
from graphmill.trainers.ranks.cluster.cluster_rank import (
    END,
    HeadLostError,
    Pulse,
    Supervisor,
    interface_of,
    supervised,
)


def cluster(nodes=lambda: []) -> Any:
    """A cluster whose module `ray` has nothing: who asks it for something fails."""
    return SimpleNamespace(nodes=nodes, lost=False, ray=None, address=SimpleNamespace(text="h:1"))


def test_events_are_handed_on_again_until_they_are_known_to_have_arrived():
    supervisor = Supervisor("/home", "")
    supervisor._push(ERR, "one")
    supervisor._push(ERR, "two")
    assert supervisor.events(0, 0.0) == supervisor.events(0, 0.0) == [(ERR, "one"), (ERR, "two")]
    supervisor._push(END, [0, "", ""])
    assert supervisor.events(1, 0.0) == [(ERR, "two"), (END, [0, "", ""])]
    assert supervisor.events(3, 0.0) == []


def test_a_connection_that_is_given_up_is_a_lost_head_and_ray_is_asked_for_nothing_more():
    there = cluster()
    with pytest.raises(HeadLostError, match="h:1 does not answer any more"), supervised(there, [SimpleNamespace()]):
        raise ConnectionError("the client is shutting down")
    assert there.lost
    with pytest.raises(BrokenPipeError), supervised(there, []):
        raise BrokenPipeError  # of this process's own output


def test_a_head_that_does_not_answer_is_lost_after_a_while_and_one_that_answers_is_not(monkeypatch):
    monkeypatch.setattr(cluster_rank, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(cluster_rank, "LOOK_SECONDS", 0.05)
    answers = [["first"], ["second"], ["third"]]
    pulse = Pulse(there := cluster(lambda: answers.pop(0)))
    began = time.monotonic()
    with pytest.raises(HeadLostError):
        while time.monotonic() < began + 60:
            pulse.check()
            time.sleep(0.01)
    assert there.lost and answers == [] and pulse.nodes == ["third"]


def test_the_interface_of_an_address_is_found():
    assert interface_of("127.0.0.1") == "lo" and interface_of("192.0.2.200") == ""
