"""What a machine without the raw files knows of them by the object store."""

import shutil
import threading
import time

import numpy as np
import polars
import pytest

from graphmill.assets.building.build import Build, raw_digests
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize, stage_version
from graphmill.assets.building.stage import OnePass
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.steps import Versions
from graphmill.assets.sources.registry import config_class
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


MOMENTS = 100


def written(path, num_edges, shift):
    """Writes a table of edges; those with the same number of them are equally long."""
    ends = np.arange(num_edges)
    polars.DataFrame({"src": ends, "dst": (ends * 7 + shift) % num_edges}).write_csv(path)
    return path


def replaced(path, other, *, in_place):
    """Gives a file the content of another one: by a rename, or by overwriting its bytes."""
    if in_place:
        with path.open("r+b") as file:
            file.write(other.read_bytes())
    else:
        shutil.copy(other, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


@pytest.mark.parametrize(
    "moments",
    [10, pytest.param(MOMENTS, marks=pytest.mark.slow("100 moments at which a file that is read is replaced"))],
)
def test_a_file_that_is_replaced_while_it_is_read_is_never_half_an_artifact(tmp_path, moments):
    """Whatever is published is the graph of one of the two contents as a whole, under the version of that content."""
    contents = [written(tmp_path / f"{shift}.csv", 50_000, shift) for shift in (1, 3)]
    path, whole, began = tmp_path / "edges.csv", {}, time.perf_counter()
    config = config_class("edges")(source="edges", edges=path)
    for shift, content in enumerate(contents):
        shutil.copy(content, path)
        built = materialize(Store(tmp_path / f"whole{shift}"), GRAPH, config, Threads(threads=1), {})
        whole[built.version] = built.content
    longest, draw = (time.perf_counter() - began) / 2, np.random.default_rng(0)
    for number in range(moments):
        old, new = draw.permutation(2)
        shutil.copy(contents[old], path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        store, in_place = Store(tmp_path / f"home{number}"), bool(draw.integers(2))
        moment = threading.Timer(draw.uniform(0, longest), replaced, (path, contents[new]), {"in_place": in_place})
        moment.start()
        try:
            built = materialize(store, GRAPH, config, Threads(threads=1), {})
            assert whole[built.version] == built.content and built.verify() == []
        except InputError:
            assert store.artifacts() == []
        finally:
            moment.join()
        shutil.rmtree(store.home, ignore_errors=True)


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


def lists_of_edges(tmp_path):
    """Returns two configs that differ in the second file of a list alone."""
    paths = [tmp_path / f"{shift}.csv" for shift in range(3)]
    for shift, path in enumerate(paths):
        written(path, 50, shift)
    return [config_class("edges")(source="edges", edges=(paths[0], path)) for path in paths[1:]]


def test_a_list_of_files_has_the_digests_of_its_own_files(tmp_path):
    """A command computes the versions of several pipelines with one object."""
    versions = Versions()
    for config in lists_of_edges(tmp_path):
        assert versions.raw(GRAPH, config) == GRAPH.raw(config)


def test_lists_of_files_that_are_not_here_are_told_apart(tmp_path, shared):
    _, one, other = shared
    configs = lists_of_edges(tmp_path)
    built = [materialize(one, GRAPH, config, Threads(threads=1), {}) for config in configs]
    for shift in range(3):
        (tmp_path / f"{shift}.csv").unlink()
    for config, made in zip(configs, built, strict=True):
        assert materialize(other, GRAPH, config, Threads(threads=1), {}).content == made.content
    assert built[0].content != built[1].content


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
