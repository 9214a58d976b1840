import pytest

from graphmill.assets.storage.remote.objects import require_objects
from graphmill.assets.storage.store import Store
from tests.object_store import new_bucket, served


@pytest.fixture(scope="module")
def endpoint():
    with served() as address:
        yield address


@pytest.fixture
def objects(endpoint, monkeypatch):
    """The objects of a new bucket, which GRAPHMILL_STORE names while a test runs."""
    for name, value in new_bucket(endpoint).items():
        monkeypatch.setenv(name, value)
    return require_objects()


@pytest.fixture
def stores(objects, tmp_path):
    """Two homes that share nothing but the object store."""
    return Store(tmp_path / "a"), Store(tmp_path / "b")
