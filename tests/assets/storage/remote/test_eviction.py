import os

import pytest

from graphmill.assets.storage.remote.entries import entry_key
from graphmill.assets.storage.remote.fetch import VARIABLE, cache_bytes
from graphmill.kernels.errors import InputError
from tests.assets.storage.tiny_artifacts import address, present, put


def used_bytes(store):
    return sum(path.stat().st_size for folder in store.folders() for path in folder.rglob("*"))


@pytest.fixture
def three(stores, monkeypatch):
    """Three artifacts of one home, the first two fetched by the other, which has room for two, the second used last."""
    one, other = stores
    made = [put(one, "toy", number) for number in range(3)]
    found = [other.open(*address(each)) for each in made]
    for number in (0, 1):
        found[number].here()
        os.utime(found[number].path / "run.json", (number, number))
    monkeypatch.setenv(VARIABLE, str(used_bytes(other) + 100))
    return other, found


def test_the_least_recently_used_goes_first_and_comes_again(three):
    store, found = three
    found[2].here()
    assert present(store) == {address(found[1]), address(found[2])}
    assert found[0].array("values").tolist() == [0], "it is fetched again"
    assert present(store) == {address(found[2]), address(found[0])}


def test_what_is_read_counts_as_used(three):
    store, found = three
    found[0].array("values")
    found[2].here()
    assert present(store) == {address(found[0]), address(found[2])}


def test_what_a_job_leases_stays(three):
    store, found = three
    with store.lease(address(found[0])):
        found[2].here()
        assert present(store) == {address(found[0]), address(found[2])}
    with store.lease(address(found[0]), address(found[2])):
        with pytest.raises(InputError, match=r"toy/.* does not fit into the cache of .*read by running jobs") as error:
            found[1].here()
        assert VARIABLE in error.value.remedy
    assert present(store) == {address(found[0]), address(found[2])}


def test_what_the_object_store_lacks_stays(three, objects):
    store, found = three
    objects.remove([entry_key(address(found[0]))])
    found[2].here()
    assert present(store) == {address(found[0]), address(found[2])}


def test_the_bound_is_a_size(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2GiB")
    assert cache_bytes() == 2 << 30
    monkeypatch.setenv(VARIABLE, "many")
    with pytest.raises(InputError, match="GRAPHMILL_CACHE_BYTES = many"):
        cache_bytes()
    monkeypatch.delenv(VARIABLE)
    assert cache_bytes() is None
