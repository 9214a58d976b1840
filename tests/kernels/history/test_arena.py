"""The history of embeddings against a plain dictionary: nothing too old, nothing evicted, nobody else's row, and never too many."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from graphmill.kernels.errors import InputError
from graphmill.kernels.history.arena import FOREVER, FeatureSide, History, LayerRows

NODES = 13


def feature_row(node: int, width: int) -> np.ndarray:
    return 1000 + node + np.arange(width) / 64


class HistoryMachine(RuleBasedStateMachine):
    """A history, and a dictionary {(layer, node): (row, born)} of what it may hold at most."""

    @initialize(
        slots=st.integers(0, 9),
        spare=st.integers(0, 40),
        layers=st.integers(1, 3),
        width=st.integers(1, 5),
        dtype=st.sampled_from([np.float32, np.float64]),
        t_stale=st.sampled_from([0, 1, 2, 4, FOREVER]),
        p_grad=st.sampled_from([0, 0.3, 0.9, 1]),
        feature_width=st.integers(0, 4),
        most=st.sampled_from([None, 0, 1, 4]),
        reuse=st.booleans(),
    )
    def start(self, slots, spare, layers, width, dtype, t_stale, p_grad, feature_width, most, reuse):
        size = slots * width * np.dtype(dtype).itemsize + spare
        hottest = np.random.default_rng(slots).permutation(NODES)[:8]
        features = FeatureSide(hottest, feature_width) if feature_width else None
        self.options = {
            "num_layers": layers, "num_nodes": NODES, "width": width, "dtype": dtype, "t_stale": t_stale,
            "p_grad": p_grad, "features": features, "max_slots": most,
            "reuse": reuse,
        }  # fmt: skip
        self.history = self.opened(size)
        self.most = self.history.num_slots
        assert self.most == min(size // (width * np.dtype(dtype).itemsize), 99 if most is None else most)
        self.model, self.now, self.reached = {}, 0, set()
        self.drawn = 0

    def opened(self, size):
        history = History(memory=np.full(size, 0xA5, np.uint8), **self.options)
        for place, node in enumerate(history.feature_ids):
            history.features[place] = feature_row(node, history.features.shape[1])
        return history

    def rows_of(self, layer, nodes, cached):
        """Rows that no other step, layer or node has, or those that the history holds."""
        width, rows = self.options["width"], []
        for node, old in zip(nodes, cached, strict=True):
            self.drawn += 1
            rows.append(self.model[layer, node][0] if old else self.drawn + np.arange(width) / 8)
        return np.array(rows, self.options["dtype"]).reshape(len(nodes), width)

    @rule(data=st.data(), skip=st.integers(1, 3), batches=st.integers(1, 2))
    def step(self, data, skip, batches):
        self.now += skip
        given = []
        for _ in range(batches):
            for layer in range(1, self.options["num_layers"] + 1):
                nodes = np.array(data.draw(st.lists(st.integers(0, NODES - 1), unique=True)), np.int32)
                cached = self.history.lookup(layer, nodes, self.now) >= 0
                norms = data.draw(
                    st.lists(st.sampled_from([0, 0.5, 1, 2, np.nan, np.inf]), min_size=len(nodes), max_size=len(nodes))
                )
                saved = data.draw(st.lists(st.sampled_from([0, 1, 5]), min_size=len(nodes), max_size=len(nodes)))
                places = np.flatnonzero(cached).astype(np.int32)
                rows = self.rows_of(layer, nodes.tolist(), cached)
                given.append(LayerRows(
                    layer=layer, ids=nodes, rows=rows, norms=np.array(norms, np.float32),
                    cached=places if len(places) else None, saved=np.array(saved, np.float32),
                ))  # fmt: skip
        most = self.room()
        done = self.history.update(self.now, given)
        entered = self.follow(given, most)
        assert len(done.slots) == min(len(entered), most) == int(done.admitted.sum())
        assert done.overflow == len(entered) - len(done.slots)
        found = {key for key in entered if self.history.lookup(key[0], np.array([key[1]]), self.now + 1)[0] >= 0}
        assert len(found) == (len(done.slots) if self.options["t_stale"] else 0)

    def room(self):
        """How many may enter: as many as there are slots, or slots whose row the next step could not use."""
        if not self.options["reuse"]:
            return self.most
        used = {self.slot(*key) for key, (_, born) in self.model.items() if self.now - born < self.options["t_stale"]}
        return self.most - len(used - {-1})

    def follow(self, given, most):
        """Does to the dictionary what 4.1.1 says; returns {(layer, node): saved} of all who want to enter."""
        entered, wanted = {}, {}
        for layer in range(1, self.options["num_layers"] + 1):
            own = [part for part in given if part.layer == layer]
            entries = [(part, i) for part in own for i in range(len(part.ids))]
            order = sorted(range(len(entries)), key=lambda k: (sortable(entries[k][0].norms[entries[k][1]]), k))
            stable = set(order[: int(Fraction(str(self.options["p_grad"])) * len(entries))])
            barred = {int(entries[k][0].ids[entries[k][1]]) for k in range(len(entries)) if k not in stable}
            for node in barred:
                self.model.pop((layer, node), None)
            for k, (part, i) in enumerate(entries):
                node = int(part.ids[i])
                computed = part.cached is None or i not in part.cached
                if computed:
                    self.model.pop((layer, node), None)
                if k in stable and computed and node not in barred:
                    entered[layer, node] = (part.rows[i].copy(), self.now)
                    wanted[layer, node] = part.saved[i]
        if len(entered) <= most:
            self.model.update(entered)
        else:  # the dictionary is told who got in, and whether they save most
            inside = {key for key in entered if self.slot(*key) >= 0}
            outside = [wanted[key] for key in entered if key not in inside]
            assert len(inside) == most
            assert not inside or max(outside) <= min(wanted[key] for key in inside)
            self.model.update({key: entered[key] for key in inside})
        return entered

    def slot(self, layer, node):
        return self.history.index.slot_of[(layer - 1) * NODES + node]

    @rule()
    def resume(self):
        """A history that is restored goes on as the one that was saved."""
        state, size = self.history.state(), self.history.size
        before = self.history
        self.history = self.opened(size)
        self.history.restore(state)
        for name in ("slot_of", "owner", "born"):
            np.testing.assert_array_equal(getattr(self.history.index, name), getattr(before.index, name))
        assert self.history.first_feature == before.first_feature

    @invariant()
    def what_is_found_is_right(self):
        if not hasattr(self, "history"):
            return
        history, found = self.history, 0
        for asked in (self.now, self.now + 1, self.now + 3):
            for layer in range(1, self.options["num_layers"] + 1):
                slots = history.lookup(layer, np.arange(NODES), asked)
                for node in np.flatnonzero(slots >= 0):
                    row, born = self.model[layer, node]
                    assert 0 < asked - born <= self.options["t_stale"]
                    np.testing.assert_array_equal(history.embeddings[slots[node]], row)
                    found += 1
            assert found <= self.most * 3
        assert history.held(self.now + 1)[0] <= self.most
        assert len(history.embeddings) == self.most

    @invariant()
    def entries_and_owners_point_to_each_other(self):
        if hasattr(self, "history"):
            index = self.history.index
            places, slots = np.flatnonzero(index.slot_of >= 0), np.flatnonzero(index.owner >= 0)
            np.testing.assert_array_equal(index.owner[index.slot_of[places]], places)
            np.testing.assert_array_equal(index.slot_of[index.owner[slots]], slots)

    @invariant()
    def features_are_whole_or_gone_for_good(self):
        if not hasattr(self, "history"):
            return
        history = self.history
        places = history.lookup_features(np.arange(NODES))
        held = np.flatnonzero(places >= 0)
        for node in held:
            expected = feature_row(int(node), history.features.shape[1]).astype(history.dtype)
            np.testing.assert_array_equal(history.features[places[node]], expected)
        here = set(held.tolist())
        assert not here & self.reached  # gone rows do not come back
        self.reached |= set(history.feature_ids.tolist()) - here
        hottest = history.feature_ids[::-1].tolist()
        assert here == set(hottest[: len(here)])  # the coldest go first


def sortable(norm):
    return norm if norm >= 0 else np.inf


TestHistory = HistoryMachine.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)


def history_of(rows: int, **options) -> History:
    given = {"num_layers": 2, "num_nodes": NODES, "width": 2, "dtype": np.float32, "t_stale": 9, "p_grad": 1} | options
    return History(memory=np.zeros(8 * rows, np.uint8), **given)


def layer_rows(layer, nodes, first=0.0, **more):
    rows = first + np.arange(2 * len(nodes), dtype=np.float32).reshape(-1, 2)
    return LayerRows(layer=layer, ids=np.array(nodes), rows=rows, norms=np.arange(len(nodes), dtype=np.float32), **more)


def test_a_computed_row_is_found_by_later_steps_until_it_is_too_old():
    history = history_of(4)
    history.update(7, [layer_rows(1, [3, 5])])
    assert (history.lookup(1, np.array([3, 5]), 7) == -1).all()
    for step in (8, 16):
        np.testing.assert_array_equal(history.embeddings[history.lookup(1, np.array([5, 3]), step)], [[2, 3], [0, 1]])
    assert (history.lookup(1, np.array([3, 5]), 17) == -1).all()
    assert (history.lookup(2, np.array([3, 5]), 8) == -1).all()


def test_the_head_returns_to_the_first_slot_every_t_stale_steps():
    history = history_of(6, t_stale=3)
    slots = [history.update(step, [layer_rows(1, [step % NODES])]).slots.tolist() for step in range(1, 9)]
    assert slots == [
        [0],
        [1],
        [0],
        [1],
        [2],
        [0],
        [1],
        [2],
    ]  # steps 3 and 6 are the first at least three steps after the one before


def test_embeddings_displace_the_coldest_features_first():
    history = history_of(4, features=FeatureSide(np.array([9, 4, 2, 7]), 2))
    assert history.feature_ids.tolist() == [7, 2, 4, 9]
    held = []
    for step in range(1, 6):
        held.append(np.flatnonzero(history.lookup_features(np.arange(NODES)) >= 0).tolist())
        history.update(step, [layer_rows(1, [step])])
    assert held == [[2, 4, 7, 9], [2, 4, 9], [4, 9], [9], []]


def test_what_does_not_fit_is_refused():
    history = history_of(3)
    with pytest.raises(InputError, match="remedy"):
        history.update(1, [layer_rows(3, [1])])
    with pytest.raises(InputError, match="remedy"):
        history.lookup(0, np.array([1]), 1)
    with pytest.raises(InputError, match="remedy"):
        history.update(1, [LayerRows(layer=1, ids=np.arange(2), rows=np.ones((3, 2), np.float32), norms=np.ones(2))])
    history.update(1, [layer_rows(1, [1, 2])])
    with pytest.raises(InputError, match="remedy"):
        history_of(1).restore(history.state())
    for wrong in ({"p_grad": 1.5}, {"t_stale": -1}, {"dtype": np.float16}, {"width": 0}):
        with pytest.raises(InputError, match="remedy"):
            history_of(3, **wrong)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"rows": np.ones((2, 2))}, "rows are float64 and lie in C order, the arena holds float32"),
        ({"rows": np.ones((2, 4), np.float32)[:, ::2]}, "rows are float32 and lie apart"),
        ({"ids": np.array([5, NODES])}, f"node {NODES} is none of"),
    ],
)
def test_a_refused_update_leaves_the_history_as_it_was(wrong, problem):
    history = history_of(4, t_stale=2)
    history.update(5, [layer_rows(1, [3, 5])])
    before, slot_of = history.state(), history.index.slot_of.copy()
    with pytest.raises(InputError, match=problem):
        history.update(7, [layer_rows(2, [4]), replace(layer_rows(1, [5, 1]), **wrong)])
    np.testing.assert_array_equal(history.index.slot_of, slot_of)
    for name, array in history.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("ids", [[2, -1], [NODES]])
@pytest.mark.parametrize("features", [None, FeatureSide(np.array([4]), 2)])
def test_ids_that_are_no_nodes_are_refused(ids, features):
    history = history_of(4, features=features)
    for look_up in (history.lookup_features, lambda ids: history.lookup(1, ids, 1)):
        with pytest.raises(InputError, match=f"node {ids[-1]} is none of {NODES}"):
            look_up(np.array(ids))
