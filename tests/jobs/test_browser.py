"""What a person sees: the pages of the assets in a real browser."""

import pytest

from tests.jobs.browser import Page, find_browser

pytestmark = pytest.mark.first
BROWSER = find_browser()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: the pages of the UI were not looked at")
def test_the_asset_pages_show_figures_and_checks(server, tmp_path):
    if not all(asset["version"] for asset in server.assets("seen").values()):
        server.wait_for_run(server.launch("seen__all"))
    page = Page(str(BROWSER), tmp_path)
    try:
        base = f"http://127.0.0.1:{server.port}"
        image, show = "data:image/png;base64,iVBOR", "Show Markdown"
        overview, checks = "view=overview", "view=checks"
        page.visit(
            f"{base}/assets/seen/graph?{overview}",
            ["headline", "edges inside a class (%)", image],
            click=(show, "summary"),
            picture=tmp_path / "graph.png",
        )
        page.visit(
            f"{base}/assets/seen/features?{overview}",
            ["values per row", "type of a value", "float32", "row for every node"],
        )
        page.visit(
            f"{base}/assets/seen/sage?view=lineage", ["graph", "features", "sage"], picture=tmp_path / "lineage.png"
        )
        page.visit(
            f"{base}/assets/seen/graph?{checks}",
            ["rows_are_sorted", "splits_are_disjoint", "Passed"],
            picture=tmp_path / "checks.png",
        )
        page.visit(f"{base}/assets/seen/sage?{overview}", ["valid accuracy (%)", image], click=(show, "summary"))
        page.visit(f"{base}/locations/graphmill/jobs", ["seen__all", "seen__preprocess", "seen__train"])
    finally:
        page.close()
