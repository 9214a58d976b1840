from datetime import timedelta

import pytest

from graphmill.assets.storage.remote import collect
from graphmill.assets.storage.remote.collect import collect_stored, find_stored_garbage
from graphmill.assets.storage.remote.entries import CONTENT, listed_entries
from graphmill.assets.storage.remote.leases import hold_remote
from graphmill.assets.storage.remote.objects import Objects
from tests.assets.storage.tiny_artifacts import address, put


@pytest.fixture
def lineage(stores):
    """Three versions of a graph, and a model of each."""
    graphs = [put(stores[0], "graph", number) for number in range(3)]
    return graphs, [put(stores[0], "model", number, [graph]) for number, graph in enumerate(graphs)]


def collected(store, keep, report=lambda item, word: None):
    garbage = find_stored_garbage(store, keep)
    return collect_stored(store, garbage, report), garbage


def test_old_versions_go_with_all_their_objects(stores, objects, lineage):
    graphs, models = lineage
    freed, garbage = collected(stores[1], 1)
    going = [item.address for item in garbage.artifacts]
    assert sorted(going) == sorted(address(each) for each in (*models[:2], *graphs[:2]))
    assert all(going.index(address(models[each])) < going.index(address(graphs[each])) for each in range(2))
    assert freed == garbage.num_bytes > 0
    assert len(garbage.kept) == 2 and set(listed_entries(objects)) == {address(graphs[2]), address(models[2])}
    assert {each.key.split("/")[2] for each in objects.listed(CONTENT)} == {graphs[2].version, models[2].version}
    assert stores[0].open(*address(graphs[0])).verify() == [], "homes keep their copies"


def test_what_a_process_leases_stays_with_its_inputs(stores, objects, lineage):
    graphs, models = lineage
    with hold_remote(objects, (address(models[0]),)):
        collected(stores[1], 1)
    assert set(listed_entries(objects)) == {address(each) for each in (graphs[0], models[0], graphs[2], models[2])}


@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_lease_that_comes_in_the_middle_spares(stores, objects, lineage, monkeypatch, moment):
    graphs, _ = lineage
    garbage = find_stored_garbage(stores[1], 1)
    taken = []

    def remove(self, keys, whole=Objects.remove):
        keys = list(keys)
        whole(self, keys)
        if any(graphs[0].version in key for key in keys) and not taken:
            taken.append(hold_remote(objects, (address(graphs[0]),)))
            taken[0].__enter__()

    if moment == "between":
        monkeypatch.setattr(Objects, "remove", remove)
    else:
        taken.append(hold_remote(objects, (address(graphs[0]),)))
        taken[0].__enter__()
    said = {}
    collect_stored(stores[1], garbage, lambda item, word: said.__setitem__(item.address, word))
    taken[0].__exit__(None, None, None)
    assert said[address(graphs[0])] == "spared" and said[address(graphs[1])] == "removed"
    assert stores[1].open(*address(graphs[0])).array("values").tolist() == [0]


def test_what_a_new_artifact_was_built_from_is_spared(stores, objects, lineage):
    graphs, models = lineage
    garbage = find_stored_garbage(stores[1], 1)
    newest = put(stores[0], "model", 9, [graphs[0]])
    collect_stored(stores[1], garbage)
    assert set(listed_entries(objects)) == {address(each) for each in (graphs[0], newest, graphs[2], models[2])}


def test_the_objects_of_a_killed_upload_go_when_they_are_old(stores, objects, lineage, monkeypatch):
    graphs, _ = lineage
    key = f"{CONTENT}/graph/{graphs[2].version}/{'0' * 32}/values.npy"
    objects.write(key, b"123")
    assert find_stored_garbage(stores[1], 3).left == ()
    now = Objects.now
    monkeypatch.setattr(Objects, "now", lambda self: now(self) + timedelta(seconds=collect.EXPIRY_SECONDS + 1))
    (item,) = find_stored_garbage(stores[1], 3).left
    assert (item.address, item.num_bytes, item.keys) == (address(graphs[2]), 3, (key,))
    assert collected(stores[1], 3)[0] == 3 and objects.find(key) is None
    assert stores[1].open(*address(graphs[2])).array("values").tolist() == [0, 1, 2]


def test_checkpoints_of_published_models_go_and_others_stay(stores, objects, lineage):
    _, models = lineage
    done, waits = f"checkpoints/{models[2].version}.safetensors", f"checkpoints/{'e' * 64}.safetensors"
    objects.write(waits, b"12")
    objects.write(done, b"123")
    put_again = objects.read(f"artifacts/model/{models[2].version}.json")
    objects.write(f"artifacts/model/{models[2].version}.json", put_again)
    (item,) = find_stored_garbage(stores[1], 3).left
    assert item.keys == (done,)
    collected(stores[1], 3)
    assert objects.find(done) is None and objects.read(waits) == b"12"
