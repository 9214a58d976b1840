"""A command in a control group: how it ended, what it held and what it read, with or without the right to make a group."""

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.groups import run_limited

MIB = 2**20


def run(code: str, folder: Path, seconds: float = 30, limit: int = 512 * MIB) -> dict[str, object]:
    return run_limited([sys.executable, "-c", code], folder, limit, seconds)


@pytest.fixture(params=["as the machine allows", "without a group"])
def any_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without a group":
        made = Path.mkdir

        def refused(path: Path, *rest: Any, **more: Any) -> None:
            if path.is_relative_to("/sys/fs/cgroup"):
                raise PermissionError("not here")
            made(path, *rest, **more)

        monkeypatch.setattr(Path, "mkdir", refused)


@pytest.mark.usefixtures("any_machine", "forced")
def test_what_a_command_holds_and_reads_is_counted(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 8 * MIB)
    code = "held = b'1' * (100 << 20); print(len(open('file', 'rb').read())); import time; time.sleep(0.3)"
    row = run(code, tmp_path)
    assert (row["ended"], row["said"]) == ("well", f"{8 * MIB}\n")
    assert 100 * MIB < row["anonymous_bytes"] < 200 * MIB  # pyright: ignore[reportOperatorIssue]
    assert row["read_bytes"] == 0 or row["read_bytes"] >= 8 * MIB  # 0: a file system in memory  # pyright: ignore


def test_how_it_ended_is_told(tmp_path):
    assert run("raise SystemExit(3)", tmp_path)["ended"] == "badly"
    row = run("print('begun', flush=True); import time; time.sleep(60)", tmp_path, seconds=1)
    assert (row["ended"], row["said"]) == ("by time", "begun\n")
    assert row["seconds"] < 30  # pyright: ignore[reportOperatorIssue]
