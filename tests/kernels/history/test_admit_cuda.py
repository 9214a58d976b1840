"""Histories on the shim and on a device, beside one on the CPU: the same rows in the same slots, step after step."""

from fractions import Fraction

import numpy as np
import pytest

from graphmill.kernels.history.arena import FeatureSide, History, LayerRows
from tests.kernels.layers.on_device import received

NODES = 30


def opened(size, device=None, **options):
    memory = np.zeros(size, np.uint8)
    memory = memory if device is None else device.upload(memory)
    given = {"num_layers": 2, "num_nodes": NODES, "width": 3, "dtype": np.float32, "t_stale": 4, "p_grad": "0.8"}
    features = FeatureSide(np.random.default_rng(1).permutation(NODES)[:9], 2)
    return History(memory=memory, features=features, device=device, **(given | options))


def drawn_lists(history, now, batches, rng, ids, first=0):
    """Lists of one step, with rows that nobody else has."""
    lists = []
    for _ in range(batches):
        for layer in range(1, history.num_layers + 1):
            nodes = rng.permutation(NODES)[: rng.integers(0, 14)].astype(ids)
            cached = np.flatnonzero(history.lookup(layer, nodes, now) >= 0).astype(np.int32)
            rows = rng.random((len(nodes), history.width)).astype(history.dtype)
            norms = rng.choice([0, 0.25, 1, np.inf, np.nan], len(nodes)).astype(np.float32)
            saved = rng.integers(0, 3, len(nodes)).astype(np.float32)
            lists.append(LayerRows(layer=layer, ids=nodes, rows=rows, norms=norms, cached=cached if len(cached) else None,
                                   saved=saved if now % 3 else None))  # fmt: skip
    return lists


def sent_lists(device, lists):
    def sent(array):
        return None if array is None else device.upload(array)

    return [
        LayerRows(
            layer=given.layer, ids=sent(given.ids), rows=sent(given.rows), norms=sent(given.norms),
            cached=sent(given.cached), saved=sent(given.saved),
        )
        for given in lists
    ]  # fmt: skip


def assert_same(device, there, here):
    for name in ("slot_of", "owner", "born"):
        np.testing.assert_array_equal(received(device, getattr(there.index, name)), getattr(here.index, name), name)
    np.testing.assert_array_equal(received(device, there.memory), here.memory)
    assert there.first_feature == here.first_feature and there.held(99) == here.held(99)
    nodes = np.arange(NODES)
    places = there.lookup_features(device.upload(nodes))
    np.testing.assert_array_equal(received(device, places), here.lookup_features(nodes))
    found = there.features_here(nodes, received(device, there.ring))
    np.testing.assert_array_equal(found, here.lookup_features(nodes))


@pytest.mark.parametrize(
    ("slots", "batches", "options"),
    [
        (40, 1, {}),
        (7, 2, {"dtype": np.float64}),
        (5, 3, {"p_grad": 1, "least": 1.0}),
        (1, 2, {"t_stale": 1}),
        (12, 1, {"reuse": True}),
        (6, 2, {"reuse": True, "t_stale": 2, "p_grad": Fraction(3, 4)}),
        (0, 1, {"reuse": True}),
        (0, 1, {}),
        (9, 1, {"p_grad": 0}),
        (20, 2, {"num_layers": 3, "p_grad": Fraction(1, 2), "max_slots": 6}),
    ],
)
def test_a_history_is_kept_as_on_the_cpu(machine, slots, batches, options):
    ids = np.int64 if slots % 2 else np.int32
    device, rng = machine.device(), np.random.default_rng(slots)
    size = slots * 3 * np.dtype(options.get("dtype", np.float32)).itemsize + 5
    here, there = opened(size, **options), opened(size, device, **options)
    for now in range(1, 9):
        lists = drawn_lists(here, now, batches, rng, ids)
        for given in lists:
            asked = device.upload(given.ids)
            found = there.lookup(given.layer, asked, now)
            np.testing.assert_array_equal(received(device, found), here.lookup(given.layer, given.ids, now))
        expected, found = here.update(now, lists), there.update(now, sent_lists(device, lists))
        targets = received(device, found.targets)
        np.testing.assert_array_equal(received(device, found.counts), expected.counts)
        np.testing.assert_array_equal(np.flatnonzero(targets >= 0), expected.entries)
        np.testing.assert_array_equal(targets[targets >= 0], expected.slots)
        assert_same(device, there, here)
    resumed = opened(size, device, **options)
    state = there.state()
    for name, array in here.state().items():
        np.testing.assert_array_equal(state[name], array)
    resumed.features[...] = there.features
    resumed.restore(state)
    lists = drawn_lists(here, 9, batches, rng, ids)
    here.update(9, lists)
    resumed.update(9, sent_lists(device, lists))
    for name in ("slot_of", "owner", "born"):
        np.testing.assert_array_equal(received(device, getattr(resumed.index, name)), getattr(here.index, name), name)


def test_a_step_without_entries_does_nothing(machine):
    device = machine.device()
    history = opened(60, device)
    done = history.update(1, [])
    assert len(done.targets) == 0 and received(device, done.counts).tolist() == [0] * 5
