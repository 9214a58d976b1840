"""Training whose rows are exchanged in rounds: weights and ledger are those of an exchange at once, to the bit; the modelled network."""

import json
from typing import Any

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks import measured_links as timing
from graphmill.trainers.ranks.links import parse_links
from graphmill.trainers.ranks.measured_links import links_of_times
from graphmill.trainers.ranks.rounds import LinkModel, ends_at_once, make_rounds
from graphmill.trainers.techniques.distributed.open_parts import open_lane
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from tests.trainers.ranks.threads import run_threads
from tests.trainers.techniques.distributed.test_distributed import bits, ledger, trained

FIGURE_9C = "0 1 | 2 3 @ 32GB/s | 16GB/s"
CONGESTED = f"{FIGURE_9C}; efficiency 1 0.6 0.5 0.4"
IN_ROUNDS = {"exchange": "rounds", "links": FIGURE_9C}


def exchange_record(model: Any) -> dict[str, Any]:
    return model.run_record().get("executors") or {}


@pytest.mark.parametrize(
    ("world", "rounds", "scheme", "more"),
    [
        (2, 1, "hybrid", {}),
        (4, 4, "hybrid", {}),
        pytest.param(2, 1, "hybrid", {"fresh": {}}, marks=pytest.mark.slow("histories by part in one round")),
        (4, 4, "hybrid", {"fresh": {}}),
        pytest.param(4, 4, "vanilla", {}, marks=pytest.mark.slow("the baseline's exchanges in rounds")),
    ],
)
def test_weights_and_ledger_are_those_of_an_exchange_at_once(tmp_path, world, rounds, scheme, more):
    options = {"epochs": 1, **more}
    plain, _ = trained(tmp_path, 4, world, settings={"scheme": scheme}, **options)
    expected = (bits(plain), ledger(plain), plain.version)
    assert exchange_record(plain) == {} and expected[1][0]["rounds", 0] > 0
    found, _ = trained(tmp_path, 4, world, settings={"scheme": scheme} | IN_ROUNDS, **options)
    assert exchange_record(found) == {"exchange_rounds": rounds, "fewest_rounds": True}
    assert (bits(found), ledger(found), found.version) == expected


def lanes(world, **keys):
    """The lane that each rank opens."""
    return run_threads(world, lambda ranks: open_lane(DistributedSettings(**keys), ranks))


def test_rounds_are_taken_if_they_are_faster():
    assert [lane.order for lane in lanes(4, links=FIGURE_9C)] == [None] * 4  # without congestion they are not
    congested = lanes(4, links=CONGESTED)
    assert [lane.order for lane in congested] == [make_rounds(parse_links(FIGURE_9C))] * 4
    assert lanes(4, links=CONGESTED, exchange="all_to_all", model_links=True)[0].order is None
    assert lanes(1, exchange="rounds", links=FIGURE_9C)[0].order is None
    with pytest.raises(InputError, match="has 4 devices, and 5 are needed"):
        lanes(5, exchange="rounds", links=FIGURE_9C)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"links": "0 1"}, "has no devices or no speed"),
        ({"exchange": "rounds"}, "exchange needs the links between the ranks"),
        ({"model_links": True}, "model_links needs the links"),
        ({"links": FIGURE_9C, "exchange": "all_to_all"}, "links has no effect"),
        ({"links": FIGURE_9C, "model_links": True, "rank_link": "1 GB/s"}, "remove rank_link"),
        ({"exchange": "peers"}, "not one of auto, all_to_all, rounds"),
    ],
)
def test_mistakes_are_told(keys, problem):
    with pytest.raises(InputError, match=problem):
        DistributedSettings(**keys)


def test_a_modelled_exchange_takes_as_long_as_its_links():
    links = parse_links(CONGESTED)
    sizes = np.full((4, 4), 10**9, np.int64)
    np.fill_diagonal(sizes, 0)
    once = LinkModel(latency_seconds=0.01, links=links)
    assert once.seconds_at_once(0, sizes) == pytest.approx(0.01 + 1 / 1.6)  # four share 0.4 of 16 GB/s
    assert once.seconds_of_round(0, {(0, 2): 10**9, (1, 0): 10**9}) == pytest.approx(0.01 + 1 / 16)
    assert LinkModel(gbps=2.0).seconds_of_round(0, {(0, 2): 10**9, (1, 0): 3 * 10**9}) == pytest.approx(1.5)


def test_links_are_measured_once(tmp_path, monkeypatch):
    """Transfers over the bridge of Figure 9c take longer together; a second training reads the file."""
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path))
    real, calls = parse_links(f"{FIGURE_9C}; efficiency 1 0.6"), []

    def seconds(ranks, transfers):
        calls.append(transfers)
        return max(ends_at_once(real, dict.fromkeys(transfers, timing.PROBE_BYTES)).values())

    monkeypatch.setattr(timing, "_seconds", seconds)
    found = run_threads(4, timing.measured_links)
    assert found[0] == found[3] and len(calls) == 4 * (12 + 12 * 11 // 2)
    assert len(make_rounds(found[0]).rounds) == 4 and found[0].efficiency == (1.0, pytest.approx(0.6))
    bridge = next(link for link, name in enumerate(found[0].names) if name == "{0>2, 0>3, 1>2, 1>3}")
    assert found[0].gbps[bridge] == pytest.approx(16) and found[0].alone_gbps((0, 1)) == pytest.approx(32)
    assert run_threads(4, timing.measured_links) == found and len(calls) == 4 * 78
    (path,) = (tmp_path / "measured").glob("ranks-4-*.json")
    path.write_text(json.dumps({"alone_gbps": [[0, 1], [1, 0]]}))
    with pytest.raises(InputError, match=r"is damaged(?s:.*)remove "):
        run_threads(4, timing.measured_links)
    with pytest.raises(InputError, match="too long for 9 ranks"):
        run_threads(9, timing.measured_links)


def test_transfers_are_timed(monkeypatch):
    monkeypatch.setattr(timing, "PROBE_BYTES", 1000)
    found = run_threads(3, timing.time_links)
    assert found[0] == found[1] == found[2]
    links = links_of_times(found[0])
    assert links.num_devices == 3 and min(links.gbps) > 0
