"""The project of docs/dagster.md in the real web UI: a person presses *Materialize all*, twice, and a sensor starts a run."""

from pathlib import Path

import dagster as dg
import pytest

from graphmill.assets.building import guard
from graphmill.jobs.runs.instance import open_instance
from tests.graphmill.test_component import project as project
from tests.graphmill.test_upstream import FEW, ROWS, model_of, write_sensor, write_slow_tables
from tests.jobs.browser import Page, find_browser
from tests.jobs.runs.processes import wait_for
from tests.jobs.server import Server

BROWSER = find_browser()
pytestmark = [
    pytest.mark.first,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: the pages of the UI were not looked at"),
]
SECONDS = 600
NEWS = "news.txt"
WORKSPACE = """\
load_from:
  - python_file:
      relative_path: shop/definitions.py
      working_directory: .
      location_name: shop
"""


def finished_runs(server: Server, count: int) -> list[dg.DagsterRun]:
    """Waits for so many runs; returns them, the last one first."""

    def found() -> list[dg.DagsterRun]:
        with open_instance(server.home) as instance:
            runs = list(instance.get_runs())
        return runs if len(runs) == count and all(run.is_finished for run in runs) else []

    return wait_for(found, f"the end of {count} runs", SECONDS)


@pytest.mark.slow(
    "own tables above a pipeline in the web UI: Materialize all from an empty home and again, then a sensor"
)
def test_materialize_all_and_a_sensor_build_in_order(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slow_tables(project, 2)
    write_sensor(project, NEWS)
    (project / NEWS).write_text("none")
    (project / "workspace.yaml").write_text(WORKSPACE)
    folder = tmp_path_factory.mktemp("server")
    installed = {"PYTHONPATH": str(project)}  # as a project is that was made by create-dagster
    server, page = Server(folder, [project / "workspace.yaml"], installed), Page(str(BROWSER), folder)
    monkeypatch.setenv("GRAPHMILL_HOME", str(server.home))
    seen = []
    try:
        server.wait_until_ready()
        base = f"http://127.0.0.1:{server.port}"
        page.visit(f"{base}/asset-groups", ["Materialize all", "communities"])
        for number in range(2):
            (project / ROWS).write_text(str(FEW + number))
            page.press("Materialize all", [], picture=folder / f"pressed-{number}.png")
            assert finished_runs(server, number + 1)[0].status == dg.DagsterRunStatus.SUCCESS
            page.visit(
                f"{base}/asset-groups", ["Materialize all", "communities"], picture=folder / f"built-{number}.png"
            )
            seen.append(model_of(project, FEW + number))
        (project / ROWS).write_text(str(FEW + 2))
        (project / NEWS).write_text("new rows")
        last = finished_runs(server, 3)[0]
        assert (last.status, last.tags["dagster/sensor_name"]) == (dg.DagsterRunStatus.SUCCESS, "new_rows")
        seen.append(model_of(project, FEW + 2))
        page.visit(f"{base}/assets/communities/sage?view=overview", ["valid accuracy (%)"])
    finally:
        page.close()
        server.stop()
    assert len(set(seen)) == 3
    assert not guard.group_members(server.process.pid), "an orphan"
