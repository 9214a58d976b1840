"""The component in a Dagster project: that of docs/dagster.md is loaded as Dagster loads it, and run, with its own asset below a model."""

import importlib
import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
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
from tests.jobs.runs.processes import wait_for

EDITS = itertools.count(1)
COMMUNITIES, DEFS, TABLES = (
    "shop/defs/communities/communities.toml",
    "shop/defs/communities/defs.yaml",
    "shop/defs/tables.py",
)
GRAPH = dg.AssetKey(["communities", "graph"])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project of the page, as the current folder and on Python's path, with a home inside it."""
    for fence in fences(ROOT / "docs" / "dagster.md"):
        if (first := fence.text.splitlines()[0]).startswith("# "):
            path = tmp_path / first.removeprefix("# ")
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


def run(instance: dg.DagsterInstance, selection: str = "*", **more: Any) -> dg.ExecuteInProcessResult:
    """Runs a selection of the project's assets, read anew."""
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        del sys.modules[name]
    chosen = dg.define_asset_job("chosen", selection=dg.AssetSelection.from_string(selection))
    return (
        dg.Definitions.merge(loaded(), dg.Definitions(jobs=[chosen], **more))
        .resolve_job_def("chosen")
        .execute_in_process(instance=instance, raise_on_error=False)
    )


def test_the_eight_lines_of_the_readme_are_a_project(project: Path, quick_launches: None) -> None:
    toml, python = [each.text for each in fences(ROOT / "README.md") if "communities" in each.text]
    (project / COMMUNITIES).write_text(toml)
    (project / "shop/defs/largest.py").write_text(f"import dagster as dg\nimport polars\n\n{python}")
    assert len((toml + python).splitlines()) <= 8
    with dg.DagsterInstance.ephemeral() as instance:
        done = run(instance)
        assert done.success
        assert done.output_for_node("largest_class") in graphmill.open(project / COMMUNITIES, "sage").graph.class_names


def artifact_of(done: dg.ExecuteInProcessResult, key: dg.AssetKey = GRAPH) -> Mapping[str, str]:
    """Returns the tags of the materialisation of an asset."""
    (made,) = [each for each in done.get_asset_materialization_events() if each.asset_key == key]
    return made.materialization.tags or {}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    # Python takes the compiled code of a file with the same second and size for that of the file.
    later = path.stat().st_mtime + 10 * next(EDITS)
    os.utime(path, (later, later))


def test_the_assets_of_a_pipeline_stand_beside_those_of_the_project(project: Path) -> None:
    graph = loaded().get_repository_def().asset_graph
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        "communities/features",
        "communities/graph",
        "communities/sage",
        "largest_class",
        "shop/edges",
        "shop/nodes",
    }
    tables = {dg.AssetKey(["shop", "edges"]), dg.AssetKey(["shop", "nodes"])}
    for name in ("graph", "features"):
        assert graph.get(dg.AssetKey(["communities", name])).parent_keys == tables
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
    assert own.metadata["nodes"].value == 1000
    assert own.metadata["test accuracy"].value == trained.artifact.summary["numbers"]["test_accuracy"]
    assert model.metadata["dagster/uri"].value == trained.artifact.path.as_uri()
    assert trained.artifact.path.is_relative_to(project / ".graphmill")
    assert str(own.metadata["class"].value) in trained.graph.class_names


def test_the_graph_is_of_the_tables_that_its_run_wrote(project: Path) -> None:
    version = "dagster/data_version"
    with dg.DagsterInstance.ephemeral() as instance:
        first = artifact_of(run(instance, "*communities/graph"))
        same = artifact_of(run(instance, "*communities/graph"))
        edit(project / TABLES, "8000", "8001")
        more = artifact_of(run(instance, "*communities/graph"))
        kept = artifact_of(
            run(instance, "communities/graph")
        )  # without the tables: their IO manager loads them as they are stored
    assert first[version] == same[version] != more[version] == kept[version]
    edges = "dagster/input_data_version/shop/edges"
    assert first[edges] != same[edges] != more[edges] == kept[edges]
    assert graphmill.artifact(project / COMMUNITIES, "graph").version == more[version]


class OneDatabase(dg.ConfigurableIOManager):
    """Keeps each frame as a table of one DuckDB file, and loads a relation. One process at a time has the file open."""

    path: str

    def _opened(self) -> Any:
        with suppress(duckdb.IOException):
            return duckdb.connect(self.path)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        name = context.asset_key.path[-1]
        obj.write_parquet(f"{name}.parquet")
        with wait_for(self._opened, self.path) as database:
            database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM '{name}.parquet'")

    def load_input(self, context: dg.InputContext) -> Any:
        return wait_for(self._opened, self.path).table(context.asset_key.path[-1])


def test_tables_of_a_database_give_the_same_graph(project: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        frames = artifact_of(run(instance, "*communities/graph"))
        database = OneDatabase(path=str(project / "shop.duckdb"))
        tables = artifact_of(run(instance, "*communities/graph", resources={"io_manager": database}))
    assert frames["dagster/data_version"] == tables["dagster/data_version"]


FILES = """\
import dagster as dg
import numpy as np
import polars

def written(name, frame):
    frame.write_parquet(f"{name}.parquet")

@dg.asset(key_prefix="shop")
def nodes():
    written("nodes", polars.DataFrame({"id": np.arange(100), "kind": np.arange(100) % 3, "f0": np.arange(100.0)}))

@dg.asset(key_prefix="shop")
def edges():
    written("edges", polars.DataFrame({"src": np.arange(100), "dst": np.arange(100)[::-1]}))
"""


@pytest.mark.parametrize(
    "how",
    ["after = ['shop/edges', 'shop/nodes']", "{edges: shop/edges, nodes: shop/nodes}", "[shop/edges, shop/nodes]"],
)
def test_a_pipeline_of_files_waits_for_the_assets_that_write_them(project: Path, how: str) -> None:
    (project / TABLES).write_text(FILES)
    path = project / COMMUNITIES
    text = path.read_text().replace('"asset"', '"edges"')
    for name in ("edges", "nodes"):
        text = text.replace(f"shop/{name}", str(project / f"{name}.parquet"))
    path.write_text(text.replace("[graph]", f"[graph]\n{how}") if how.startswith("after") else text)
    if not how.startswith("after"):
        (project / DEFS).write_text((project / DEFS).read_text() + f"  upstream: {how}\n")
    with dg.DagsterInstance.ephemeral() as instance:
        tags = artifact_of(run(instance, "*communities/graph"))  # from an empty folder: the files are not there yet
    assert {each.rpartition("/")[2] for each in tags if "input_data_version/shop" in each} == {"edges", "nodes"}


def test_assets_that_write_the_rows_of_features(project: Path) -> None:
    path = project / COMMUNITIES
    path.write_text(path.read_text() + "[features]\n[features.wide]\ncolumns = 'f*'\nafter = ['shop/wide']\n")
    (project / DEFS).write_text((project / DEFS).read_text() + "  upstream: {features.wide: shop/wider}\n")
    path.write_text(path.read_text().replace('name = "sage"', 'name = "sage"\nfeature_table = "wide"'))
    graph = loaded().get_repository_def().asset_graph
    parents = {name: graph.get(dg.AssetKey(["communities", name])).parent_keys for name in ("graph", "features.wide")}
    own = {dg.AssetKey(["shop", "wide"]), dg.AssetKey(["shop", "wider"])}
    assert own < parents["features.wide"] and not own & parents["graph"]


def test_automation_waits_for_all_tables(project: Path) -> None:
    def eager(spec: dg.AssetSpec) -> dg.AssetSpec:
        return (
            spec.replace_attributes(automation_condition=dg.AutomationCondition.eager()) if spec.key == GRAPH else spec
        )

    definitions = loaded().map_asset_specs(func=eager)
    edges, nodes = (dg.AssetKey(["shop", name]) for name in ("edges", "nodes"))
    with dg.DagsterInstance.ephemeral() as instance:
        asked = dg.evaluate_automation_conditions(defs=definitions, instance=instance)
        counts = []
        for key in (edges, nodes):
            instance.report_runless_asset_event(dg.AssetMaterialization(key))
            asked = dg.evaluate_automation_conditions(defs=definitions, instance=instance, cursor=asked.cursor)
            counts.append(asked.total_requested)
    assert counts == [0, 1]


def test_the_command_line_names_the_assets_and_reads_what_was_loaded(project: Path) -> None:
    path, said = project / COMMUNITIES, []
    with pytest.raises(graphmill.InputError, match='edges = "shop/edges": no run has loaded this asset'):
        graphmill.run(path, selection="preprocess")
    with dg.DagsterInstance.ephemeral() as instance:
        made = artifact_of(run(instance, "*communities/graph"))
    done = graphmill.run(path, selection="preprocess", report=said.append)
    assert said[0] == "comes after shop/edges, shop/nodes: assets of a Dagster project, which are not run from here"
    (reused,) = done.artifacts["graph"]
    assert reused.version == made["dagster/data_version"]


def test_a_home_inside_the_project_and_a_shipped_pipeline(project: Path, quick_launches: None) -> None:
    spec = project / DEFS
    spec.write_text(spec.read_text() + "  home: results\n  threads: 1\n")
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance, "*communities/graph").success
    found = graphmill.artifact(project / COMMUNITIES, "graph", home="results")
    assert found.path.is_relative_to(project / "results") and not (project / ".graphmill").exists()
    edit(spec, "communities.toml", "sbm")
    (project / "shop/defs/largest.py").unlink()  # it reads the model of the other pipeline
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        del sys.modules[name]
    assert dg.AssetKey(["sbm", "gcn"]) in loaded().get_repository_def().asset_graph.get_all_asset_keys()


def test_a_run_keeps_the_file_as_it_was_when_it_was_launched(project: Path) -> None:
    pointer = CodePointer.from_python_file(str(project / "shop/definitions.py"), "defs", str(project))
    key, previous = dg.AssetKey(["communities", "graph"]), DefinitionsLoadContext._instance
    try:
        first = initialize_repository_def_from_pointer(pointer)
        edit(project / COMMUNITIES, "[graph]", "[graph]\nundirected = false")
        again = reconstruct_repository_def_from_pointer(pointer, first.repository_load_data)
        fresh = initialize_repository_def_from_pointer(pointer)
    finally:
        DefinitionsLoadContext.set(previous)  # pyright: ignore[reportArgumentType]
    codes = [each.asset_graph.get(key).code_version for each in (first, again, fresh)]
    assert codes[0] == codes[1] != codes[2]


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        (COMMUNITIES, "nodes =", "nodse =", r"communities.toml:\d: \[graph\] has no key nodse"),
        (COMMUNITIES, "shop/nodes", "shop//nodes", r'communities.toml:\d: nodes = "shop//nodes" is not an asset key'),
        (COMMUNITIES, "[graph]", "[graph]\nafter = ['']", r'communities.toml:\d: after: "" is not an asset key'),
        (DEFS, "attributes:", "attributes:\n  upstream: {nodse: shop/nodes}", r"has no nodse \(did you mean nodes\?\)"),
        (DEFS, "attributes:", "attributes:\n  upstream: [shop/]", r'upstream: "shop/" is not an asset key'),
        (DEFS, ": communities.toml", ": absent.toml", "absent.toml"),
        (DEFS, "  pipeline:", "  pipelin:", "pipelin"),
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


def check_alone(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.ExecuteInProcessResult:
    """Executes all checks of an asset and no asset, as its page of checks does."""
    graph = loaded().get_repository_def().asset_graph
    checks = [each for each in graph.asset_check_keys if each.asset_key == key]
    job = loaded().resolve_implicit_global_asset_job_def()
    return job.get_subset(asset_selection=set(), asset_check_selection=set(checks)).execute_in_process(
        instance=instance
    )


def damage(artifact: graphmill.Artifact) -> None:
    """Flips a bit in the largest file."""
    path = max(artifact.path.iterdir(), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def test_checks_run_alone_on_what_is_stored(project: Path, quick_launches: None) -> None:
    keys = [dg.AssetKey(["communities", name]) for name in ("graph", "features", "sage")]
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance, "group:default and not key:largest_class").success  # the two tables
        for key in keys:
            skipped = check_alone(instance, key)
            assert skipped.success and not skipped.get_asset_check_evaluations()
        built = run(instance, "*communities/sage")
        found = {}
        for key in keys:
            before = {each.check_name: each for each in built.get_asset_check_evaluations() if each.asset_key == key}
            alone = {each.check_name: each for each in check_alone(instance, key).get_asset_check_evaluations()}
            assert before.keys() == alone.keys() and len(alone) > 3
            for each, result in alone.items():
                assert result.passed == before[each].passed
                assert result.description == before[each].description or each == "stored_bytes_are_whole"
            assert "were read and compared" in (alone["stored_bytes_are_whole"].description or "")
            found[key] = {each for each, result in alone.items() if result.passed}
        for key in reversed(keys):  # a model is checked beside a whole graph
            damage(graphmill.artifact(project / COMMUNITIES, key.path[-1]))
            results = check_alone(instance, key).get_asset_check_evaluations()
            failed = {each.check_name for each in results if not each.passed}
            assert failed & found[key] == {"stored_bytes_are_whole"}


def test_a_run_without_checks_loses_no_result(project: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run(instance, "*communities/graph")
        selection = dg.AssetSelection.assets(GRAPH).without_checks()
        job = dg.define_asset_job("bare", selection=selection)
        bare = dg.Definitions.merge(loaded(), dg.Definitions(jobs=[job])).resolve_job_def("bare")
        done = bare.execute_in_process(instance=instance)
        assert done.success and not done.get_asset_check_evaluations()
        graph = loaded().get_repository_def().asset_graph
        keys = [each for each in graph.asset_check_keys if each.asset_key == GRAPH]
        records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        assert {each.status.value for each in records.values()} == {"SUCCEEDED"} and len(records) == len(keys)
