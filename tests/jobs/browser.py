"""A headless Chromium that is asked over its debugging protocol; no driver program is needed."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_SECONDS = 120.0
PRESS = """
(() => {
  const leaves = [...document.querySelectorAll("*")].filter((each) => !each.children.length);
  const near = leaves.find((each) => each.textContent.includes(%s) && each.closest("tr")?.textContent.includes(%s));
  near?.click();
  return near !== undefined;
})()
"""
"""Presses the element with a text in the table row with another text, and tells whether it was there."""
BUTTON = """
(() => {
  const found = [...document.querySelectorAll("button, a, input, [role=switch]")].find((each) =>
    !each.disabled && (each.textContent.includes(%s) || each.getAttribute("aria-label") === %s || each.type === %s));
  found?.click();
  return found !== undefined;
})()
"""
"""Presses the first button, link or switch with a text, a label or a type, and tells whether there was one."""


def find_browser() -> str | None:
    """Returns the path of a Chromium, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of a browser of its own."""

    def __init__(self, browser: str, folder: Path):
        self.profile = tempfile.mkdtemp(dir=folder)
        self.log = folder / "browser.log"
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-port=0",
            "--window-size=1400,3000",
            f"--user-data-dir={self.profile}",
            "about:blank",
        ]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def visit(
        self, url: str, wanted: list[str], *, click: tuple[str, str] | None = None, picture: Path | None = None
    ) -> str:
        """Opens an address and waits until its DOM holds each of the wanted texts. Returns the DOM as HTML.

        Args:
            url, wanted: where to go and what must be there.
            click: (text of a button, the row that it stands in): pressed until all of the texts are there.
            picture: where to write what the page looks like.

        Raises:
            AssertionError: names what is missing and shows the text of the page.
        """
        script = None if click is None else PRESS % tuple(map(json.dumps, click))
        return asyncio.run(self._see(url, wanted, [], script, picture))

    def press(
        self,
        button: str,
        wanted: list[str],
        *,
        unwanted: Sequence[str] = (),
        picture: Path | None = None,
        seconds: float = LIMIT_SECONDS,
    ) -> str:
        """Presses a button, a link or a switch of the page that is open, and waits for what follows. Returns the DOM as HTML.

        Args:
            button: a piece of its text, its label or its type.
            wanted, unwanted: texts that the DOM holds afterwards, and others that it does not.
            picture: where to write what the page looks like then.
            seconds: how long to wait for it.

        Raises:
            AssertionError: names what is missing and shows the text of the page.
        """
        script = BUTTON % ((json.dumps(button),) * 3)
        return asyncio.run(self._see(None, wanted, unwanted, script, picture, seconds))

    def converse(self, *calls: tuple[str, dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Sends calls of the debugging protocol, one after the other; returns their results, and the events that came meanwhile.

        What a call sets, such as the size of the screen, ends with the conversation.
        """
        return asyncio.run(self._converse(calls))

    async def _converse(
        self, calls: Sequence[tuple[str, dict[str, Any]]]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        from websockets.asyncio.client import connect

        address, events = await self._address(time.monotonic() + LIMIT_SECONDS), []
        async with connect(address, max_size=1 << 28, open_timeout=LIMIT_SECONDS, ping_interval=None) as socket:
            return [await _call(socket, method, events, **params) for method, params in calls], events

    async def _address(self, limit: float) -> str:
        while not (found := re.search(r"DevTools listening on ws://([^/]+)/", self.log.read_text())):
            assert time.monotonic() < limit and self.process.poll() is None, self.log.read_text()
            await asyncio.sleep(0.1)
        return f"ws://{found[1]}/devtools/page/{self._target(found[1])}"

    async def _see(
        self,
        url: str | None,
        wanted: list[str],
        unwanted: Sequence[str],
        script: str | None,
        picture: Path | None,
        seconds: float = LIMIT_SECONDS,
    ) -> str:
        from websockets.asyncio.client import connect

        limit = time.monotonic() + seconds
        async with connect(
            await self._address(limit), max_size=1 << 28, open_timeout=LIMIT_SECONDS, ping_interval=None
        ) as socket:
            if url is not None:
                await _call(socket, "Page.navigate", url=url)
            html, missing, pressed = "", [*wanted, *unwanted], script is None
            while (missing or not pressed) and time.monotonic() < limit:
                await asyncio.sleep(0.5)
                if not pressed:
                    reply = await _call(socket, "Runtime.evaluate", expression=script)
                    pressed = bool(reply["result"].get("value"))
                reply = await _call(socket, "Runtime.evaluate", expression="document.documentElement.outerHTML")
                html = reply["result"].get("value", "")
                missing = [text for text in wanted if text not in html] + [text for text in unwanted if text in html]
            if picture is not None:
                shot = await _call(socket, "Page.captureScreenshot", format="png")
                picture.write_bytes(base64.b64decode(shot["data"]))
            said = re.sub(r"<style.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)[-3000:]
            assert pressed, f"{url} has no button {script}; it says {said}"
            assert not missing, f"{url} lacks (or has) {missing}; it says {said}"
            return html

    def _target(self, host: str) -> str:
        from urllib.request import urlopen

        with urlopen(f"http://{host}/json/list", timeout=LIMIT_SECONDS) as reply:
            return next(target["id"] for target in json.load(reply) if target["type"] == "page")


async def _call(
    socket: Any, method: str, events: list[dict[str, Any]] | None = None, /, **params: Any
) -> dict[str, Any]:
    await socket.send(json.dumps({"id": 1, "method": method, "params": params}))
    while True:
        answer = json.loads(await socket.recv())
        if answer.get("id") == 1:
            assert "error" not in answer, answer
            return answer["result"]
        if events is not None:
            events.append(answer)
