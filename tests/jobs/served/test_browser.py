"""What a person does and sees in a real browser: builds a pipeline, opens its assets, turns a schedule on.

The pictures of the pages stay in the folder of the test, for people to look at.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.jobs.browser import Page, find_browser

BROWSER = find_browser()
pytestmark = [
    pytest.mark.first,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: the pages of the UI were not looked at"),
]
IMAGE, SHOW = "data:image/png;base64,iVBOR", "Show Markdown"


@pytest.fixture
def page(tmp_path):
    opened = Page(str(BROWSER), tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("pipeline", "models", "dtype", "seconds"),
    [
        ("seen", ("sage",), "float32", 600),
        pytest.param(
            "python-environment",
            ("sage", "gcn"),
            "uint8",
            900,
            marks=pytest.mark.slow("a browser builds what `make demo` builds"),
        ),
    ],
)
def test_a_new_user_builds_a_pipeline_and_opens_its_assets(server, page, tmp_path, pipeline, models, dtype, seconds):
    """From the first page on; the long form builds what `make demo` builds."""
    base = f"http://127.0.0.1:{server.port}"
    page.visit(f"{base}/", ["Overview", "Catalog", "Automation"], picture=tmp_path / "first.png")
    group = pipeline.replace("-", "_")
    place = f"{base}/locations/__repository__@graphmill/asset-groups/{group}/lineage"
    page.visit(place, ["Materialize all", "Never materialized", "graph", "features", *models])
    page.press(
        "Materialize all",
        [],
        unwanted=["Never materialized", "Materializing"],
        picture=tmp_path / "built.png",
        seconds=seconds,
    )
    page.visit(f"{base}/runs", [f"{pipeline} / sage", "Success", "Manually launched"], picture=tmp_path / "runs.png")
    assert {asset["stale"] for asset in server.assets(pipeline).values()} == {"FRESH"}
    for asset, wanted in (
        ("graph", ["headline", "edges inside a class (%)", IMAGE]),
        ("features", ["values per row", "type of a value", dtype, "row for every node"]),
        *((model, ["valid accuracy (%)", IMAGE]) for model in models),
    ):
        open_asset(page, f"{base}/assets/{pipeline}/{asset}?view=overview", wanted, tmp_path / f"{asset}.png")
    page.visit(
        f"{base}/assets/{pipeline}/graph?view=checks",
        ["rows_are_sorted", "splits_are_disjoint", "Passed"],
        picture=tmp_path / "checks.png",
    )
    page.visit(
        f"{base}/assets/{pipeline}/sage?view=lineage", ["graph", "features", "sage"], picture=tmp_path / "lineage.png"
    )
    jobs = [f"{group}__{selection}" for selection in ("all", "preprocess", "train")]
    page.visit(f"{base}/locations/graphmill/jobs", jobs, picture=tmp_path / "jobs.png")
    address = f"/graphmill/report/{pipeline}"
    page.visit(f"{base}/assets/{pipeline}/{models[0]}?view=overview", [f'href="{address}"'])
    page.visit(f"{base}/locations/graphmill/jobs/{group}__all", ["The report of its models"])
    page.press(
        "The report of its models",
        [f"{pipeline}: report", 'id="leaderboard"', *models],
        picture=tmp_path / "report.png",
    )


def open_asset(page: Page, address: str, wanted: list[str], picture: Path) -> None:
    """Opens an asset, with its figures where it has some."""
    page.visit(address, wanted, click=(SHOW, "summary") if IMAGE in wanted else None, picture=picture)


def test_a_schedule_that_is_turned_on_shows_its_next_tick(server, page, tmp_path):
    """It is off at first, as its file says, and its time of the day is half a day away, so that no run disturbs other tests."""
    base = f"http://127.0.0.1:{server.port}"
    page.visit(f"{base}/automation", ["timed__schedule", "At "], picture=tmp_path / "automation.png")
    place = f"{base}/locations/__repository__@graphmill/schedules/timed__schedule"
    before = page.visit(place, ["Schedule has never run", "checkbox", "Execution timezone"])
    assert "Next tick" not in before and schedule(server) == ("STOPPED", [])
    try:
        page.press("checkbox", ["Next tick", "timed__all"], picture=tmp_path / "schedule.png")
        status, (tick,) = schedule(server)
        assert status == "RUNNING"
        away = datetime.fromtimestamp(tick, UTC) - datetime.now(UTC)
        assert timedelta(hours=6) < away < timedelta(hours=18)
    finally:
        page.press("checkbox", [], unwanted=["Next tick"])
    assert schedule(server)[0] == "STOPPED"


def schedule(server):
    """Returns whether the schedule runs, and its next tick, in seconds since 1970."""
    selector = {
        "repositoryLocationName": "graphmill",
        "repositoryName": "__repository__",
        "scheduleName": "timed__schedule",
    }
    found = server.ask(
        "query($of: ScheduleSelector!) { scheduleOrError(scheduleSelector: $of) { ... on Schedule {"
        " scheduleState { status nextTick { timestamp } } } } }",
        of=selector,
    )["scheduleOrError"]["scheduleState"]
    return found["status"], [found["nextTick"]["timestamp"]] if found["nextTick"] else []
