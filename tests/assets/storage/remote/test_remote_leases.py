import time
from datetime import timedelta

import pytest

from graphmill.assets.storage.remote import leases
from graphmill.assets.storage.remote.leases import EXPIRY_SECONDS, FOLDER, held_remotely, hold_remote
from graphmill.assets.storage.remote.objects import Objects
from graphmill.kernels.errors import InputError

ONE, TWO = ("toy", "1" * 64), ("toy", "2" * 64)


def held(objects):
    return held_remotely(objects, objects.now()).addresses


def test_a_lease_is_seen_by_all_and_ends_with_its_block(objects):
    with hold_remote(objects, (ONE,)):
        assert held(objects) == {ONE}
        with hold_remote(objects, (ONE, TWO)):
            assert held(objects) == {ONE, TWO}
        assert ONE in held(objects)
    assert held(objects) == set() and objects.listed(FOLDER) == []


def test_the_leases_of_a_store_are_held_in_both_places(stores, objects):
    one, other = stores
    with one.lease(ONE):
        assert held(objects) == {ONE} == one.leases.held() and other.leases.held() == set()
    assert held(objects) == set() == one.leases.held()


def test_a_lease_that_was_not_renewed_expires(objects):
    with hold_remote(objects, (ONE,)):
        later = objects.now() + timedelta(seconds=EXPIRY_SECONDS + 1)
        assert held_remotely(objects, later).addresses == set()
        assert objects.listed(FOLDER) == [], "its object is gone"


def test_a_held_lease_is_written_again(objects, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.01)
    with hold_remote(objects, (ONE,)):
        objects.remove([objects.listed(FOLDER)[0].key])
        while not objects.listed(FOLDER):
            time.sleep(0.01)
        assert held(objects) == {ONE}


def test_a_store_that_may_only_be_read_is_read_without_leases(objects, monkeypatch):
    def refuse(self, key, data):
        raise InputError("the object store s3://a cannot be used: it refuses the credentials")

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "write", refuse)
        with hold_remote(objects, (ONE,)):
            pass

    def down(self, key, data):
        raise InputError("the object store s3://a cannot be used: its endpoint does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "write", down)
        with pytest.raises(InputError, match="does not answer"), hold_remote(objects, (ONE,)):
            pass
    assert held(objects) == set()
