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
        result = sensor(dg.build_sensor_context())
        assert isinstance(result, dg.SensorResult) and result.skip_reason is not None and not result.asset_events
        return result.skip_reason.skip_message or ""

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


MISTAKE = '[graph]\nsource = "sbm"\nnods = 3\n'


def test_files_with_mistakes_have_a_failed_check_that_is_told_once_per_change(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    write_tiny(tmp_path, "good")
    cursor, states = None, {}

    def tick(instance):
        nonlocal cursor
        definitions = build_defs()
        (sensor,) = [each for each in definitions.sensors or () if each.name == NAME]
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            result = sensor(context)
        cursor = result.cursor
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        keys = definitions.get_repository_def().asset_graph.asset_check_keys
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key(
            [key for key in keys if key.asset_key.path[-1] in ("mistakes", "needs_data")]
        )
        states.update({key.asset_key.to_user_string(): record.status.value for key, record in found.items()})
        return len(result.asset_events)

    with dg.instance_for_test() as instance:
        assert tick(instance) == 0 and not states
        (tmp_path / "broken.toml").write_text(MISTAKE)
        (tmp_path / "lacking.toml").write_text('[graph]\nsource = "npz"\npath = "${NOWHERE_AT_ALL}/g.npz"\n')
        assert [tick(instance) for _ in range(3)] == [2, 0, 0]
        assert states == {"broken/mistakes": "FAILED", "lacking/needs_data": "FAILED"}
        write_tiny(tmp_path, "broken")
        (tmp_path / "lacking.toml").unlink()
        assert tick(instance) == 0
        (tmp_path / "broken.toml").write_text(MISTAKE)
        assert [tick(instance), tick(instance)] == [1, 0], "the same mistakes again"
        job = build_defs().resolve_implicit_global_asset_job_def()
        check = dg.AssetCheckKey(dg.AssetKey(["broken", "mistakes"]), "pipeline_file_is_read")
        done = job.get_subset(asset_selection=set(), asset_check_selection={check}).execute_in_process(
            instance=instance
        )
        (result,) = done.get_asset_check_evaluations()
        assert not result.passed and "nods" in (result.description or "")


def test_names_that_dagster_refuses_for_checks_take_no_pipeline_out_of_the_ui(tmp_path, monkeypatch):
    names = ["bröken", "a-b", "a_b", "with.a.dot", "graphmill"]
    for name in names:
        (tmp_path / f"{name}.toml").write_text(MISTAKE)
    write_tiny(tmp_path, "good")
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))
    graph = build_defs().get_repository_def().asset_graph
    found = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert {"good/graph", *(f"{name}/mistakes" for name in names)} <= found
    checked = {key.asset_key.path[0] for key in graph.asset_check_keys if key.name == "pipeline_file_is_read"}
    assert len(checked) == 3 and "graphmill" in checked and checked < set(names)
