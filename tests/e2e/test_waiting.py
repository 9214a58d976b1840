"""A second training in one home says whom it waits for, leaves the processor alone, and ends with one Ctrl-C; reuse waits for nobody."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.slot import slot_holders
from tests.e2e.commands import COMMAND, environment, graphmill
from tests.jobs.runs.processes import wait_for
from tests.recipes import write_tiny


def start(home: Path, path: Path) -> subprocess.Popen[str]:
    out = path.with_suffix(".out").open("w")
    return subprocess.Popen(
        [*COMMAND, "run", str(path)], cwd=home.parent, env=environment(home), stdout=out, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def home(tmp_path) -> Iterator[Path]:
    """A home in which one training goes on for longer than the test."""
    home = tmp_path / "home"
    tiny = write_tiny(tmp_path / "pipelines", "done", tables=("sage",))
    assert graphmill("run", str(tiny), home=home).returncode == 0
    holder = start(home, write_tiny(tmp_path / "pipelines", "long", tables=("sage",), epochs="2 -> 1000000"))
    try:
        with open_instance(home) as instance:
            wait_for(lambda: "long/" in slot_holders(instance), "the long training to hold the slot")
        yield home
        assert holder.poll() is None
    finally:
        holder.send_signal(signal.SIGINT)
        assert holder.wait(120) == 130


@pytest.mark.slow("a training that waits for another one idles, says so and ends with one Ctrl-C")
def test_a_waiting_run_says_so_idles_and_ends_with_one_interrupt(tmp_path, home):
    reused = graphmill("run", str(tmp_path / "pipelines/done.toml"), home=home)
    assert reused.returncode == 0 and "reused model/" in reused.stdout and "waits" not in reused.stdout
    path = write_tiny(tmp_path / "pipelines", "second", tables=("sage",), seed="0 -> 5")
    waiting = start(home, path)
    try:
        said = wait_for(lambda: "waits for the training slot" in path.with_suffix(".out").read_text(), "the message")
        assert said and "held by long/" in path.with_suffix(".out").read_text()
        before, pause = cpu_seconds(waiting.pid), subprocess.run(["sleep", "5"], check=True)
        assert pause.returncode == 0 and cpu_seconds(waiting.pid) - before < 2.5 and waiting.poll() is None
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(60) == 130
    finally:
        waiting.kill()
        waiting.wait()
    shown = path.with_suffix(".out").read_text()
    assert "interrupted" in shown and "Traceback" not in shown
    assert not [problem for artifact in Store(home).artifacts() for problem in artifact.verify(threads=1)]
    with open_instance(home) as instance:
        assert "long/" in slot_holders(instance) and "second" not in slot_holders(instance)
