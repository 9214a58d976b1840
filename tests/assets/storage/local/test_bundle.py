"""Bundles of tiny artifacts: what is damaged is named, with the command that rebuilds it."""

import os

import pytest

from graphmill.assets.storage.files.documents import seal, unseal
from graphmill.assets.storage.local.bundle import LIST, open_bundle, take_from, write_bundle
from graphmill.assets.storage.names.manifest import MANIFEST
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
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


FORGED = {
    "pipeline": None,
    "file": 5,
    "file ": "../../x.toml",
    "file  ": "..",
    "text": ["a"],
    "table": {},
    "inputs": [],
    "inputs ": {"graph": 3},
    "sizes": [],
    "sizes ": {"store/graph/x": "1"},
    "sizes  ": {"store/graph/x": True},
}


@pytest.mark.parametrize(("key", "value"), FORGED.items(), ids=range(len(FORGED)))
def test_a_sealed_list_that_says_nonsense_is_refused(tmp_path, key, value):
    """The seal is a digest: anybody can write one."""
    store = Store(tmp_path / "home")
    write_bundle(store, tmp_path / "out", {"graph": put(store, "graph", 1)}, RECIPE)
    found = unseal(tmp_path / "out" / LIST)
    for forged in (found | {key.strip(): value}, {name: each for name, each in found.items() if name != key.strip()}):
        (tmp_path / "out" / LIST).write_bytes(seal(forged))
        with pytest.raises(InputError, match=f"says nothing sound: {key.strip()}[ /]"):
            open_bundle(tmp_path / "out")


def test_artifacts_that_were_built_from_themselves_are_refused(tmp_path):
    store = Store(tmp_path / "home")
    graph = put(store, "graph", 1)
    model = put(store, "model", 2, [graph])
    bundle = write_bundle(store, tmp_path / "out", {"model": model}, RECIPE)
    path = bundle.folder / "store" / "graph" / graph.version / MANIFEST
    path.write_bytes(seal(unseal(path) | {"inputs": {"x": {"stage": "model", "version": model.version}}}))
    with pytest.raises(InputError, match=r"built from themselves: .*graph/.* from model/"):
        take_from(bundle, Store(tmp_path / "other"))


@pytest.mark.parametrize("how", ["nested", "pipe"])
def test_a_list_that_no_reader_would_end_is_refused(tmp_path, how):
    (tmp_path / "out").mkdir()
    if how == "pipe":
        os.mkfifo(tmp_path / "out" / LIST)
    else:
        (tmp_path / "out" / LIST).write_text("[" * 100_000)
    with pytest.raises(InputError, match="is no whole bundle"):
        open_bundle(tmp_path / "out")
