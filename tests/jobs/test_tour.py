"""A tour of the web UI on a new user's first day, in a real browser: every page has what it should, and a picture of it is kept.

Pictures lie in pytest's folder of the run, or in `$GRAPHMILL_TEST_PICTURES`. Pipelines were run on the command line before the browser
opens; one file has mistakes, one run fails, and one trains while it is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs.commands.machine.ui import WORKSPACE
from tests.e2e.commands import graphmill
from tests.e2e.test_showcase import SHIPPED, SMALLER
from tests.jobs.browser import Page, find_browser
from tests.jobs.runs.processes import wait_for
from tests.jobs.server import Server
from tests.recipes import write_tiny

BROWSER = find_browser()
pytestmark = [
    pytest.mark.first,
    pytest.mark.slow("a browser on the page of every stage, of a failed run and of one that goes on"),
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: the pages of the UI were not looked at"),
]


TRAINED = ("cached", "disk", "distributed", "fullgraph")
"""Tables of the showcase that ask for all of its stages."""


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The UI over a home in which the command line ran a pipeline with every stage, a browser, and the folder of the pictures."""
    folder = tmp_path_factory.mktemp("tour")
    pictures = Path(os.environ.get("GRAPHMILL_TEST_PICTURES") or folder / "pictures")
    pictures.mkdir(parents=True, exist_ok=True)
    text = SHIPPED.read_text()
    for old, new in SMALLER.items():
        text = text.replace(old, new)
    (folder / "pipelines").mkdir()
    head, *trains = text.split("[[train]]\n")
    kept = [train for train in trains if any(f'name = "{name}"' in train for name in TRAINED)]
    assert len(kept) == len(TRAINED)
    (folder / "pipelines/showcase.toml").write_text("[[train]]\n".join([head, *kept]))
    write_tiny(folder / "pipelines", "long", tables=("sage",), epochs="2 -> 1000000")
    write_tiny(folder / "pipelines", "failing", tables=("sage",), epochs='2 -> 2\nworkspace = "1kB"')
    write_tiny(folder / "pipelines", "wrong", epochs='2 -> "many"')
    extra = {"GRAPHMILL_PIPELINES": str(folder / "pipelines")}
    weighted = '64 -> 64\nmethod = "weighted"\nweights = "node:in_degree"'
    write_tiny(folder / "pipelines", "weighted", tables=("sage",), batch_size=weighted)
    for name in ("showcase", "weighted"):
        ran = graphmill("run", name, "-q", home=folder / "home", cwd=folder, extra=extra)
        assert ran.returncode == 0, ran.stderr
    server = Server(folder, [WORKSPACE])
    page = Page(str(BROWSER), folder)
    try:
        server.wait_until_ready()
        yield SimpleNamespace(server=server, page=page, pictures=pictures, base=f"http://127.0.0.1:{server.port}")
    finally:
        page.close()
        server.stop()


def look(tour: SimpleNamespace, name: str, path: str, *wanted: str) -> None:
    tour.page.visit(f"{tour.base}{path}", list(wanted), picture=tour.pictures / f"{name}.png")


def test_the_landing_page_and_the_job_show_the_run_of_the_command_line(tour: SimpleNamespace) -> None:
    look(tour, "landing-page", "/overview/activity/timeline", "showcase__all")
    look(tour, "runs", "/runs", "showcase__all", "Success")
    look(tour, "job", "/locations/graphmill/jobs/showcase__all", "hotness", "packed_chunks")


def test_the_lineage_has_every_pipeline_and_the_one_with_mistakes(tour: SimpleNamespace) -> None:
    look(tour, "lineage", "/asset-groups", "showcase", "long", "failing", "wrong")
    look(tour, "pipeline", "/locations/graphmill/asset-groups/showcase", "hotness", "packed_chunks", "cached", "disk")
    look(tour, "mistakes", "/assets/wrong/mistakes", "the pipeline file has 2 mistakes", "is not a whole number")


@pytest.mark.parametrize("stage", [*(stage.name for stage in stages()), "cached", "disk"])
def test_each_page_explains_itself(tour: SimpleNamespace, stage: str) -> None:
    docs = f"docs/stages/{'model' if stage in ('cached', 'disk') else stage}.md"
    assert (ROOT / docs).is_file()
    # The showcase samples uniformly.
    pipeline = "weighted" if stage == "sampling_tables" else "showcase"
    of_set = stage in ("samples", "cache_plan", "packed_chunks")
    asset = f"{stage}.flat" if of_set else stage
    look(tour, stage, f"/assets/{pipeline}/{asset}?view=overview", docs, "Latest materialization", "Table", "Plots")
    look(tour, f"{stage}-checks", f"/assets/{pipeline}/{asset}?view=checks", "Passed")


def test_a_failed_run_says_what_to_do(tour: SimpleNamespace) -> None:
    run_id = tour.server.launch("failing__all")
    tour.server.wait_for_run(run_id, "FAILURE")
    look(tour, "failed-run", f"/runs/{run_id}", "workspace", "Failure")


def test_a_training_is_seen_while_it_runs(tour: SimpleNamespace) -> None:
    run_id = tour.server.launch("long__all")
    try:
        wait_for(lambda: tour.server.status(run_id) == "STARTED", "the run", 120)
        look(tour, "running", f"/runs/{run_id}", "loss", "epoch", "Started")
    finally:
        tour.server.cancel(run_id)
        tour.server.wait_for_run(run_id, "CANCELED")
