"""Answers of generated users are those of their last five events, and later events tell them."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.graph.times import LATER
from graphmill.assets.sources.generated.events import EventsConfig, answers, draw_events
from tests.assets.sources.own_data import build

KEYS = {"nodes": 500, "edges": 12_000, "features": 8, "classes": 4}


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_the_last_five_events(seed: int) -> None:
    rng = np.random.default_rng(seed)
    user, taste, asked = rng.integers(0, 30, 200), rng.integers(0, 4, 200), rng.integers(0, 200, 30)
    for number, found in enumerate(answers(user, taste, asked, 4).tolist()):
        before = [taste[event] for event in range(asked[number]) if user[event] == number][-5:]
        assert found == np.bincount(before, minlength=4).argmax()


def test_later_events_tell_the_answer_and_earlier_ones_do_not() -> None:
    config = EventsConfig(seed=3, **KEYS)
    found = draw_events(config, 2)
    taste = (found.item - (config.nodes - config.num_items)) % config.classes
    same, later = taste == found.answer[found.user], np.arange(config.edges) >= found.asked[found.user]
    assert abs(same[later].mean() - (0.9 + 0.1 / 4)) < 0.02
    assert same[~later].mean() < 0.35
    told = answers(found.user, taste, found.asked.astype(int), 4) == found.answer
    assert abs(told.mean() - config.best_accuracy) < 0.04


@pytest.mark.parametrize("times", [False, True])
def test_the_graph_says_that_a_score_may_be_a_leak(tmp_path: Path, times: bool) -> None:
    built = build(tmp_path / "home", "events", seed=3, times=times, **KEYS)
    checks = {each["name"]: each for each in built.graph.summary["checks"]}
    assert (LATER in checks) != times
    if not times:
        assert not checks[LATER]["passed"] and 'a leak; set before = "seed"' in checks[LATER]["detail"]
        assert built.opened.node_times is None and built.opened.topology.edge_times is None
    assert built.numbers["best_accuracy"] == pytest.approx(0.85)


def test_no_byte_depends_on_threads() -> None:
    one, two = (draw_events(EventsConfig(seed=1, **KEYS), threads) for threads in (1, 2))
    for name in vars(one):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
