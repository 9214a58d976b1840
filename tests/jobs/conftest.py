"""The one server that the tests of this folder share, and what keeps their modules apart."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.commands.ui import WORKSPACE
from jobs.runs import guard
from tests.jobs.recipes import write_tiny, write_watched
from tests.jobs.server import Server


@pytest.fixture(autouse=True, scope="module")
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A launch sets the home for its processes; the next module must not see it. What asks for no home gets one of this module."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("default")))
        yield


@pytest.fixture(scope="session")
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
        [WORKSPACE, Path(__file__).parent / "runs" / "stubborn_workspace.yaml"],
        {"GRAPHMILL_STUBBORN": str(stubborn)},
    )
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()
    assert not guard.group_members(running.process.pid), "an orphan"
