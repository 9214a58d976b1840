"""`graphmill budgets`: what is measured once, what it comes to, and measuring again."""

import json

import pytest
from click.testing import CliRunner

from graphmill.assets.budgets.measured import PLACE, MachineBytes
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.pipelines.chunks import print_budgets
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config
from tests.recipes import load_tiny

GIB = 1 << 30


@pytest.fixture
def machine(monkeypatch):
    """A machine of 8 GiB that can be given more."""
    sizes = {"memory": 8 * GIB}
    found = lambda home: MachineBytes(memory_bytes=sizes["memory"], disk_bytes=10 * GIB)  # noqa: E731
    monkeypatch.setattr("graphmill.assets.budgets.measured.measure", found)
    return sizes


def test_keys_are_set_for_one_command(tmp_path, monkeypatch, machine):
    home, pipeline = tmp_path / "home", load_tiny(tmp_path)
    build_config(home, pipeline.graph, threads=1)

    def asked(*arguments):
        return CliRunner().invoke(graphmill, ["--home", str(home), "budgets", *arguments])

    shown = asked(str(pipeline.path), "--set", "memory.host=1KiB", "--set", "memory.disk=5x")
    assert shown.exit_code == 0 and "host   1KiB given" in shown.output and "5x of 9.4 KiB" in shown.output
    assert "no PIPELINE is given" in str(asked("--set", "memory.host=1KiB").exception)


def test_it_shows_the_arithmetic_and_only_a_refresh_measures_again(tmp_path, capsys, machine):
    home, pipeline = tmp_path / "home", load_tiny(tmp_path)
    print_budgets(home, None)
    assert "measured now\n  memory 8.0 GiB, free disk 10.0 GiB" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"its features are not built in .*(?s:.*)graphmill build"):
        print_budgets(home, pipeline)
    capsys.readouterr()
    build_config(home, pipeline.graph, threads=1)
    machine["memory"] = 64 * GIB
    print_budgets(home, pipeline)
    shown = capsys.readouterr().out
    assert "measured before" in shown and "of tiny: 9.4 KiB of features" in shown
    assert (
        "device auto: a quarter of 8.0 GiB for the logical device, less 0 B of workspace = 2.0 GiB, 300 of 300 rows"
        in shown
    )
    assert (
        "host   auto: half of 8.0 GiB, less 2.0 GiB of the logical device, less 1.5 GiB of queue and evaluation = 512.0 MiB"
        in shown
    )
    assert "disk   auto: half of 10.0 GiB that were free = 5.0 GiB\n" in shown
    print_budgets(home, pipeline, again=True)
    shown = capsys.readouterr().out
    assert "measured again\n  memory 64.0 GiB" in shown and "= 16.0 GiB, 300 of 300 rows" in shown
    assert json.loads((home / PLACE).read_text())["memory_bytes"] == 64 * GIB
    assert sum(artifact.stage == "budgets" for artifact in Store(home).artifacts()) == 2
