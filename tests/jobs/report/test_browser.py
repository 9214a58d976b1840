"""The page in a real browser, opened as a file: phone and desktop, light and dark, without a network.

The pictures stay in the folder of the test, for people to look at.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphmill.jobs.commands.results.leaderboard import leaderboard_table
from graphmill.jobs.report.changes import ReportChanges
from graphmill.jobs.report.page import report_page
from tests.jobs.browser import Page, find_browser

BROWSER = find_browser()
pytestmark = [
    pytest.mark.first,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: the report was not looked at"),
]
LOADED = "new Promise((r) => document.readyState === 'complete' ? r(1) : addEventListener('load', () => r(1)))"
SIZES = """JSON.stringify({
  page: document.documentElement.scrollWidth, screen: innerWidth,
  figures: [...document.querySelectorAll("figure svg")].map((each) => each.getBoundingClientRect().width),
  boxes: [...document.querySelectorAll(".scroll")].every((each) => each.getBoundingClientRect().right <= innerWidth),
  paper: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.querySelector("#quality-text_1 text")).fill,
})"""
COPIED = """(async () => {
  let kept = null;
  const into = (text) => { if (DENIED) throw new Error("denied"); kept = text; };
  Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => into(text) }, configurable: true });
  document.execCommand = () => { kept = getSelection().toString() || document.activeElement.value; return ALLOWED; };
  const button = document.querySelector('button[data-copy="leaderboard-table-Markdown"]');
  button.click();
  await new Promise((r) => setTimeout(r, 100));
  return JSON.stringify({ kept, says: button.textContent, hidden: document.getElementById(button.dataset.copy).hidden });
})()"""
SAVED = """(async () => {
  let blob = null, name = null;
  URL.createObjectURL = (given) => { blob = given; return "blob:x"; };
  HTMLAnchorElement.prototype.click = function () { name = this.download; };
  document.querySelector('button[data-save="quality.svg"]').click();
  const text = await blob.text();
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return JSON.stringify({ name, variables: text.includes("var("), root: root.localName, title: root.querySelector("title").textContent });
})()"""


@pytest.fixture(scope="module")
def opened(trained: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    folder: Path = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(report_page(trained.tiny, ReportChanges()))
    page = Page(str(BROWSER), folder)
    try:
        yield SimpleNamespace(page=page, path=path, folder=folder)
    finally:
        page.close()


def script(text: str) -> tuple[str, dict[str, Any]]:
    return "Runtime.evaluate", {"expression": text, "awaitPromise": True}


def open_at(
    opened: SimpleNamespace, width: int, scheme: str, *more: tuple[str, dict[str, Any]]
) -> tuple[list[Any], list[Any]]:
    """Opens the page in a window of a width; returns the values of the calls that follow, and all events."""
    calls = (
        ("Network.enable", {}),
        ("Log.enable", {}),
        ("Runtime.enable", {}),
        (
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        ),
        ("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        ("Page.navigate", {"url": opened.path.as_uri()}),
        script(LOADED),
    )
    results, events = opened.page.converse(*calls, *more)
    return results[len(calls) :], events


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1400, "light"), (1400, "dark")])
def test_it_fits_the_screen_and_fetches_nothing(opened: SimpleNamespace, width: int, scheme: str) -> None:
    shot = ("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
    (sizes, picture), events = open_at(opened, width, scheme, script(SIZES), shot)
    (opened.folder / f"report-{width}-{scheme}.png").write_bytes(base64.b64decode(picture["data"]))
    found = json.loads(sizes["result"]["value"])
    assert found["page"] <= width and found["boxes"]
    assert len(found["figures"]) >= 8 and all(300 <= each <= width for each in found["figures"])
    colours = {"light": ("rgb(255, 255, 255)", "rgb(28, 32, 36)"), "dark": ("rgb(22, 25, 29)", "rgb(230, 232, 235)")}
    assert (found["paper"], found["ink"]) == colours[scheme]
    asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [opened.path.as_uri()]
    assert [each for each in events if each["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")] == []


@pytest.mark.parametrize(
    ("denied", "allowed", "says", "hidden"),
    [("false", "true", "Copied", True), ("true", "true", "Copied", True), ("true", "false", "Press Ctrl+C", False)],
)
def test_a_table_is_copied_or_shown_to_be_copied(
    opened: SimpleNamespace, trained: SimpleNamespace, denied: str, allowed: str, says: str, hidden: bool
) -> None:
    """The clipboard of a file may be denied, and then the older way, too."""
    (copied,), _ = open_at(opened, 1400, "light", script(COPIED.replace("DENIED", denied).replace("ALLOWED", allowed)))
    found = json.loads(copied["result"]["value"])
    assert found == {"kept": leaderboard_table("tiny", trained.tiny.entries).markdown(), "says": says, "hidden": hidden}


def test_a_figure_is_saved_for_programs_that_know_no_variables(opened: SimpleNamespace) -> None:
    (saved,), _ = open_at(opened, 1400, "light", script(SAVED))
    found = json.loads(saved["result"]["value"])
    assert found == {"name": "quality.svg", "variables": False, "root": "svg", "title": "Quality"}
