"""Pipeline files as Dagster definitions, without any server."""

import subprocess
import sys

import dagster as dg
import polars
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._core.storage.tags import TagType, get_tag_type

import graphmill.jobs.definitions
from graphmill.assets.definitions import MACHINE_TAG, SEEN_TAG, SLOT_TAG, Surroundings
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.hotness.stage import COUNTING_CHECKS, HOTNESS, LAYER_CHECKS
from graphmill.assets.pipeline.shown import WHOLE, allowed_name
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs, job_names, read_pipelines
from graphmill.jobs.operations.difference import DIFFERENCE_TAG, PIPELINE_TAG
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.record.checks import LEDGER_EQUALS_PLAN, MODEL_CHECKS, MODEL_WARNINGS
from tests.jobs.trained import trained_home
from tests.recipes import load_tiny, recipe, write_tiny


def _specs(definitions):
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


@pytest.fixture
def tiny(tmp_path):
    return load_tiny(tmp_path, "ti-ny")


def test_assets_have_keys_groups_versions_owners_and_checks(tiny, tmp_path):
    definitions = build_defs([tiny], Surroundings(store=Store(tmp_path / "home")))
    specs = _specs(definitions)
    assert set(specs) == {"ti-ny/graph", "ti-ny/features", "ti-ny/sage", "ti-ny/gcn"}
    assert {spec.group_name for spec in specs.values()} == {"ti_ny"}
    assert all(spec.code_version and spec.kinds for spec in specs.values())
    assert not any(spec.owners for spec in specs.values()), "nobody wrote an owner"
    assert [dep.asset_key.to_user_string() for dep in specs["ti-ny/sage"].deps] == ["ti-ny/graph", "ti-ny/features"]
    checks = {check.name for check in definitions.resolve_asset_graph().asset_check_keys}
    assert checks == {
        allowed_name(name)
        for name in (*GRAPH.expected_checks(tiny.graph), *FEATURES.checks, *MODEL_CHECKS, LEDGER_EQUALS_PLAN, WHOLE)
    }
    graph = definitions.resolve_asset_graph()
    of_model = {
        key.name: graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key.path[-1] == "sage"
    }
    assert {name for name, spec in of_model.items() if not spec.blocking} == {
        allowed_name(name) for name in (*MODEL_WARNINGS, WHOLE)
    }
    assert of_model["loss_fell"].description == ModelRecipe.says["loss fell"]
    names = {f"ti_ny__{selection}" for selection in ("preprocess", "train", "all")}
    assert names <= {job.name for job in definitions.resolve_all_job_defs()}


def test_hotness_is_an_asset_that_reads_the_graph(tmp_path):
    path = write_tiny(tmp_path)
    path.write_text(path.read_text() + "[hotness]\nrounds = 2\nevaluate_epochs = 1\n")
    (pipeline,), _ = read_pipelines({path: path.read_bytes()})
    definitions = build_defs([pipeline], Surroundings(store=Store(tmp_path / "home")))
    assert [dep.asset_key.to_user_string() for dep in _specs(definitions)["tiny/hotness"].deps] == ["tiny/graph"]
    job = definitions.resolve_job_def("tiny__preprocess")
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(instance=instance)
    (event,) = result.asset_materializations_for_node("tiny__hotness")
    best, chance = (f"hit ratio {policy} at 10 % (%)" for policy in ("optimal", "random"))
    assert event.metadata[best].value >= event.metadata[chance].value
    assert "![hit ratio](data:image/png;base64" in event.metadata["summary"].value
    checks = {
        check.check_name: check.passed
        for check in result.get_asset_check_evaluations()
        if check.asset_key.path[-1] == "hotness"
    }
    assert checks == dict.fromkeys(map(allowed_name, (*COUNTING_CHECKS, *LAYER_CHECKS, *HOTNESS.checks, WHOLE)), True)


def test_chunks_follow_partitions_and_both_pages_have_tables(tmp_path):
    path = write_tiny(tmp_path)
    path.write_text(path.read_text() + "[partitions]\nparts = 2\n\n[chunks]\nchunks_per_part = 3\n")
    (pipeline,), _ = read_pipelines({path: path.read_bytes()})
    definitions = build_defs([pipeline], Surroundings(store=Store(tmp_path / "home")))
    above = {name: {dep.asset_key.path[-1] for dep in spec.deps} for name, spec in _specs(definitions).items()}
    assert above["tiny/partitions"] == {"graph"} and above["tiny/chunks"] == {"graph", "partitions"}
    with dg.instance_for_test() as instance:
        result = definitions.resolve_job_def("tiny__preprocess").execute_in_process(instance=instance)
    shown = {
        event.asset_key.path[-1]: event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
    }
    for asset, label, column, first in (
        ("partitions", "the method beside parts at random", "measure", ["edge_cut", "replication"]),
        ("chunks", "rows from the host per layer, by schedule", "schedule", ["identity", "hongtu"]),
        ("chunks", "rows of all chunks per node, by chunks in all", "chunks", [2, 4]),
    ):
        records = [record.data for record in shown[asset][label].records]
        assert [row[column] for row in records[:2]] == first and next(iter(records[0])) == column
        assert "data:image/png;base64" in shown[asset]["summary"].value


def test_a_source_with_raw_content_has_an_observable_asset(tmp_path):
    text = write_tiny(tmp_path).read_text()
    start, end = text.index("[graph]"), text.index("[sampling]")
    path = tmp_path / "tiny.toml"
    path.write_text(text[:start] + '[graph]\nsource = "npz"\npath = "missing.npz"\n' + text[end:])
    found, mistakes = read_pipelines({path: path.read_bytes()})
    assert not mistakes, "whether the file is there is found out when it is read, not when definitions load"
    specs = _specs(build_defs(found, Surroundings(store=Store(tmp_path / "home"))))
    assert [dep.asset_key.to_user_string() for dep in specs["tiny/graph"].deps] == ["tiny/raw"]
    assert [dep.asset_key.to_user_string() for dep in specs["tiny/features"].deps] == ["tiny/raw.features"]
    assert "tiny/raw" in specs


def test_a_file_with_mistakes_does_not_hide_the_others(tmp_path, monkeypatch):
    write_tiny(tmp_path, "good")
    for name in ("bad", "grüße"):
        (tmp_path / f"{name}.toml").write_text('[graph]\nsource = "sbm"\nnods = 3\n')
    write_tiny(tmp_path, "taken").write_text(write_tiny(tmp_path, "other").read_text().replace('"sage"', '"graph"'))
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    specs = _specs(build_defs())
    assert "good/sage" in specs and "bad/graph" not in specs
    assert specs["bad/mistakes"].description.startswith("the pipeline file has"), "lists show the first line"
    assert "nods" in specs["bad/mistakes"].description and ":3:" in specs["bad/mistakes"].description
    assert 'name = "graph" is the name of a stage' in specs["taken/mistakes"].description
    assert specs["grüße/mistakes"].group_name == "gr__e"


def test_two_files_with_one_name_are_a_mistake(tmp_path):
    paths = [write_tiny(tmp_path / "a"), write_tiny(tmp_path / "b")]
    found, mistakes = read_pipelines({path: path.read_bytes() for path in paths})
    assert len(found) == 1 and "rename one of them" in str(mistakes["tiny"])


def test_pipelines_whose_ops_would_have_one_name_load_with_one_mistake(tmp_path, monkeypatch):
    # The first has an op with the name of a job of the second, and the third one with the name of an op of the fourth.
    for name, table in (("a", "b__train"), ("a__b", "c"), ("e", "f__g"), ("e__f", "g")):
        path = write_tiny(tmp_path, name, ("sage",))
        path.write_text(path.read_text().replace('"sage"', f'"{table}"'))
    write_tiny(tmp_path, "free")
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    definitions = build_defs()
    specs = _specs(definitions)
    assert {name for name in specs if name.endswith("mistakes")} == {"a__b/mistakes", "e__f/mistakes"}
    said = specs["e__f/mistakes"].description
    assert f"e__f__g, and so has {tmp_path / 'e.toml'}" in said and "rename one" in said
    assert {"free/sage", "e/f__g", "a/b__train"} <= set(specs)
    # This is what the UI and the daemon do with them; it raises where two definitions have one name.
    RepositorySnap.from_def(definitions.get_repository_def())


def test_a_file_on_which_reading_fails_does_not_hide_the_others(tmp_path, monkeypatch):
    good, bad = write_tiny(tmp_path, "good"), write_tiny(tmp_path, "bad")
    plain = graphmill.jobs.definitions.parse_pipeline

    def parse(path, *rest):
        if path == bad:
            raise ValueError("as no check has foreseen")
        return plain(path, *rest)

    monkeypatch.setattr(graphmill.jobs.definitions, "parse_pipeline", parse)
    found, mistakes = read_pipelines({path: path.read_bytes() for path in (bad, good)})
    assert [pipeline.name for pipeline in found] == ["good"]
    assert set(mistakes) == {"bad"} and "ValueError: as no check has foreseen" in str(mistakes["bad"])


def test_a_given_pipeline_with_mistakes_is_refused(tmp_path):
    text = write_tiny(tmp_path).read_text().replace('"sage"', '"raw"')
    (tmp_path / "tiny.toml").write_text(text)
    from graphmill.assets.pipeline.file import load_pipeline
    from graphmill.trainers.recipe.config import TrainTable

    with pytest.raises(InputError, match='name = "raw" is the name of a stage'):
        build_defs([load_pipeline(tmp_path / "tiny.toml", TrainTable)])


def test_the_recipe_of_models_is_that_of_the_stage():
    from graphmill.trainers.training.stage import ModelStage

    for name in ("name", "code_version", "Semantic"):
        assert getattr(ModelStage, name) == getattr(ModelRecipe, name)
    assert ModelStage.inputs is ModelRecipe.inputs and ModelStage.raw is ModelRecipe.raw


def test_loading_the_code_location_imports_nothing_heavy():
    """Each step of each run loads it anew."""
    code = (
        "import sys; import graphmill.jobs.definitions as d; d.defs(); "
        "print([m for m in ('torch', 'dgl', 'cupy', 'polars', 'matplotlib', 'duckdb', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_definitions_validate_from_any_directory(tmp_path):
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(ROOT / "workspace.yaml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [], "loading definitions writes nothing"


def test_a_pipeline_that_cannot_be_turned_into_assets_leaves_the_others(tmp_path, monkeypatch):
    """Whatever it is that goes wrong with one."""
    import graphmill.jobs.definitions

    for name in ("good", "odd"):
        write_tiny(tmp_path, name)
    whole = graphmill.jobs.definitions.source_assets

    def source_assets(steps, *rest):
        if steps[0].pipeline == "odd":
            raise dg.DagsterInvalidDefinitionError("broken for the test")
        return whole(steps, *rest)

    monkeypatch.setattr(graphmill.jobs.definitions, "source_assets", source_assets)
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    specs = _specs(build_defs())
    assert "good/sage" in specs and "odd/sage" not in specs
    assert "broken for the test" in specs["odd/mistakes"].description


def test_a_pipeline_whose_data_have_no_place_says_so_in_one_line(tmp_path, monkeypatch):
    text = write_tiny(tmp_path, "sound").read_text()
    start, end = text.index("[graph]"), text.index("[sampling]")
    graph = '[graph]\nsource = "npz"\npath = "${SOME_DATA}/g.npz"\n'
    (tmp_path / "lacking.toml").write_text(text[:start] + graph + text[end:])
    (tmp_path / "wrong.toml").write_text(text[:start] + graph + text[end:].replace("fanouts", "fanuts"))
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    monkeypatch.delenv("SOME_DATA", raising=False)
    specs = _specs(build_defs())
    assert "sound/sage" in specs and "wrong/mistakes" in specs
    said = specs["lacking/needs_data"].description
    assert "needs data: SOME_DATA is not set" in said and "export SOME_DATA=FOLDER" in said and "mistake" not in said


def test_assets_and_jobs_explain_themselves_and_name_their_line(tmp_path):
    path = write_tiny(tmp_path)
    notes = 'description = "Who **knows** whom."\nowners = ["ann@example.org"]\ntags = { area = "social" }\n'
    path.write_text(notes + path.read_text())
    (pipeline,), _ = read_pipelines({path: path.read_bytes()})
    definitions = build_defs([pipeline], Surroundings(store=Store(tmp_path / "home")))
    lines = path.read_text().splitlines()
    for name, spec in _specs(definitions).items():
        assert spec.description and "\n\nWho **knows** whom.\n\n" in spec.description, name
        said = f"Model `{name[5:]}`: 2 layers, 8 wide. Trainer `minibatch`: 2 epochs, batches of at most 64 seeds, fan-outs 4, 4"
        assert (said in spec.description) == (name in ("tiny/sage", "tiny/gcn")), name
        assert list(spec.owners) == ["ann@example.org"] and spec.tags["area"] == "social"
        page = (
            ModelRecipe.page
            if name in ("tiny/sage", "tiny/gcn")
            else {"tiny/graph": GRAPH, "tiny/features": FEATURES}[name].page
        )
        assert page.about in spec.description and page.docs in spec.description and spec.kinds == page.kinds
        assert spec.description.startswith(said if said in spec.description else page.about), (
            "lists show the first line"
        )
        place, manual = spec.metadata["dagster/code_references"].code_references
        assert manual.file_path == str(ROOT / page.docs) and (ROOT / page.docs).is_file() and manual.label == page.docs
        table = {"tiny/sage": "[[train]]", "tiny/gcn": "[[train]]"}.get(name, "[graph]")
        assert (place.file_path, lines[place.line_number - 1]) == (str(path), table), name
    for job in definitions.resolve_all_job_defs():
        if job.name.startswith("tiny__"):
            assert (
                job.description and job.description.startswith("Who **knows** whom.") and str(path) in job.description
            )
            assert job.tags["area"] == "social"
    assert "`sage`" not in (definitions.resolve_job_def("tiny__preprocess").description or "")


def _shown(pipeline, home, selection="preprocess"):
    """Runs a job of a pipeline; returns name of an asset -> the metadata of its materialisation."""
    definitions = build_defs([pipeline], Surroundings(store=Store(home)))
    with dg.instance_for_test() as instance:
        result = definitions.resolve_job_def(job_names(pipeline.name)[selection]).execute_in_process(instance=instance)
    return {
        event.asset_key.path[-1]: event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
    }


def _from_tables(folder, **keys):
    """Writes tables of edges and nodes and a pipeline that reads them; returns the pipeline."""
    polars.DataFrame({"src": [4, 4, 7], "dst": [7, 9, 9]}).write_parquet(folder / "edges.parquet")
    nodes = {"paper": [4, 7, 9], "field": ["a", "b", "a"], "title": ["x", "y", "z"]}
    polars.DataFrame(nodes).write_parquet(folder / "nodes.parquet")
    path = folder / "tables.toml"
    path.write_text(recipe(graph={"source": "edges", "edges": "edges.parquet"} | keys))
    (pipeline,), mistakes = read_pipelines({path: path.read_bytes()})
    assert not mistakes
    return pipeline


def test_columns_lead_to_those_of_the_source_that_decide_them(tmp_path):
    nodes = {"nodes": "nodes.parquet", "id_column": "paper", "label_column": "field", "labels": "names"}
    graph = _shown(_from_tables(tmp_path, **nodes, name_column="title"), tmp_path / "home")["graph"]

    def lineage(metadata):
        deps = metadata["dagster/column_lineage"].column_lineage.deps_by_column
        return {column: {(dep.asset_key.path[-1], dep.column_name) for dep in found} for column, found in deps.items()}

    of_edges = {"in_degree": {("raw", "dst")}, "out_degree": {("raw", "src")}}
    of_nodes = {
        "labels": {("raw", "field")},
        "node_id": {("raw", "paper")},
        "original_id": {("raw", "paper")},
        "class": {("raw", "field")},
    }
    assert lineage(graph) == of_edges | of_nodes | {"name": {("raw", "title")}}
    unnamed = _shown(_from_tables(tmp_path, **nodes), tmp_path / "home")["graph"]
    assert lineage(unnamed) == of_edges | of_nodes, "a graph without names has no such column"
    alone = _shown(_from_tables(tmp_path), tmp_path / "home")["graph"]
    assert lineage(alone) == of_edges, "no table of nodes is there"


def test_nothing_has_columns_before_its_file_is_there(tiny, tmp_path):
    specs = _specs(build_defs([tiny], Surroundings(store=Store(tmp_path / "home"))))
    for name, spec in specs.items():
        assert not {key for key in spec.metadata if "column" in key}, name
    for role in ("graph", "features"):
        assert specs["ti-ny/sage"].metadata[f"reads {role}"].asset_key == dg.AssetKey(["ti-ny", role])


def test_a_model_has_no_columns_of_predictions_that_nobody_wrote(tmp_path):
    pipeline = load_tiny(tmp_path)
    store = trained_home(tmp_path)
    shown = _shown(pipeline, store.home, "train")
    assert shown["sage"]["reused"].value is True and not {key for key in shown["sage"] if "column" in key}
    assert "dagster/row_count" not in shown["sage"]


def test_tags_that_only_programs_read_are_hidden(tiny, tmp_path):
    definitions = build_defs([tiny], Surroundings(store=Store(tmp_path / "home")))
    job = definitions.resolve_job_def("ti_ny__preprocess")
    with dg.instance_for_test() as instance:
        run = instance.get_run_by_id(job.execute_in_process(instance=instance).run_id)
    ours = {tag for tag in run.tags if "graphmill" in tag}
    assert {MACHINE_TAG, SEEN_TAG, PIPELINE_TAG} == ours
    assert {get_tag_type(tag) for tag in (*ours, SLOT_TAG, DIFFERENCE_TAG)} == {TagType.HIDDEN}
    assert all(
        not spec.tags.keys() - {f"dagster/kind/{kind}" for kind in spec.kinds} for spec in _specs(definitions).values()
    )


def test_artifacts_that_are_tables_say_so_under_the_keys_of_dagster(tiny, tmp_path):
    shown = _shown(tiny, tmp_path / "home")
    for name, columns in (("graph", {"in_degree": "int32", "class": "string"}), ("features", {"rows": "float32[8]"})):
        assert shown[name]["dagster/row_count"].value == 300
        found = {column.name: column.type for column in shown[name]["dagster/column_schema"].schema.columns}
        assert found.items() >= columns.items()
        assert shown[name]["dagster/uri"].value.startswith(f"file://{tmp_path}/home/store/{name}/")


def test_what_the_launchpad_does_not_know_is_refused_before_a_step_starts(tiny, tmp_path):
    definitions = build_defs([tiny], Surroundings(store=Store(tmp_path / "home")))
    job = definitions.resolve_job_def("ti_ny__train")
    for config, message in (
        ({"epoch_lines": "everything"}, "epoch_lines"),
        ({"resume": "perhaps"}, "resume"),
        ({"epochs": 3}, "epochs"),
    ):
        with dg.instance_for_test() as instance:
            with pytest.raises(dg.DagsterInvalidConfigError, match=message):
                job.execute_in_process(instance=instance, run_config={"ops": {"ti_ny__sage": {"config": config}}})
            assert instance.get_runs() == []
    assert dg.validate_run_config(job, {"ops": {"ti_ny__sage": {"config": {"epoch_lines": "none", "resume": True}}}})
