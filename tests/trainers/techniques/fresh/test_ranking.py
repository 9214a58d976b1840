"""How an arena is shared: shares of time against a simulated embedding, and a cut that no exchange betters."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.trainers.techniques.fresh import expected
from graphmill.trainers.techniques.fresh.ranking import BatchVisits, share_arena, share_of_time


@pytest.mark.parametrize("rate", [0.003, 0.05, 0.4])
@pytest.mark.parametrize("p_grad", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("batches", [7, 60, None])
def test_an_embedding_is_held_for_the_share_that_is_said(rate: float, p_grad: float, batches: int | None) -> None:
    """Batch by batch: visited at random, admitted if stable, gone if unstable or too old."""
    rng, steps = np.random.default_rng(5), 200_000
    visited, stable = rng.random(steps) < rate, rng.random(steps) < p_grad
    born, held = -1, 0
    for now in range(steps):
        if born >= 0 and batches is not None and now - born > batches:
            born = -1
        held += born >= 0
        if visited[now]:
            born = (born if born >= 0 else now) if stable[now] else -1
    expected = float(share_of_time(np.array([rate]), p_grad, batches)[0])
    assert held / steps == pytest.approx(expected, rel=0.15, abs=0.01)


def test_the_share_of_time_of_all_nodes_is_found_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = np.random.default_rng(1).integers(0, 30, 1000)
    whole = share_of_time(visits / 30, 0.9, 60)
    monkeypatch.setattr(expected, "SCORED_AT_ONCE", 300)
    held = expected._held(visits, 30, 0.9, 60)
    assert held.dtype == np.float32 and np.array_equal(held, whole.astype(np.float32))


def test_the_history_of_a_training_is_expected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(expected, "_expected", lambda case: asked.append(case) or len(asked))
    case: Any = SimpleNamespace(shared={})
    assert [expected.expected_history(case) for _ in range(2)] == [1, 1] and len(asked) == 1


def counted(seed: int, nodes: int) -> BatchVisits:
    rng = np.random.default_rng(seed)
    visits = rng.integers(0, 30, (2, nodes))
    return BatchVisits(
        num_batches=30,
        visits=rng.integers(0, 31, nodes).astype(np.float64),
        layer_visits=visits,
        layer_inputs=visits * rng.integers(1, 20, (2, nodes)),
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 99),
    nodes=st.integers(1, 40),
    size=st.integers(0, 4000),
    p_grad=st.sampled_from([0.0, 0.9, 1.0]),
    batches=st.sampled_from([0, 5, None]),
)
def test_what_is_taken_fits_and_saves_at_least_as_much_per_byte_as_what_is_not(seed, nodes, size, p_grad, batches):
    found = counted(seed, nodes)
    share = share_arena(found, p_grad, batches, 32, 48, size)
    assert share.score.shape == (2, nodes) and share.score.dtype == np.float32
    entering = share.score >= share.least
    held = share_of_time(found.layer_visits / 30, p_grad, batches)
    # Of rows with equal scores at the bound, the slots decide who gets in.
    above = share.score > share.least
    assert (held[above] * 32).sum() <= size + 1e-6 or share.max_slots == 0
    assert share.max_slots * 32 <= size
    assert share.max_slots >= min(held[above].sum() - 1e-6, size // 32)
    if p_grad == 0 or batches == 0:  # nothing is held, so nothing costs a byte
        assert share.max_slots == 0
    if entering.any() and share.max_slots:
        left = max(0, size - int((held[entering] * 32).sum())) // 48
        features = np.sort(found.visits)[::-1]
        # The coldest feature row that still has space saves no less per byte than the best embedding that does not enter.
        outside = share.score[~entering].max(initial=0)
        if left and left < nodes:
            assert features[left - 1] / 30 / 48 >= outside / 32 - 1e-9 or features[left - 1] == features[left]


def test_embeddings_that_save_nothing_leave_the_arena_to_features() -> None:
    nothing = BatchVisits(
        num_batches=10, visits=np.full(5, 3.0), layer_visits=np.zeros((1, 5)), layer_inputs=np.zeros((1, 5))
    )
    share = share_arena(nothing, 0.9, 4, 32, 48, 10_000)
    assert share.max_slots == 0 and share.least == float("inf")
