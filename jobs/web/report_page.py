"""The address /graphmill/report/PIPELINE of the web UI: the report of a pipeline, made anew when it is asked for.

A small ASGI application around Dagster's, like the guard, which stands before both. The page is made by a process of its own, as
`graphmill report PIPELINE --out -` prints it: the web server loads neither models nor a library that draws, and an error there is a message
here. Requests that come while a report is in the making get that one. What was written last by `graphmill report` stays what a report
compares with.
"""

import asyncio
import sys
from html import escape

from starlette.types import ASGIApp, Receive, Scope, Send

from graphmill.assets.pipeline.file import pipeline_files
from graphmill.jobs.runs.shown import REPORTS

COMMAND = "from graphmill.jobs.cli import main; main()"
LIMIT_SECONDS = 300.0
"""Seconds after which the process is ended."""
MOST_AT_ONCE = 2
"""Reports that are made at a time."""

POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)


class ReportPages:
    """Answers for reports, and hands every other request on."""

    def __init__(self, application: ASGIApp):
        self.application = application
        # Each takes a core for some seconds; of two, one that hangs does not keep the other pipelines waiting.
        self.turn = asyncio.Semaphore(MOST_AT_ONCE)
        self.making: dict[str, asyncio.Task[tuple[int, bytes]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it on."""
        if scope["type"] != "http" or not scope["path"].startswith(REPORTS):
            await self.application(scope, receive, send)
            return
        name = scope["path"].removeprefix(REPORTS)
        if scope["method"] not in ("GET", "HEAD"):
            status, page = 405, b"a report is read by GET"
        elif name not in pipeline_files():
            status, page = 404, _message(f"{name!r} is not a name of a pipeline file here")
        elif scope["method"] == "HEAD":
            status, page = 200, b""
        else:
            status, page = await self._page(name)
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", POLICY)]
        headers += [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else page})

    async def _page(self, name: str) -> tuple[int, bytes]:
        """Returns the status and the page of a pipeline: that which is in the making, or else a new one."""
        task = self.making.get(name)
        if task is None:
            task = self.making[name] = asyncio.create_task(self._made_in_turn(name))
            task.add_done_callback(lambda _: self.making.pop(name))
        return await asyncio.shield(task)  # a request that is cancelled leaves it to the others

    async def _made_in_turn(self, name: str) -> tuple[int, bytes]:
        async with self.turn:
            return await make_page(name)


async def make_page(name: str) -> tuple[int, bytes]:
    """Returns the HTTP status and the page of a report, or the message of the command that could not make it."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", COMMAND, "report", "--out", "-", "--", name),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        page, said = await asyncio.wait_for(child.communicate(), LIMIT_SECONDS)
    except TimeoutError:
        return 504, _message(
            f"the report of {name} took more than {LIMIT_SECONDS:.0f} seconds; graphmill report {name}"
        )
    finally:
        if child.returncode is None:  # the time is over, or the server ends
            child.kill()
            await child.wait()
    return (200, page) if child.returncode == 0 else (404, _message(said.decode(errors="replace").strip()))


def _message(text: str) -> bytes:
    return f'<!doctype html><html lang="en"><title>graphmill</title><pre>{escape(text)}</pre></html>'.encode()
