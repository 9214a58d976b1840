"""Assets of a project above a pipeline whose tables are new in each run, one of them slow: every model is of the tables of its own run."""

from pathlib import Path

import dagster as dg
import polars
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

import graphmill
from graphmill.assets.sources.edges.asset import keep_table
from graphmill.assets.storage.names.upstream import asset_table, steps_of
from tests.docs.pages import ROOT, fences
from tests.graphmill.test_component import COMMUNITIES, GRAPH, TABLES, artifact_of, edit, loaded, run
from tests.graphmill.test_component import project as project
from tests.graphmill.test_retries import execute
from tests.jobs.conftest import quick_launches as quick_launches

ROWS = "rows.txt"
"""File that holds the number of rows of the next table of edges."""
FEW = 8000
DATA = 'key:"communities/graph" or key:"communities/features"'
BY_PROCESSES = {"execution": {"config": {"multiprocess": {"max_concurrent": 4}}}}
MANY = pytest.param(20, marks=pytest.mark.slow("20 runs, each with other tables, a process for each step"))
DATABASE = """\
import dagster as dg
from tests.graphmill.test_component import OneDatabase

@dg.definitions
def database():
    return dg.Definitions(resources={"io_manager": OneDatabase(path="shop.duckdb")})
"""
SENSOR = """\
from pathlib import Path
import dagster as dg

@dg.sensor(target=dg.AssetSelection.all(), minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def new_rows(context):
    rows = Path(FILE).read_text()
    if context.cursor in (None, rows):
        return dg.SensorResult(cursor=rows, skip_reason="no new rows")
    return dg.SensorResult(cursor=rows, run_requests=[dg.RunRequest(tags={"rows": rows})])
"""


def write_slow_tables(project: Path, seconds: float) -> None:
    """Makes the table of edges take some seconds, and have as many rows as a file says: one that is not waited for is the wrong one."""
    edit(project / TABLES, "import numpy as np", "import time\nfrom pathlib import Path\n\nimport numpy as np")
    edit(project / TABLES, "size=(2, 8000)", f"size=(2, int(Path({str(project / ROWS)!r}).read_text()))")
    edit(project / TABLES, "    ends = np.random", f"    time.sleep({seconds})\n    ends = np.random")
    edit(project / COMMUNITIES, "epochs = 2", "epochs = 1")
    (project / ROWS).write_text(str(FEW))


def write_sensor(project: Path, file: str) -> None:
    """Adds a sensor that runs all assets when the text of a file changes."""
    (project / "shop/defs/sensing.py").write_text(SENSOR.replace("FILE", repr(str(project / file))))


def model_of(project: Path, rows: int) -> str:
    """Returns the version of the model, whose graph is that of a table of edges with so many rows."""
    assert polars.scan_parquet(asset_table("shop/edges")).select(polars.len()).collect().item() == rows
    graph, model = (graphmill.artifact(project / COMMUNITIES, name) for name in ("graph", "sage"))
    assert model.inputs["graph"]["version"] == graph.version
    return model.version


@pytest.mark.first
@pytest.mark.parametrize(
    "runs", [pytest.param(2, marks=pytest.mark.slow("two runs, each with other tables, a process for each step")), MANY]
)
def test_each_model_is_of_the_tables_of_its_run(project: Path, runs: int) -> None:
    write_slow_tables(project, 1)
    (project / "history").mkdir()
    seen = set()
    with dg.DagsterInstance.local_temp(str(project / "history")) as instance:
        for rows in range(FEW, FEW + runs):
            (project / ROWS).write_text(str(rows))
            done, lines = execute(instance, run_config=BY_PROCESSES)
            assert done.status == dg.DagsterRunStatus.SUCCESS, lines
            seen.add(model_of(project, rows))
    assert len(seen) == runs


@pytest.mark.parametrize("runs", [2, MANY])
def test_a_sensor_runs_new_tables_of_a_database(project: Path, quick_launches: None, runs: int) -> None:
    write_slow_tables(project, 0.1)
    write_sensor(project, ROWS)
    (project / "shop/defs/database.py").write_text(DATABASE)
    (project / "history").mkdir()
    repository, cursor, seen = loaded().get_repository_def(), None, []
    sensor = repository.get_sensor_def("new_rows")
    with dg.DagsterInstance.local_temp(str(project / "history")) as instance:
        for rows in (FEW, *range(FEW, FEW + runs + 1)):  # what is there at first, and what is not new, starts nothing
            (project / ROWS).write_text(str(rows))
            context = dg.build_sensor_context(instance, cursor, repository_def=repository)
            tick = sensor.evaluate_tick(context)
            cursor = tick.cursor
            for request in tick.run_requests or ():
                done, lines = execute(instance, run_config=BY_PROCESSES if runs > 2 else {}, tags=request.tags)
                assert done.status == dg.DagsterRunStatus.SUCCESS, lines
                seen.append((request.tags["rows"], model_of(project, rows)))
    assert [int(rows) for rows, _ in seen] == [*range(FEW + 1, FEW + runs + 1)]
    assert len({model for _, model in seen}) == runs


def test_a_run_trains_on_its_tables_while_another_loads_newer_ones(project: Path, quick_launches: None) -> None:
    newer = polars.DataFrame({"src": [0, 1], "dst": [1, 2]})

    @dg.asset(deps=[GRAPH], op_tags={"dagster/priority": "5"})
    def another_run() -> None:
        with steps_of("another run"):
            keep_table("shop/edges", newer, asset_table("shop/edges"))

    with dg.DagsterInstance.ephemeral() as instance:
        done = run(instance, "*", assets=[another_run])
        assert done.success
        order = [event.step_key for event in done.all_events if event.is_step_success]
        assert order.index("another_run") < order.index("communities__sage") < order.index("largest_class")
        graph, model = (artifact_of(done, dg.AssetKey(["communities", name])) for name in ("graph", "sage"))
        assert model["dagster/input_data_version/communities/graph"] == graph["dagster/data_version"]
        table = asset_table("shop/edges")
        assert polars.read_parquet(table).equals(newer)
        assert (table.parent / done.run_id).is_dir()  # it has the nodes that were loaded last
        run(instance, "communities/graph")
        assert not (table.parent / "another run").exists() and not (table.parent / done.run_id).exists()


def test_pipelines_of_one_run_share_the_table_that_it_loaded(tmp_path: Path) -> None:
    table, frame = tmp_path / "upstream" / "edges.parquet", polars.DataFrame({"src": [0], "dst": [1]})
    with steps_of("of one"):
        keep_table("edges", frame, table)
        before = table.stat()
        keep_table("edges", frame, table)
        assert table.stat() == before  # another one may be reading it
    with steps_of("of another"):
        keep_table("edges", frame, table)
    assert table.resolve().parent.name == "of another" and (tmp_path / "upstream/of one/edges.parquet").stat() == before


VERSIONED = "def by_content"
"""How the page gives a table the data version of its content."""


def stale(instance: dg.DagsterInstance) -> dict[str, list[tuple[str, str]]]:
    """Returns name of each stale asset of the pipeline -> why, and because of which asset."""
    graph = loaded().get_repository_def().asset_graph
    found = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    return {
        key.path[-1]: [
            (cause.reason, each.to_user_string())
            for cause in found.get_stale_causes(key)
            if (each := cause.dependency_asset_key) is not None
        ]
        for key in graph.get_all_asset_keys()
        if key.path[0] == "communities" and found.get_status(key).name == "STALE"
    }


def test_the_graph_is_stale_when_the_content_of_a_table_changes(project: Path, quick_launches: None) -> None:
    materialized = {name: [("has a new dependency materialization", "shop/edges")] for name in ("graph", "features")}
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance).success and stale(instance) == {}
        assert run(instance, "shop/edges").success
        assert stale(instance) == materialized  # Dagster does not know what is in it
        same = run(instance, DATA)
        assert same.success and stale(instance) == {}  # neither is the model
        edit(project / TABLES, "8000", "8001")
        run(instance, "shop/edges")
        assert stale(instance) == materialized
        run(instance, DATA)
        assert stale(instance) == {"sage": [("has a new dependency data version", "communities/graph")]}
        assert run(instance, "communities/sage").success and stale(instance) == {}


def test_the_graph_stays_fresh_when_tables_with_versions_are_written_again(project: Path) -> None:
    (function,) = [each.text for each in fences(ROOT / "docs" / "dagster.md") if VERSIONED in each.text]
    table = 'polars.DataFrame({"src": ends[0], "dst": ends[1]})'
    edit(project / TABLES, table, f"by_content({table})")
    edit(project / TABLES, "def edges() -> polars.DataFrame", "def edges() -> dg.MaterializeResult[polars.DataFrame]")
    edit(project / TABLES, "import polars\n", f"import polars\n\n{function}")
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(instance, f"+{DATA}").success and stale(instance) == {}
        assert run(instance, "shop/edges").success and stale(instance) == {}
        edit(project / TABLES, "8000", "8001")
        run(instance, "shop/edges")
        why = [("has a new dependency data version", "shop/edges")]
        assert stale(instance) == {"graph": why, "features": why}
