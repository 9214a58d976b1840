"""The exchange of rows: any requests get their rows by two calls, heads and sizes included; what a call costs is modelled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks import group
from graphmill.trainers.ranks.group import ALONE, LinkModel, joined
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.distributed.exchange import Exchange, make_request
from tests.trainers.ranks.threads import run_threads


@st.composite
def cases(draw):
    """World, rows of each rank, and for some turns what each rank wants: (owner, row) pairs."""
    world, width = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(["float32", "float16", "uint16", "int8"]))
    sizes = draw(st.lists(st.integers(1, 6), min_size=world, max_size=world))
    turns = draw(st.integers(1, 3))
    others = [
        [(owner, row) for owner in range(world) if owner != rank for row in range(sizes[owner])]
        for rank in range(world)
    ]
    wanted = [
        [draw(st.lists(st.sampled_from(others[rank]), unique=True, max_size=6)) if others[rank] else [] for rank in range(world)]
        for _ in range(turns)
    ]  # fmt: skip
    return world, width, dtype, sizes, wanted


@given(cases())
@settings(max_examples=40, deadline=None)
def test_every_request_gets_its_rows(case):
    world, width, dtype, sizes, wanted = case
    rows = [(np.arange(size * width).reshape(size, width) + 40 * rank).astype(dtype) for rank, size in enumerate(sizes)]

    def work(ranks):
        lane, ledger = ranks.lane(), Ledger()
        exchange = Exchange(
            lane, lambda numbers, out, _: np.take(rows[ranks.rank], numbers, axis=0, out=out), width, dtype
        )
        requests = [
            make_request(
                np.array([owner for owner, _ in turn[ranks.rank]], np.int64),
                np.array([row for _, row in turn[ranks.rank]], np.int32),
                np.arange(len(turn[ranks.rank])), world,
            )
            for turn in wanted
        ]  # fmt: skip
        for number, request in enumerate(requests):
            following = requests[number + 1].counts if number + 1 < len(requests) else None
            buffer, places = exchange.fetch(request, following, ledger)
            out = np.empty((len(request.rows), width), dtype)
            out[request.places] = buffer[places]
            for got, (owner, row) in zip(out, wanted[number][ranks.rank], strict=True):
                assert got.tobytes() == rows[owner][row].tobytes()
        return lane.rounds, lane.messages, ledger.rows()

    row_bytes = width * np.dtype(dtype).itemsize
    for rank, (rounds, messages, ledger) in enumerate(run_threads(world, work)):
        assert rounds == (2 * len(wanted) if world > 1 else 0)
        # One message to each rank whose rows are wanted, and one reply, with the next sizes, to each other rank.
        assert messages == sum(len({owner for owner, _ in turn[rank]}) + world - 1 for turn in wanted)
        counts = {row["name"]: row["n"] for row in ledger["counts"]}
        assert counts == ({"rounds": rounds, "size_rounds": 1} if world > 1 else {})
        moved = sum(row["moved_bytes"] for row in ledger["moves"] if row["kind"] == "feature")
        assert moved == row_bytes * sum(len(turn[rank]) for turn in wanted)


def test_a_call_costs_latency_and_bytes():
    assert LinkModel().seconds(10**9) == 0.0
    assert LinkModel(latency_seconds=0.5, gbps=2.0).seconds(4 * 10**9) == 2.5


def test_one_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as ranks:
        assert (ranks.rank, ranks.world, ranks.first) == (0, 1, True)
    assert ALONE.tell({"a": 1}) == {"a": 1} and ALONE.main.most(3) == 3
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InputError, match="MASTER_ADDR"), joined():
        pass


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [0, 1, 7, 12, 100])
def test_what_the_first_rank_tells_arrives_in_pieces(monkeypatch, world, size):
    monkeypatch.setattr(group, "PIECE_BYTES", 12)
    told = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8).tobytes()

    def work(ranks):
        own = told if ranks.first else b"what others give does not matter"
        return ranks.tell_bytes(own, own), ranks.tell({"rank": ranks.rank}), ranks.main.received_bytes

    for rank, (found, value, counted) in enumerate(run_threads(world, work)):
        assert found == [told, told] and value == {"rank": 0}, rank
        assert counted == 0  # not an exchange of rows
