"""Real ranks exchange in rounds the bytes of an exchange at once; a rank that is gone ends the others, with the call that they were in."""

import sys

import pytest

from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.ranks.launch import RankError, run_ranks

RANK = """
import json, os, sys, time
import numpy as np
from graphmill.trainers.ranks.group import PeerError, joined
from graphmill.trainers.ranks.rounds import LinkModel
from graphmill.trainers.ranks.links import parse_links
from graphmill.trainers.ranks.rounds import make_rounds

order, links = json.load(sys.stdin), parse_links("0 1 | 2 3 @ 32GB/s | 16GB/s")
with joined(order["timeout"]) as ranks:
    plain, traded = ranks.lane(), ranks.lane(LinkModel(links=links.between(range(ranks.world))))
    traded.order = make_rounds(links.between(range(ranks.world)))
    if order["fault"] and ranks.rank == ranks.world - 1:
        time.sleep(60 if order["fault"] == "hang" else 0)
        os._exit(9)
    draw = np.random.default_rng(ranks.rank)
    for turn in range(3):
        sizes = np.random.default_rng(turn).integers(0, 3, (ranks.world, ranks.world)) * 1000 * (1 - np.eye(ranks.world, dtype=int))
        to, come = sizes[ranks.rank].tolist(), sizes[:, ranks.rank].tolist()
        sent = draw.integers(0, 256, sum(to)).astype(np.uint8)
        try:
            found = [lane.all_to_all(sent, to, come) for lane in (traded, plain)][::-1]
        except PeerError as error:
            print(error, flush=True)
            os._exit(75)
        assert found[0].tobytes() == found[1].tobytes() and len(found[0]) == sum(come)
    assert (plain.rounds, plain.received_bytes) == (traded.rounds, traded.received_bytes)
    traded.order = None  # all at once, as long as over the links
    assert traded.all_to_all(sent, to, come).tobytes() == found[0].tobytes()
    print("equal", traded.rounds, flush=True)
"""


def test_bytes_are_those_of_an_exchange_at_once(capfd, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    run_ranks([sys.executable, "-c", RANK], {"timeout": 30, "fault": ""}, 3)
    assert sorted(line.rpartition("] ")[2] for line in capfd.readouterr().out.splitlines()) == ["equal 4"] * 3


@pytest.mark.slow("a rank that dies or hangs among real ones that exchange in rounds")
@pytest.mark.parametrize(
    ("fault", "words"), [("exit", "rank 2 of 3 ended with exit code 9"), ("hang", "rank 2 of 3 did not answer")]
)
def test_a_rank_that_is_gone_is_named(capfd, monkeypatch, fault, words):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(RankError, match=words):
        run_ranks([sys.executable, "-c", RANK], {"timeout": 6, "fault": fault}, 3)
    assert "this one was in a round of an exchange" in capfd.readouterr().out
