"""The one web server, with daemon and code servers, that the tests of this folder share; it ends with the last of them.

A process of the test run takes the whole folder (tests/conftest.py), so there is one.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from graphmill.assets.building import guard
from graphmill.jobs.commands.machine.ui import WORKSPACE
from tests.jobs.server import Server
from tests.recipes import write_tiny, write_watched


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """The web server, the daemon and two code locations: the pipelines of a folder, and one whose trainings hang."""
    folder = tmp_path_factory.mktemp("server")
    # Other sizes, other artifacts: equal recipes would share them through the store.
    sizes = {"tiny": 300, "edited": 350, "during": 340, "alone": 320, "one": 370, "two": 380, "three": 390, "seen": 360}
    for name, nodes in sizes.items():
        write_tiny(folder / "pipelines", name, tables=("sage",), nodes=f"300 -> {nodes}")
    write_watched(folder / "pipelines")
    # Its time is half a day away.
    hour = (datetime.now(UTC).hour + 12) % 24
    schedule = f'\n[schedule]\ncron = "0 {hour} * * *"\nenabled = false\n'
    write_tiny(folder / "pipelines", "timed", tables=("sage",), more=schedule, nodes="300 -> 365")
    stubborn = write_tiny(folder / "stubborn", "stubborn", nodes="300 -> 330")
    running = Server(
        folder,
        [WORKSPACE, Path(__file__).parents[1] / "runs" / "stubborn_workspace.yaml"],
        {"GRAPHMILL_STUBBORN": str(stubborn)},
    )
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()
    assert not guard.group_members(running.process.pid), "an orphan"
