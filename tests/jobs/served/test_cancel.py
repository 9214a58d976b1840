"""A run that is cancelled in the UI while something heavy goes on: no process is left, and the store is sound.

The short form, by default, is that of tests/jobs/served/test_server.py: a training that ignores all signals.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.slot import slot_holders
from tests.jobs.runs.processes import wait_for
from tests.jobs.server import FINISHED
from tests.recipes import PACKED, recipe, sbm, write_tiny

pytestmark = pytest.mark.slow("cancelling METIS, packing, a training and its ranks in the web UI")

SERVERS = {"grpc", "code-server", "webserver", "daemon", "dev"}
RANKS = recipe(
    {
        "name": "ranks",
        "trainer": "distributed",
        "hidden": 8,
        "epochs": 1_000_000,
        "cache": "none",
        "distributed": {"ranks": 2},
    },
    partitions={"method": "range", "parts": 2},
)


class Process(NamedTuple):
    """A process of a home: its id and its command line."""

    pid: int
    words: tuple[str, ...]

    def trains(self) -> bool:
        return self.words[1:3] == ("-m", "graphmill.trainers")


def processes_of(home: Path) -> set[Process]:
    """Returns all living processes that work for a home, but for the servers, which a reload replaces, and their resource trackers."""
    found, wanted = set(), f"GRAPHMILL_HOME={home}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().decode().split("\0")[:-1]
                    found.add(Process(int(folder.name), tuple(words)))
            except OSError:  # it ended meanwhile, or it is a zombie
                continue
    return {process for process in found if process.words and not serves(process)}


def serves(process: Process) -> bool:
    """Tells whether a process is a server, or what watches over the shared memory of one."""
    if SERVERS & set(process.words):
        return True
    if not any("multiprocessing.resource_tracker" in word for word in process.words):
        return False
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
        return bool(SERVERS & set(Path(f"/proc/{parent}/cmdline").read_text().split("\0")))
    except OSError:  # one of the two has ended
        return False


def in_metis(server, run_id: str) -> bool:
    return any("graphmill.assets.partitions.metis_child" in process.words for process in processes_of(server.home))


def packing(server, run_id: str) -> bool:
    return any((server.home / "store" / ".claims").glob("packed_chunks.parts@*"))


def training(server, run_id: str) -> bool:
    return len([process for process in processes_of(server.home) if process.trains()]) == 1 and has_epochs(
        server, run_id
    )


def ranks(server, run_id: str) -> bool:
    """The launcher and its two ranks."""
    return len([process for process in processes_of(server.home) if process.trains()]) == 3 and has_epochs(
        server, run_id
    )


def has_epochs(server, run_id: str) -> bool:
    with open_instance(server.home) as instance:
        return any("epoch " in entry.user_message for entry in instance.all_logs(run_id))


def write(folder: Path, name: str) -> None:
    """Writes the pipeline that is to be cancelled."""
    if name == "in_metis":
        graph = sbm(nodes=100_000, edges=2_000_000, features=4, classes=4)
        text = recipe(graph=graph, partitions={"method": "metis", "parts": 64})
    elif name == "packing":
        graph = sbm(nodes=200_000, edges=2_000_000, features=64, classes=4)
        sampling = {"fanouts": [10, 10], "batch_size": 128, "reuse": 2}
        memory = PACKED["memory"] | {"disk": "3x"}
        text = recipe(graph=graph, sampling=sampling, **PACKED | {"memory": memory})
    elif name == "training":
        write_tiny(folder, name, tables=("sage",), nodes="300 -> 401", epochs="2 -> 1000000")
        return
    else:
        write_tiny(folder, name, tables=(), nodes="300 -> 402", more=RANKS)
        return
    (folder / f"{name}.toml").write_text(text)


@pytest.mark.parametrize(
    ("reached", "job"),
    [
        (in_metis, "preprocess"),
        (packing, "preprocess"),
        (training, "all"),
        (ranks, "all"),
    ],
)
def test_cancelling_leaves_no_process_and_a_sound_store(server, reached: Callable, job: str):
    name = reached.__name__
    write(server.pipelines, name)
    try:
        server.reload()
        before = {process.pid for process in processes_of(server.home)}
        finished = {(each.stage, each.version) for each in Store(server.home).artifacts()}
        run_id = server.launch(f"{name}__{job}")
        try:
            wait_for(lambda: reached(server, run_id) or server.status(run_id) in FINISHED, f"{name} to be reached", 600)
            during = {process for process in processes_of(server.home) if process.pid not in before}
        finally:
            server.cancel(run_id)
        assert during
        server.wait_for_run(run_id, "CANCELED")
        wait_for(lambda: not during & processes_of(server.home), f"the end of {during}")
    finally:
        (server.pipelines / f"{name}.toml").unlink()
        server.reload()
    server.assert_sound()
    new = {each.stage for each in Store(server.home).artifacts() if (each.stage, each.version) not in finished}
    assert "graph" in new and not new & {"model"}
    assert not new & ({"partitions"} if reached is in_metis else {"packed_chunks"})
    with open_instance(server.home) as instance:
        assert slot_holders(instance) == ""
    assert not any((server.home / "store" / ".claims").glob("*"))
