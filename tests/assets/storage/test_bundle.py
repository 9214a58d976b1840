"""Bundles of tiny artifacts: what is damaged is named, with the command that rebuilds it."""

import pytest

from assets.storage.artifact import MANIFEST
from assets.storage.bundle import LIST, write_bundle
from assets.storage.store import Store
from kernels.errors import InputError
from tests.assets.storage.tiny_artifacts import put

RECIPE = {"pipeline": "mine", "file": "mine.toml", "text": "", "table": "sage"}


@pytest.mark.parametrize("how", ["cut", "gone", "longer"])
def test_an_ancestor_that_is_damaged_is_named(tmp_path, how):
    store = Store(tmp_path / "home")
    ancestor = put(store, "partitions", 1)
    chunks = put(store, "chunks", 2, [ancestor])
    path = ancestor.file("values.npy")
    content = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(content[:-1] if how == "cut" else content + b"\0")
    out = tmp_path / "out"
    with pytest.raises(InputError, match=f"^partitions/{ancestor.version} is damaged: .*values") as raised:
        write_bundle(store, out, {"chunks": chunks}, RECIPE)
    assert f"graphmill repair partitions/{ancestor.version[:12]}" in raised.value.remedy
    assert not (out / LIST).exists()


def test_sound_artifacts_make_a_bundle(tmp_path):
    store = Store(tmp_path / "home")
    chunks = put(store, "chunks", 2, [put(store, "partitions", 1)])
    bundle = write_bundle(store, tmp_path / "out", {"chunks": chunks}, RECIPE)
    assert [stage for stage, _ in bundle.addresses()] == ["chunks", "partitions"]
    assert sum(name.endswith(MANIFEST) for name in bundle.sizes) == 2
