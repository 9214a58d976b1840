"""The component in a Dagster project: that of docs/dagster.md is loaded as Dagster loads it, and run, with its own asset below a model."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster.components.core.component_tree import ComponentTreeException

import graphmill
from tests.docs.pages import ROOT, fences
from tests.jobs.conftest import quick_launches as quick_launches

COMMUNITIES = "shop/defs/communities/communities.toml"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project of the page, as the current folder and on Python's path, with a home inside it."""
    for fence in fences(ROOT / "docs" / "dagster.md"):
        if fence.language != "text":
            path = tmp_path / fence.text.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.text)
    for package in ("shop", "shop/defs"):
        (tmp_path / package / "__init__.py").touch()
    assert (tmp_path / COMMUNITIES).is_file()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("GRAPHMILL_HOME", "GRAPHMILL_PIPELINES"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        del sys.modules[name]


def loaded() -> dg.Definitions:
    return importlib.import_module("shop.definitions").defs()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_assets_of_a_pipeline_stand_beside_those_of_the_project(project: Path) -> None:
    graph = loaded().get_repository_def().asset_graph
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        "communities/features",
        "communities/graph",
        "communities/sage",
        "largest_class",
    }
    below = graph.get(dg.AssetKey("largest_class"))
    assert below.parent_keys == {dg.AssetKey(["communities", "sage"])}
    assert graph.get(dg.AssetKey(["communities", "graph"])).group_name == "communities"
    jobs = {f"communities__{selection}" for selection in ("preprocess", "train", "all")}
    assert jobs <= {job.name for job in loaded().get_repository_def().get_all_jobs()}


def test_an_asset_below_a_model_reads_it(project: Path, quick_launches: None) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        done = loaded().resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
        assert done.success
        (own,) = done.asset_materializations_for_node("largest_class")
        (model,) = done.asset_materializations_for_node("communities__sage")
    path = project / COMMUNITIES
    trained = graphmill.open(path, "sage")
    assert own.metadata["nodes"].value == 1000 and (project / "classes.parquet").is_file()
    assert own.metadata["test accuracy"].value == trained.artifact.summary["numbers"]["test_accuracy"]
    assert model.metadata["dagster/uri"].value == trained.artifact.path.as_uri()
    assert trained.artifact.path.is_relative_to(project / ".graphmill")
    assert str(own.metadata["class"].value) in trained.graph.class_names


def test_a_home_inside_the_project_and_a_shipped_pipeline(project: Path, quick_launches: None) -> None:
    spec = project / "shop/defs/communities/defs.yaml"
    spec.write_text(spec.read_text() + "  home: results\n  threads: 1\n")
    with dg.DagsterInstance.ephemeral() as instance:
        job = loaded().resolve_job_def("communities__preprocess")
        assert job.execute_in_process(instance=instance).success
    found = graphmill.artifact(project / COMMUNITIES, "graph", home="results")
    assert found.path.is_relative_to(project / "results") and not (project / ".graphmill").exists()
    edit(spec, "communities.toml", "sbm")
    assert dg.AssetKey(["sbm", "gcn"]) in loaded().get_repository_def().asset_graph.get_all_asset_keys()


def test_a_run_keeps_the_file_as_it_was_when_it_was_launched(project: Path) -> None:
    pointer = CodePointer.from_python_file(str(project / "shop/definitions.py"), "defs", str(project))
    key, previous = dg.AssetKey(["communities", "graph"]), DefinitionsLoadContext._instance
    try:
        first = initialize_repository_def_from_pointer(pointer)
        edit(project / COMMUNITIES, "nodes = 1000", "nodes = 1001")
        again = reconstruct_repository_def_from_pointer(pointer, first.repository_load_data)
        fresh = initialize_repository_def_from_pointer(pointer)
    finally:
        DefinitionsLoadContext.set(previous)  # pyright: ignore[reportArgumentType]
    codes = [each.asset_graph.get(key).code_version for each in (first, again, fresh)]
    assert codes[0] == codes[1] != codes[2]


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        (COMMUNITIES, "nodes = 1000", "nodse = 1000", r"communities.toml:\d: \[graph\] has no key nodse"),
        ("shop/defs/communities/defs.yaml", ": communities.toml", ": absent.toml", "absent.toml"),
        ("shop/defs/communities/defs.yaml", "  pipeline:", "  pipelin:", "pipelin"),
    ],
)
def test_mistakes_are_told_when_the_project_is_loaded(project: Path, path: str, old: str, new: str, said: str) -> None:
    edit(project / path, old, new)
    with pytest.raises(ComponentTreeException) as error:
        loaded()
    chain, each = [], error.value
    while each is not None:
        chain.append(str(each))
        each = each.__cause__ or each.__context__
    assert any(re.search(said, text) for text in chain), chain
