"""The commands about the store where an object store stands behind the home."""

import json
import re

import pytest

from graphmill.assets.storage.local.bundle import write_bundle
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.remote.entries import read_entry
from graphmill.assets.storage.remote.objects import require_objects
from graphmill.assets.storage.store import Store
from graphmill.jobs import cli
from graphmill.jobs.commands.machine import doctor
from graphmill.jobs.commands.results.show import artifacts_json, print_artifact, print_artifacts, verify_artifacts
from graphmill.jobs.commands.store.gc import collect_garbage, collect_stored_garbage
from graphmill.jobs.commands.store.repair import repair_store, repair_stored
from graphmill.kernels.errors import InputError
from tests.assets.storage.tiny_artifacts import address, present, put


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """Two homes, and a folder as their object store."""
    monkeypatch.setenv("GRAPHMILL_STORE", (tmp_path / "shared").as_uri())
    return Store(tmp_path / "a"), Store(tmp_path / "b")


def damage(artifact):
    objects = require_objects()
    objects.write(read_entry(objects, address(artifact)).key("values.npy"), b"damaged")


def test_ls_and_show_say_what_only_the_object_store_has(homes, capsys):
    one, other = homes
    far, near = put(one, "graph", 1), put(other, "graph", 2)
    print_artifacts(other, None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith(f"graph/{short(each.version)}") for line, each in zip(lines, (near, far), strict=False)]
    assert "ONLY IN THE OBJECT STORE" in lines[1] and "ONLY" not in lines[0]
    assert lines[-1] == f"1 more only in {require_objects().url}; the files are fetched when they are read"
    rows = {row["version"]: row["in_home"] for row in artifacts_json(other, "graph")}
    assert rows == {near.version: True, far.version: False}
    print_artifact(other.resolve(f"graph/{short(far.version)}"))
    assert "only in file://" in capsys.readouterr().out
    assert present(other) == {address(near)}
    with pytest.raises(InputError, match="no artifact of stage 'other'"):
        print_artifacts(other, "other")


def test_without_an_object_store_the_lists_are_as_before(homes, monkeypatch, capsys):
    put(homes[0], "graph", 1)
    monkeypatch.delenv("GRAPHMILL_STORE")
    store = Store(homes[0].home)
    print_artifacts(store, None)
    assert "only in" not in capsys.readouterr().out
    assert "in_home" not in artifacts_json(store, None)[0]


def test_verify_reads_the_objects_of_what_is_not_here(homes):
    one, other = homes
    made = put(one, "graph", 1)
    name = f"graph/{short(made.version)}"
    assert [each.problems for each in verify_artifacts(other, (name,))] == [[]] and present(other) == set()
    damage(made)
    ((problem,),) = [each.problems for each in verify_artifacts(other, (name,))]
    assert "values.npy" in problem


def test_verify_says_what_it_did_not_read(homes, capsys):
    one, other = homes
    put(one, "graph", 1)
    cli.main(["--home", str(one.home), "verify"])
    assert capsys.readouterr().err == ""
    other.home.mkdir()
    cli.main(["--home", str(other.home), "verify"])
    assert "1 artifact is only in file://" in capsys.readouterr().err


def test_repair_removes_what_is_damaged_in_the_object_store(homes, capsys):
    one, other = homes
    made = put(one, "graph", 1)
    name = f"graph/{short(made.version)}"
    assert repair_stored(other, (name,), yes=True) == 0
    damage(made)
    with pytest.raises(InputError) as error:
        other.open(*address(made)).here()
    (named,) = re.findall(r"graphmill repair (\S+)`", error.value.remedy)
    assert repair_store(other, (named,), yes=True) == []
    assert repair_stored(other, (named,), dry_run=True) == 1 and other.find(*address(made)) is not None
    assert repair_stored(other, (named,), yes=True) == 0 and other.find(*address(made)) is None
    assert require_objects().listed("") == []
    one.open(*address(made)).shared()
    assert other.open(*address(made)).array("values").tolist() == [0, 1]
    assert "damaged in file://" in capsys.readouterr().out


def test_gc_frees_both_places(homes, capsys):
    one, other = homes
    old, new = (put(one, "graph", number) for number in range(2))
    collect_garbage(one, 1, yes=True)
    assert present(one) == {address(new)} and other.has(*address(old))
    assert collect_stored_garbage(one, 1, dry_run=True) == 0 and other.has(*address(old))
    assert collect_stored_garbage(one, 1, yes=True) > 0
    assert not other.has(*address(old)) and other.has(*address(new))
    assert "1 to remove" in capsys.readouterr().out
    assert collect_stored_garbage(one, 1, yes=True) == 0


def test_the_doctor_tries_the_object_store(homes, monkeypatch):
    (found,) = doctor._object_store()
    assert (found.state, found.needed) == ("ok", True) and "file://" in found.found
    monkeypatch.setattr("graphmill.assets.storage.remote.objects.creates_once", lambda objects: False)
    (found,) = doctor._object_store()
    assert found.state == "missing" and "If-None-Match" in found.remedy
    monkeypatch.setenv("GRAPHMILL_STORE", "bogus://a")
    (found,) = doctor._object_store()
    assert found.state == "missing" and "GRAPHMILL_STORE" in found.remedy
    monkeypatch.delenv("GRAPHMILL_STORE")
    assert list(doctor._object_store()) == [], homes


def test_a_bundle_has_what_only_the_object_store_has(homes, tmp_path):
    one, other = homes
    graph = put(one, "graph", 1)
    made = put(one, "features", 2, [graph])
    found = other.open(*address(made))
    recipe = {"pipeline": "p", "file": "p.toml", "text": "", "table": "t"}
    bundle = write_bundle(other, tmp_path / "out", {"features": found}, recipe)
    assert set(bundle.addresses()) == {address(graph), address(made)} == present(other)
    assert json.loads((tmp_path / "out" / "bundle.json").read_text())["inputs"] == {"features": made.version}
