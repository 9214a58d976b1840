"""`graphmill repair`: what it removes, what it leaves, and that a run builds the rest again."""

import sys

import click
import numpy as np
import pytest

from graphmill.assets.storage.files.documents import seal, unseal
from graphmill.assets.storage.local.repair import find_damage, lineage_problems, remove_damage
from graphmill.assets.storage.names.manifest import MANIFEST
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.results.show import verify_artifacts
from graphmill.jobs.commands.store.repair import repair_store
from graphmill.kernels.errors import InputError
from tests.adversary.privileges import graphmill_without_rights
from tests.assets.storage.damage import flip
from tests.assets.storage.tiny_artifacts import address, numbers_of, present, put


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def forget_content(artifact):
    """Makes a manifest as versions of graphmill wrote it that compared nothing."""
    manifest = unseal(artifact.path / MANIFEST)
    for entry in manifest["inputs"].values():
        entry.pop("content")
    (artifact.path / MANIFEST).write_bytes(seal(manifest))


def test_only_what_is_damaged_goes(store, capsys):
    graph = put(store, "graph", 0)
    model = put(store, "model", 1, [graph])
    assert repair_store(store, (), yes=True) == [] and "nothing is damaged" in capsys.readouterr().out
    flip(graph.path / "values.npy", 8 * 4100)
    assert [each.label for each in repair_store(store, (), dry_run=True)] == [graph.label]
    assert address(graph) in present(store)
    assert repair_store(store, (), yes=True) == []
    assert present(store) == {address(model)}
    said = capsys.readouterr().out
    assert f"removed  {graph.label}" in said and "graphmill run PIPELINE" in said
    put(store, "graph", 0)
    assert lineage_problems(store, model) == [] and find_damage(store) == []


def test_what_an_older_version_built_from_it_goes_too(store):
    graph = put(store, "graph", 0)
    model, other = put(store, "model", 1, [graph]), put(store, "model", 2, [put(store, "graph", 3)])
    prediction = put(store, "scores", 4, [model])
    for artifact in (model, prediction):
        forget_content(artifact)
    flip(graph.path / "values.npy", 8 * 4100)
    assert [each.address for each in find_damage(store)] == [address(each) for each in (graph, model, prediction)]
    repair_store(store, (), yes=True)
    assert present(store) == {address(other), ("graph", other.inputs["input0"]["version"])}


def test_another_result_under_the_same_version_is_seen(store):
    graph = put(store, "graph", 0)
    model = put(store, "model", 1, [graph])
    store.discard(*address(graph))
    with store.writer(*address(graph)) as writer:
        writer.save("values", np.array([7.0]))
        writer.publish({"number": 0}, {}, {"numbers": numbers_of("graph")}, {"started": "2024-01-01T00:00:00+00:00"})
    problem = f"built from other bytes than {graph.label} has now"
    found = {each.label: each.problems for each in verify_artifacts(store, ())}
    assert found == {graph.label: [], model.label: [problem]}
    assert [each.problems for each in find_damage(store)] == [[problem]]


def test_a_damaged_manifest_hides_nothing(store):
    graph = put(store, "graph", 0)
    flip(graph.path / MANIFEST, 100)
    assert [each.address for each in repair_store(store, (graph.version[:8],), dry_run=True)] == [address(graph)]
    assert repair_store(store, (graph.version[:8],), yes=True) == [] and not present(store)


def test_what_is_in_use_stays(store, capsys):
    graph = put(store, "graph", 0)
    flip(graph.path / "values.npy", 8 * 4100)
    with store.lease(address(graph)):
        assert [each.label for each in repair_store(store, (), yes=True)] == [graph.label]
    assert f"in use or replaced, stays  {graph.label}" in capsys.readouterr().out and present(store)


def test_nobody_is_asked_without_a_terminal(store, monkeypatch):
    graph = put(store, "graph", 0)
    flip(graph.path / "values.npy", 8 * 4100)

    def confirm(question):
        raise click.Abort

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(InputError, match="nobody answered"):
        repair_store(store, ())
    with pytest.raises(InputError, match="no artifact in"):
        repair_store(store, ("0" * 8,))


def test_what_was_built_again_while_the_question_waited_stays(store, capsys):
    graph, other = put(store, "graph", 0), put(store, "graph", 1)
    for each in (graph, other):
        flip(each.path / "values.npy", 8 * 4100)
    found = find_damage(store)
    assert store.discard(*address(graph))
    put(store, "graph", 0)
    assert [remove_damage(store, each) for each in found] == [each.address != address(graph) for each in found]
    assert present(store) == {address(graph)} and find_damage(store) == []


@pytest.mark.parametrize("where", ["values.npy", MANIFEST, "run.json", "block_digests.bin", "."])
def test_what_cannot_be_read_now_is_neither_sound_nor_damaged(tmp_path, where):
    store = Store(tmp_path)
    graph, other = put(store, "graph", 0), put(store, "graph", 1)
    flip(other.path / "values.npy", 8 * 4100)
    (graph.path / where).chmod(0)
    try:
        said = graphmill_without_rights("verify", home=tmp_path)
        assert said.returncode == 1 and f"{graph.label}: NOT READ" in said.stdout and "permissions" in said.stdout
        assert f"{other.label}: DAMAGED" in said.stdout and "Traceback" not in said.stderr
        said = graphmill_without_rights("repair", "--yes", home=tmp_path)
        assert f"not read, stays  {graph.label}" in said.stdout and f"removed  {other.label}" in said.stdout
        assert graphmill_without_rights("verify", home=tmp_path).returncode == 3
        if where != "values.npy":  # the only one that opening does not read
            said = graphmill_without_rights("show", graph.label, home=tmp_path)
            assert (where == "run.json") == (said.returncode == 0) and "Traceback" not in said.stderr
    finally:
        (graph.path / where).chmod(0o755)
    assert address(graph) in present(store) and graph.verify() == []
