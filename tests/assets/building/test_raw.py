"""What a machine without the raw files knows of them by the object store."""

import pytest

from graphmill.assets.building.build import Build
from graphmill.assets.building.materialize import materialize, stage_version
from graphmill.assets.building.raw import raw_digests
from graphmill.assets.building.stage import OnePass
from graphmill.assets.pipeline.steps import Versions
from graphmill.assets.storage.files.digests import sha256_file
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage


class ReadsFile(ToyStage):
    def raw(self, semantic):
        return {"source": sha256_file(semantic.path)}


class ReadsInOnePass(OnePass, ReadsFile):
    """Its file changes while it is built."""

    def build(self, building):
        building.semantic.path.write_text("other")
        return ToyStage.build(self, building)


def test_what_was_built_from_a_file_that_changed_meanwhile_is_not_published(tmp_path):
    path, store = tmp_path / "raw.txt", Store(tmp_path / "home")
    path.write_text("bytes")
    with pytest.raises(InputError, match="the files that stage toy reads changed while it was built: source"):
        materialize(store, ReadsInOnePass(), Semantic(path=path), Execution(), {})
    assert store.artifacts() == []
    assert materialize(store, ReadsInOnePass(), Semantic(path=path), Execution(), {}).verify() == []


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A raw file, two homes, and a folder as the object store."""
    monkeypatch.setenv("GRAPHMILL_STORE", (tmp_path / "shared").as_uri())
    path = tmp_path / "raw.txt"
    path.write_text("raw")
    return path, Store(tmp_path / "a"), Store(tmp_path / "b")


def test_a_home_without_the_files_finds_what_another_built(shared):
    path, one, other = shared
    stage, semantic = ReadsFile(), Semantic(path=path)
    made = materialize(one, stage, semantic, Execution(), {})
    path.unlink()
    assert stage_version(stage, semantic, {}) == made.version
    assert Versions().raw(stage, semantic) == dict(made.manifest["raw"])
    found = materialize(other, stage, semantic, Execution(), {})
    assert found.reused and found.content == made.content and stage.num_builds == 1
    with pytest.raises(InputError, match="does not exist"):
        raw_digests(stage, Semantic(path=path.with_name("other.txt")))


def test_files_that_are_here_count_more_than_a_record(shared):
    path, one, other = shared
    stage, semantic = ReadsFile(), Semantic(path=path)
    made = materialize(one, stage, semantic, Execution(), {})
    path.write_text("other bytes")
    assert stage_version(stage, semantic, {}) != made.version
    newer = materialize(other, stage, semantic, Execution(), {})
    path.unlink()
    assert stage_version(stage, semantic, {}) == newer.version, "the newest record counts"


def test_without_an_object_store_a_missing_file_is_an_error(shared, monkeypatch):
    path, one, _ = shared
    stage, semantic = ReadsFile(), Semantic(path=path)
    with monkeypatch.context() as patch:
        patch.delenv("GRAPHMILL_STORE")
        materialize(one, stage, semantic, Execution(), {})
        path.unlink()
        with pytest.raises(InputError, match="does not exist"):
            stage_version(stage, semantic, {})
    with pytest.raises(InputError, match="does not exist"):
        Build(store=one, stage=stage, semantic=semantic, execution=Execution(), inputs={})


def test_what_is_reused_is_shared_as_well(shared, monkeypatch):
    path, one, other = shared
    stage, semantic = ReadsFile(), Semantic(path=path)
    with monkeypatch.context() as patch:
        patch.delenv("GRAPHMILL_STORE")
        materialize(one, stage, semantic, Execution(), {})
    assert materialize(one, stage, semantic, Execution(), {}).reused
    path.unlink()
    assert materialize(other, stage, semantic, Execution(), {}).reused and stage.num_builds == 1
