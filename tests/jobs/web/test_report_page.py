"""The address of reports: only names of pipelines reach the command, and everything else Dagster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.jobs.runs.shown import report_address
from graphmill.jobs.web import report_page
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import write_tiny


@pytest.fixture(autouse=True)
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    write_tiny(tmp_path)
    (tmp_path / "--help.toml").write_text("")
    return tmp_path


def answered(path: str, method: str = "GET", kind: str = "http") -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Any] = []

    async def dagster(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"dagster"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        await report_page.ReportPages(dagster)({"type": kind, "path": path, "method": method}, lambda: None, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_other_paths_are_handed_on() -> None:
    for path, kind in (("/graphql", "http"), ("/graphmill/report", "http"), ("/graphmill/report/tiny", "websocket")):
        assert answered(path, kind=kind) == (299, {}, b"dagster")


def test_only_names_of_pipelines_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def make_page(name: str) -> tuple[int, bytes]:
        asked.append(name)
        return 200, b"page"

    monkeypatch.setattr(report_page, "make_page", make_page)
    status, headers, page = answered("/graphmill/report/tiny")
    assert (status, page) == (200, b"page") and headers[b"content-security-policy"].startswith(b"default-src 'none'")
    assert answered("/graphmill/report/tiny", "HEAD")[::2] == (200, b"")
    assert answered("/graphmill/report/tiny", "POST")[0] == 405
    for name in ("", "no-such", "/etc/passwd", "../tiny", "<b>", "tiny --set seed=1"):
        status, _, page = answered(f"/graphmill/report/{name}")
        assert status == 404 and b"<b>" not in page, name
    assert asked == ["tiny"]


def test_requests_of_one_pipeline_share_the_page_that_is_in_the_making(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_tiny(tmp_path, "other")
    begun: list[str] = []

    async def send(message: Any) -> None:
        if "body" in message:
            assert message["body"] == b"page"

    async def ask() -> None:
        hangs = asyncio.Event()

        async def make_page(name: str) -> tuple[int, bytes]:
            begun.append(name)
            if name == "tiny":
                await hangs.wait()
            return 200, b"page"

        monkeypatch.setattr(report_page, "make_page", make_page)
        pages = report_page.ReportPages(lambda *_: None)  # type: ignore[arg-type]

        def request(name: str) -> asyncio.Task[None]:
            scope = {"type": "http", "path": f"/graphmill/report/{name}", "method": "GET"}
            return asyncio.ensure_future(pages(scope, lambda: None, send))  # type: ignore[arg-type]

        first, *others = [request("tiny") for _ in range(3)]
        await request("other")
        first.cancel()
        await asyncio.sleep(0)
        hangs.set()
        await asyncio.gather(*others)
        assert begun == ["tiny", "other"] and first.cancelled()
        await request("tiny")

    asyncio.run(ask())
    assert begun == ["tiny", "other", "tiny"], "a request behind it has a new page"


def test_the_message_of_the_command_is_the_page() -> None:
    """The real command answers, for a name that would be an option of it, too."""
    status, _, page = answered("/graphmill/report/--help")
    assert status == 404 and "--help.toml" in page.decode() and "remedy" in page.decode(), page


def test_the_address_is_that_of_a_file_that_is_found_by_name(pipelines: Path, tmp_path: Path) -> None:
    assert report_address(load_pipeline("tiny", TrainTable)) == "/graphmill/report/tiny"
    assert report_address(load_pipeline("tiny", TrainTable, settings=["seed=3"])) == ""
    assert report_address(load_pipeline(write_tiny(tmp_path / "elsewhere" / "x", "other"), TrainTable)) != ""
