"""What the machine refuses is one message each: rights, links, full streams, memory, damaged settings, what is no file."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dagster._core.executor.child_process_executor import ChildProcessCrashException
from dagster_shared.error import SerializableErrorInfo

from graphmill.assets.building import guard
from graphmill.assets.building.child import how_it_ended
from graphmill.assets.building.materialize import materialize
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.collect import collect, find_garbage
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.refused import refusal
from graphmill.jobs.cli import main
from graphmill.jobs.launch import CRASHED, _raise_failures
from graphmill.jobs.runs.instance import SETTINGS, open_instance
from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.checkpoint import checkpoint_bytes
from tests import graphs
from tests.adversary import workshop
from tests.adversary.privileges import graphmill_without_rights
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage
from tests.e2e.commands import COMMAND, environment
from tests.jobs.runs.processes import heed_interrupts, wait_until_gone

TOY = Semantic(rows=5)


def build(home: Path) -> Any:
    return materialize(Store(home), ToyStage(), TOY, Execution(), {})


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs the command line to its end, which is one message; returns it."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    text = capsys.readouterr().err
    assert text.startswith("graphmill: ") and "Traceback" not in text
    return text


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A home with a trained model, and its pipeline file."""
    folder = tmp_path_factory.mktemp("trained")
    tables = {"graph": workshop.TABLES["graph"], "sampling": workshop.TABLES["sampling"]}
    (folder / "small.toml").write_text(workshop.text("small", tables, ["minibatch"]))
    workshop.build(folder / "home", load_pipeline(folder / "small.toml", workshop.TrainTable))
    return folder / "home", folder / "small.toml"


def test_a_home_that_may_be_read_only(trained: tuple[Path, Path], tmp_path: Path) -> None:
    home, pipeline = trained
    out = tmp_path / "predicted.parquet"
    for path in (home, *home.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert graphmill_without_rights("verify", home=home).returncode == 0
        predicted = graphmill_without_rights("predict", str(pipeline), "minibatch", "--out", str(out), home=home)
        assert predicted.returncode == 0 and out.exists(), predicted.stderr
        ran = graphmill_without_rights("run", str(pipeline), home=home)
        assert ran.returncode == 1 and "Traceback" not in ran.stderr
        assert "Permission denied" in ran.stderr and "remedy: " in ran.stderr
        for path in home.glob("store/graph/*/indices.npy"):
            path.chmod(0)
        unread = graphmill_without_rights("verify", home=home)
        assert unread.returncode == 3 and "indices.npy: Permission denied" in unread.stdout
    finally:
        for path in (home, *home.rglob("*")):
            path.chmod(path.stat().st_mode | 0o700)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "read-only"),
        (errno.EXDEV, "one file system"),
        (errno.ENOTDIR, "a file stands where a folder is needed"),
        (errno.EISDIR, "a folder stands where a file is needed"),
        (errno.EACCES, "permissions"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOSPC, "free space"),
        (errno.EIO, "graphmill verify"),
    ],
)
def test_a_stage_that_is_refused_something_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(self: Any, *given: Any) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))

    monkeypatch.setattr(ToyStage, "build", refuse)
    with pytest.raises(InputError, match=remedy) as caught:
        build(tmp_path)
    assert "file" in caught.value.problem
    assert Store(tmp_path).artifacts() == []


def test_missing_files_and_defects_keep_their_traceback() -> None:
    assert refusal(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) is None
    assert refusal(ValueError("a defect")) is None and refusal(RuntimeError("a defect")) is None


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 64.0 GiB for an array"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_memory_that_runs_out_names_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(self: Any, *given: Any) -> None:
        raise error

    monkeypatch.setattr(ToyStage, "build", refuse)
    with pytest.raises(InputError, match=r"stage toy: there is not enough memory \(.* are free\)") as caught:
        build(tmp_path)
    assert "batch_size" in caught.value.remedy


def test_a_graph_that_takes_more_memory_than_there_is_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> None:
        raise MemoryError("Unable to allocate 64.0 GiB")

    config: Any = config_class("sbm")(nodes=1000, edges=4000)
    monkeypatch.setattr(type(GRAPH), "build_from", refuse)
    need = format_bytes(config.survey().memory_bytes)
    with pytest.raises(
        InputError, match=rf"graph: there is not enough memory .*building from this source takes about {need}"
    ):
        graphs.build_graph(Store(tmp_path), config)


def test_a_killed_process_may_have_run_out_of_memory() -> None:
    assert how_it_ended(-signal.SIGKILL) == "SIGKILL (often: out of memory)"
    assert how_it_ended(3) == "exit code 3"


def test_a_step_whose_process_was_killed(tmp_path: Path) -> None:
    class Event:
        """Of a step that failed, as Dagster's executor makes it."""

        is_step_failure, step_key = True, "small__graph"

        class step_failure_data:  # noqa: N801
            """What is known of the failure."""

            user_failure_data = None
            error = SerializableErrorInfo("dagster... ChildProcessCrashException\n", [], "ChildProcessCrashException")

    with pytest.raises(InputError, match=r"step small__graph was killed \(often: out of memory\)"):
        _raise_failures([Event()], tmp_path)  # pyright: ignore[reportArgumentType]
    assert ChildProcessCrashException.__name__ == CRASHED


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "2>&- >&- <&-", "| head -c 1 >/dev/null"])
def test_a_standard_stream_that_takes_nothing(trained: tuple[Path, Path], redirection: str) -> None:
    home, _ = trained
    line = f"{' '.join(map(_quoted, COMMAND))} ls {redirection}"
    done = subprocess.run(["bash", "-c", line], env=environment(home), capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.returncode in (0, 1) and (redirection != ">/dev/full" or "No space left" in done.stderr)


def _quoted(word: str) -> str:
    return f"'{word}'"


def test_a_store_or_a_home_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert "is no folder" in said(capsys, "--home", str(tmp_path / "file"), "ls")
    (tmp_path / "store").write_text("")
    found = refusal(_raised(lambda: build(tmp_path)))
    assert found is not None and "Not a directory" in found.problem


def _raised(work: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        work()
    return caught.value


def test_a_home_that_is_not_there_is_not_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "repair"):
        assert "does not exist" in said(capsys, "--home", str(tmp_path / "nowhere"), command)


@pytest.mark.parametrize("settings", ["a: [1,\n", "storage: 7\n", "\ud800", "nonsense: true\n"])
def test_damaged_settings(tmp_path: Path, settings: str) -> None:
    (tmp_path / SETTINGS).write_bytes(settings.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match=r"dagster.yaml cannot be used: .*\n.*correct them"):
        open_instance(tmp_path)


@pytest.mark.parametrize("damage", [b"not a database" * 500, b""])
def test_a_damaged_history(tmp_path: Path, damage: bytes) -> None:
    open_instance(tmp_path).dispose()
    (path,) = tmp_path.glob("history/runs.db")
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(damage or data)
    with pytest.raises(InputError, match=r"the history of runs in .* cannot be used") as caught:
        open_instance(tmp_path)
    assert "artifacts stay" in caught.value.remedy


@pytest.mark.parametrize("name", ["why?", "per%41cent"])
def test_a_home_whose_name_means_something_in_a_url(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="in its path"):
        open_instance(tmp_path / name)


@pytest.mark.parametrize("name", ["ha#sh [a]*", "100%"])
def test_other_names_of_homes(tmp_path: Path, name: str) -> None:
    with open_instance(tmp_path / name) as instance:
        assert instance.get_runs_count() == 0


def test_a_staging_area_that_is_a_link(tmp_path: Path) -> None:
    foreign, store = tmp_path / "foreign", Store(tmp_path / "home")
    (foreign / ("0" * 32)).mkdir(parents=True)
    store.root.mkdir(parents=True)
    (store.root / ".staging").symlink_to(foreign)
    assert store.sweep() == [] and os.listdir(foreign) == ["0" * 32]
    with pytest.raises(InputError, match="symbolic link"):
        build(store.home)


def test_what_is_not_ours_stays_in_the_staging_area(tmp_path: Path) -> None:
    (tmp_path / "store" / ".staging" / "mine").mkdir(parents=True)
    build(tmp_path)
    assert os.listdir(tmp_path / "store" / ".staging") == ["mine"]


def test_collecting_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    made = build(tmp_path / "home")
    made.path.rename(tmp_path / made.version)
    made.path.symlink_to(tmp_path / made.version)
    store = Store(tmp_path / "home")
    garbage = find_garbage(store, 0)
    assert garbage.num_bytes == 0
    collect(store, garbage)
    assert not made.path.is_symlink() and (tmp_path / made.version / "features.npy").exists()
    assert os.listdir(store.root / ".staging") == []


def test_a_checkpoint_that_is_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / f"{'0' * 64}.safetensors"
    path.mkdir(parents=True)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        checkpoint_bytes(path)
    assert find_garbage(Store(tmp_path), 0).left == ()


def test_a_guard_that_is_killed_takes_its_command_along(tmp_path: Path) -> None:
    code = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
    command = [sys.executable, "-I", guard.__file__, str(os.getpid()), "9,9,9", sys.executable, "-c", code]
    process = subprocess.Popen([*command, str(tmp_path / "pid")], start_new_session=True)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert process.poll() is None
    process.kill()
    process.wait()
    wait_until_gone([int((tmp_path / "pid").read_text())])


def test_ctrl_c_ends_a_query(tmp_path: Path) -> None:
    query = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
    process = subprocess.Popen(
        [*COMMAND, "sql", query], env=environment(tmp_path), stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509
    )  # fmt: skip
    try:
        while not _computes(process.pid):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        assert process.stderr is not None and "interrupted" in process.stderr.read()
    finally:
        process.kill()


def _computes(pid: int) -> bool:
    """Tells whether DuckDB's threads are at work: there are several, and they have used the processor."""
    spent = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        spent.append(int(fields[11]))
    return len(spent) > 2 and sum(sorted(spent)[:-1]) > 20


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "folder"])
def test_paths_of_pipes_and_devices_are_refused_before_they_are_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked.toml").symlink_to(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        load_pipeline(tmp_path / "linked.toml")
    archive = tmp_path / "graph.npz"
    archive.symlink_to(tmp_path / name)
    with pytest.raises(InputError, match="not a file"):
        build_graph(tmp_path, f'source = "npz"\npath = "{archive}"')


@pytest.mark.parametrize(
    "graph",
    [
        'source = "sbm"\nnodes = 4_000_000_000_000\nedges = 10',
        'source = "edges"\nedges = "{folder}/edges.csv"\nnum_nodes = 4_000_000_000_000',
        'source = "npz"\npath = "{folder}/far.npz"',
    ],
)
def test_what_no_memory_holds_is_refused_before_it_is_allocated(tmp_path: Path, graph: str) -> None:
    (tmp_path / "edges.csv").write_text("src,dst\n1,2\n")
    np.savez(tmp_path / "far.npz", edge_index=np.array([[0, 10**14], [1, 2]]))
    with pytest.raises(InputError, match=r"would take at least .* of memory, and this machine has"):
        build_graph(tmp_path, graph.replace("{folder}", str(tmp_path)))


def test_what_no_disk_holds_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*edges.spool \(216000000000000 bytes, .* are free"):
        build_graph(tmp_path, 'source = "sbm"\nnodes = 1000\nedges = 9_000_000_000_000')


def test_a_header_with_a_negative_shape(tmp_path: Path) -> None:
    """Two negative sizes have a positive product."""
    text = "{'descr': '<i8', 'fortran_order': False, 'shape': (-2, -16), }".ljust(117) + "\n"
    with zipfile.ZipFile(tmp_path / "made.npz", "w") as archive:
        archive.writestr(
            "edge_index.npy", b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.encode() + bytes(256)
        )
    with pytest.raises(InputError, match=r"declares the shape \[-2, -16\]"):
        build_graph(tmp_path, f'source = "npz"\npath = "{tmp_path}/made.npz"')


def build_graph(folder: Path, graph: str) -> None:
    path = folder / "made.toml"
    path.write_text(f'name = "made"\n\n[graph]\n{graph}\n\n[sampling]\nfanouts = [2]\nbatch_size = 16\n')
    workshop.build(folder / "home", load_pipeline(path, workshop.TrainTable))
