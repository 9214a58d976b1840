"""The one server that the tests of this folder share."""

from pathlib import Path

import pytest

from jobs.commands.ui import WORKSPACE
from tests.jobs.recipes import write_tiny
from tests.jobs.server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The web server, the daemon and two code locations: the pipelines of a folder, and one whose trainings hang."""
    folder = tmp_path_factory.mktemp("server")
    # Other sizes, other artifacts: equal recipes would share them through the store.
    for name, nodes in (("tiny", 300), ("edited", 350), ("during", 340), ("alone", 320), ("seen", 360)):
        write_tiny(folder / "pipelines", name, nodes=f"300 -> {nodes}")
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
