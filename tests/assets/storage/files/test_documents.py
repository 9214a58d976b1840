"""Documents that are sealed and say nonsense: each is refused by its schema, or every reader of it gets along with what it says."""

import copy
import random
import shutil
from pathlib import Path

import pytest

from graphmill.assets.storage.files.documents import (
    DIGEST,
    bundle_schema,
    entry_schema,
    lease_schema,
    manifest_schema,
    raw_schema,
    read_document,
    run_schema,
    seal,
    unseal,
)
from graphmill.assets.storage.files.schema import Fields, path_inside
from graphmill.assets.storage.local.collect import find_garbage
from graphmill.assets.storage.local.repair import find_damage, remove_damage
from graphmill.assets.storage.names.manifest import MANIFEST, RUN
from graphmill.assets.storage.store import Store
from tests.adversary.forged import MISSING, NONSENSE, forge, places
from tests.assets.storage.tiny_artifacts import put

VERSION = "0" * 64


def documents(folder):
    """Returns kind -> (schema, a sound document of it)."""
    store = Store(folder)
    model = put(store, "model", 2, [put(store, "graph", 1)], asked_by="cora/sage", scores={"valid_accuracy": 0.5})
    manifest, run = ({**unseal(model.path / each)} for each in (MANIFEST, RUN))
    names = {"pipeline": "cora", "file": "cora.toml", "text": "name = 'cora'", "table": "sage"}
    sizes = {f"store/graph/{VERSION}/indptr.npy": 4096}
    return {
        "manifest": (manifest_schema, manifest),
        "run": (run_schema, run | {"execution": {"asked_by": "cora/sage"}, "epoch_seconds": {"train": [0.5]}}),
        "entry": (entry_schema, {"format": 1, "upload": "0" * 32, "manifest": manifest, "run": run}),
        "lease": (lease_schema, {"addresses": [f"graph/{VERSION}"]}),
        "raw": (raw_schema, {"raw": {"edges": VERSION}}),
        "bundle": (bundle_schema, {"format": 1, **names, "inputs": {"graph": VERSION}, "sizes": sizes}),
    }


FREE = {"digest", "asked_by", "text", "locations", "detail", "config", "numbers"}
"""Fields that may hold any text or number: another value of them is no nonsense."""


@pytest.mark.parametrize("kind", ["manifest", "run", "entry", "lease", "raw", "bundle"])
def test_nonsense_in_any_field_is_refused(tmp_path, kind):
    schema, sound = documents(tmp_path)[kind]
    schema({name: value for name, value in sound.items() if name != DIGEST}, "")
    passed = []
    for *above, key in places(sound):
        for value in NONSENSE:
            document = copy.deepcopy(sound)
            inner = document
            for each in above:
                inner = inner[each]
            if value is MISSING:
                del inner[key]
            else:
                inner[key] = value
            try:
                schema(document, "")
                passed.append((*above, key, value))
            except ValueError as error:
                assert len(str(error)) < 400 and str(error).isprintable()
    wrong = [
        each
        for each in passed
        if not FREE & {*map(str, each)} and isinstance(each[-1], int) and each[-1] in (-1, -5, 1 << 70)
    ]
    assert not wrong, "a number that no field may have"
    assert not [
        each for each in passed if kind in ("manifest", "entry", "bundle") and each[-1] is MISSING and len(each) == 2
    ]


@pytest.mark.parametrize(
    "name", ["", "/x", "../x", "a/../b", "a//b", "a/", ".", "a\0b", "a\nb", "x" * 300, "é" * 200, "\ud800", 5, None]
)
def test_a_name_that_leads_out_of_its_folder_or_that_no_disk_has_is_refused(name):
    with pytest.raises(ValueError, match=r"^files is .*, not "):
        path_inside(name, "files")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"manifest.json": (5, 0, 1)}, "a name of the store's own"),
        ({"a": (5, 0, 1), "a/b": (5, 1, 1)}, "a file and a folder"),
        ({"a": (10**14, 0, 1)}, "has 100000000000000 bytes and 1 digests"),
        ({"a": (5, 3, 1)}, "begins with digest 3, not 0"),
        ({"a": (5, 0, 1), "b": (5, 0, 1)}, "begins with digest 0, not 1"),
        ({"a.npy": (5, 0, 1)}, "an array without a type or a shape"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path, files, problem):
    _, manifest = documents(tmp_path)["manifest"]
    facts = {name: dict(zip(("bytes", "first_block", "num_blocks"), each, strict=True)) for name, each in files.items()}
    forged = manifest | {"files": {name: each | {"digest": "0" * 32} for name, each in facts.items()}}
    with pytest.raises(ValueError, match=problem):
        manifest_schema({name: value for name, value in forged.items() if name != DIGEST}, "")


def test_a_recipe_that_is_not_that_of_the_version_is_damage(tmp_path):
    store = Store(tmp_path)
    graph = put(store, "graph", 1, size=3)
    document = unseal(graph.path / MANIFEST)
    (graph.path / MANIFEST).write_bytes(seal(document | {"config": {"number": 1, "size": None}}))
    (damage,) = find_damage(store)
    assert damage.problems == ["its version is not that of its config, inputs and raw content"]
    assert remove_damage(store, damage) and find_damage(store) == []


def test_forged_documents_of_a_home_are_found_and_mended_and_end_no_command(tmp_path):
    draw, named = random.Random(3), 0
    sound = Store(tmp_path / "sound")
    put(sound, "model", 2, [put(sound, "graph", 1)], asked_by="cora/sage")
    for number in range(100):
        store = Store(tmp_path / str(number))
        shutil.copytree(sound.home, store.home)
        artifact = draw.choice(store.artifacts())
        path: Path = artifact.path / draw.choice([MANIFEST, RUN])
        if not forge(path, draw, tmp_path):
            continue
        said = path.read_text()
        store.artifacts(), store.damaged(), find_garbage(store, 0)
        found = find_damage(store)
        try:
            read_document(path, manifest_schema if path.name == MANIFEST else run_schema)
        except ValueError:
            assert artifact.path in [each.path for each in found], said
            named += 1
        for each in found:
            assert remove_damage(store, each)
        assert find_damage(store) == [] and store.damaged() == {}, said
    assert named > 30


def test_a_field_that_no_schema_lists_may_hold_plain_values_alone():
    check = Fields({"a": path_inside})
    check({"a": "x", "more": {"deep": [1, "two", None, 0.5]}}, "")
    with pytest.raises(ValueError, match="more/deep"):
        check({"a": "x", "more": {"deep": 1 << 70}}, "")
