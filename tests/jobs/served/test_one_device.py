"""Trainings never share the device: those of two pipelines that command lines run at once, and one that the web UI was asked for."""

import subprocess
import sys
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.results.show import asked_by

pytestmark = [
    pytest.mark.first,
    pytest.mark.slow("trainings of two command lines and of the web UI, asked for at once, take turns"),
]
ASKED = {"one/sage", "two/sage", "three/sage"}


def test_two_pipelines_and_the_command_line_never_train_at_once(server):
    command = [sys.executable, "-c", "from graphmill.jobs.cli import main; main()", "run", "-q"]
    log = server.folder / "cli.log"
    run_id = server.launch("three__all")
    with open(log, "w") as out:
        lines = [
            subprocess.Popen([*command, name], cwd=server.folder, env=server.environment, stdout=out, stderr=out)
            for name in ("one", "two")
        ]
    assert [line.wait(300) for line in lines] == [0, 0], log.read_text()[-3000:]
    server.wait_for_run(run_id)
    models = [model for model in Store(server.home).artifacts() if model.stage == "model"]
    spans = {asked_by(model): span_of(model) for model in models if asked_by(model) in ASKED}
    assert spans.keys() == ASKED
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans.values()))), spans


def span_of(model):
    """Returns when a training began and ended, from the record of its run: the child trains while its step holds the slot."""
    run = model.run_record()
    started = datetime.fromisoformat(run["started"])
    return started, started + timedelta(seconds=run["seconds"])
