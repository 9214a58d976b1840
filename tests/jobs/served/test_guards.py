"""The processes of `graphmill ui` as it starts them: guarded, and patient with one another."""

from pathlib import Path
from urllib.parse import quote

import pytest

from graphmill.assets.building import guard
from tests.jobs.web.test_guarded_ui import MUTATION, asked

pytestmark = pytest.mark.first


def test_the_servers_of_graphmill_ui_are_guarded(server):
    assert asked(server.port, "GET", "/", Host="evil.example.org")[0] == 421
    assert asked(server.port, "GET", "/graphql?query=" + quote(MUTATION % "x"))[0] == 405


def test_daemon_and_code_servers_of_graphmill_ui_are_patient(server):
    lines = [(Path("/proc") / str(pid) / "cmdline").read_bytes() for pid in guard.group_members(server.process.pid)]
    assert sum(b"graphmill.jobs.web\0daemon\0run" in line for line in lines) == 1
    assert not [line for line in lines if b"dagster._daemon" in line or b"dagster_webserver" in line]
    loaded = [line for line in lines if b"\0api\0grpc\0" in line]
    assert loaded and all(b"--heartbeat-timeout\0" + b"600" in line for line in loaded)
