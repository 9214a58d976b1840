"""New pipeline files are noticed."""

from pathlib import Path

import dagster as dg

from graphmill.jobs.definitions import build_defs
from graphmill.jobs.operations.reload import NAME, UI_VARIABLE, changes, reload_sensor
from tests.recipes import write_tiny


def test_changes_are_named():
    a, b, c = Path("/a"), Path("/b"), Path("/c")
    assert changes({a: b"1", b: b"1"}, {a: b"1", b: b"1"}) == ""
    assert changes({a: b"1", b: b"1"}, {b: b"2", c: b"1"}) == "new: /c; edited: /b; gone: /a"


def test_the_web_server_is_asked_once_per_tick_while_files_differ(monkeypatch):
    asked, files = [], {Path("/p/a.toml"): b"1"}
    sensor = reload_sensor(dict(files), lambda: files, asked.append)
    monkeypatch.setenv(UI_VARIABLE, "http://127.0.0.1:3999")

    def tick():
        return sensor(dg.build_sensor_context()).skip_message

    assert "those that were loaded" in tick() and not asked
    files[Path("/p/b.toml")] = b"2"
    assert "new: /p/b.toml" in tick() and asked == ["http://127.0.0.1:3999"]
    assert "is asked to load them" in tick() and len(asked) == 2
    monkeypatch.delenv(UI_VARIABLE)
    assert "names no web server" in tick() and len(asked) == 2


def test_the_definitions_of_all_files_have_the_sensor(tmp_path, monkeypatch):
    write_tiny(tmp_path)
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    assert [sensor.name for sensor in build_defs().sensors or ()] == [NAME]
