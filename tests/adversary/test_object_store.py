"""An object store that somebody else writes to: a few attacks of each kind on one of tiny artifacts."""

import os
import random
import shutil
from pathlib import Path

import pytest

from graphmill.assets.storage.remote.leases import FOLDER, held_remotely
from graphmill.assets.storage.remote.objects import require_objects
from graphmill.assets.storage.store import Store
from tests.adversary.attack import REFUSED
from tests.adversary.damage import cut
from tests.adversary.house import said
from tests.adversary.object_store import OBJECTS, attack_documents, attack_objects, fill, shared_in
from tests.assets.storage.damage import flip
from tests.assets.storage.tiny_artifacts import put


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grounds")
    store = Store(folder / "home")
    graph = put(store, "graph", 40)
    put(store, "model", 3, [graph, put(store, "samples", 5, [graph])], asked_by="cora/sage")
    fill(folder, folder / "home")
    return folder


def flipped(path: Path, draw: random.Random) -> None:
    flip(path, draw.randrange(8 * path.stat().st_size))


@pytest.mark.parametrize(("damage", "count"), [(flipped, 4), (cut, 6), (None, 12)], ids=["flips", "cuts", "forgeries"])
def test_damage_of_one_object_is_found_and_mended_and_loses_nothing_else(grounds, tmp_path, damage, count):
    ways = []
    for seed in range(count):
        folder, draw = tmp_path / str(seed), random.Random(seed)
        folder.mkdir()
        attack = (
            attack_documents(grounds, folder, draw) if damage is None else attack_objects(grounds, folder, draw, damage)
        )
        ways.append(attack)
    assert REFUSED in ways


STRAY = (
    "content/graph/notes", "content/readme", "content/graph/x/y/z", "artifacts/graph/notes.json", "artifacts/readme",
    "leases/notes.json", "leases/deep/er/x", "checkpoints/readme", "readme", "raw/notes",
)  # fmt: skip


def test_objects_of_others_are_left_alone(grounds, tmp_path):
    """Such as the markers of folders that a console makes."""
    shutil.copytree(grounds / OBJECTS, tmp_path / OBJECTS)
    for name in STRAY:
        path = tmp_path / OBJECTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        os.utime(path, (1, 1))
    with shared_in(tmp_path):
        (tmp_path / OBJECTS / FOLDER / f"{'0' * 32}.json").unlink()
        assert "3 to remove" in said(grounds, tmp_path, "gc", "--keep", "0", "--yes")
        assert "0 more only" in said(grounds, tmp_path, "ls")
    assert {name for name in STRAY if (tmp_path / OBJECTS / name).exists()} == {*STRAY}


def test_a_damaged_lease_keeps_everything_and_is_named(grounds, tmp_path):
    shutil.copytree(grounds / OBJECTS, tmp_path / OBJECTS)
    key = f"{FOLDER}/{'0' * 32}.json"
    flip(tmp_path / OBJECTS / key, 100)
    with shared_in(tmp_path):
        assert held_remotely(require_objects(), require_objects().now()).damaged == (key,)
        printed = said(grounds, tmp_path, "gc", "--keep", "0", "--yes")
    assert f"not read  {key}" in printed and "0 to remove" in printed.splitlines()[-1]
