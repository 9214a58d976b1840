"""A graph in the proportions of ogbn-papers100M, larger than memory in earnest: prepared, trained and evaluated under a limit.

At scale 1 an R-MAT graph of 111M nodes and 1.6G edges, 128 float16 features, 172 classes of which 1.4% of the nodes know theirs, edges as
they are drawn, fan-outs [10, 10]. Every command runs in a control group of 2 + 6 S GiB, after the files of the home were dropped from
the page cache: pages that another group holds would cost it nothing. The trainers use the same samples, and before their times are told
`disk` and `minibatch` must have the same weights. `distributed` is left out: it maps its shards, and at scale 1/8 a round takes 17 s.

Recorded for each command: seconds, the largest anonymous memory of the group (what the kernel cannot take back), and the bytes read from
the device; for each stage its seconds; for each training the seconds of an epoch and of an evaluation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from assets.sizes import format_bytes
from assets.storage.home import ROOT
from assets.storage.store import Store
from benchmarks.record import record

QUICK, FULL = 1 / 512, 1 / 8
NODES, EDGES = 111_000_000, 1_600_000_000
RECIPE = """
name = "big"
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
undirected = false
features = 128
classes = 172
labelled = 0.014
train_ratio = 0.78
valid_ratio = 0.08
[features]
dtype = "float16"
[sampling]
fanouts = [10, 10]
batch_size = 1024
reuse = 1
[samples]
[hotness]
[memory]
device = "3%"
host = "6%"
disk = "20x"
[cache_plan]
[packed]
"""
TRAIN = """
[[train]]
name = "{name}"
hidden = 128
epochs = 2
eval = "sampled"
queue = "384MiB"
{more}
"""
TABLES = {
    "minibatch": 'samples = "stored"',
    "disk": 'trainer = "disk"',
    "fresh": 'trainer = "fresh"\nsamples = "stored"\n[train.fresh]\nrows = "packed"\narena = "3%"',
}
SECONDS_AT_MOST = 3600


class Group:
    """A control group with a memory limit, version 1 or 2; without the right to make one, the same figures without a limit."""

    def __init__(self, limit_bytes: int):
        memory = Path("/sys/fs/cgroup/memory")
        self.old = memory.is_dir()
        self.folder = (memory if self.old else Path("/sys/fs/cgroup")) / f"graphmill-{os.getpid()}"
        self.limit, self.peak, self._done = limit_bytes, 0, threading.Event()

    def __enter__(self) -> Group:
        try:
            self.folder.mkdir()
            (self.folder / ("memory.limit_in_bytes" if self.old else "memory.max")).write_text(str(self.limit))
            self.limited = True
        except OSError as error:
            print(f"no control group can be made ({error}): nothing is limited, and peaks are not measured")
            self.limited = False
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watch.join()
        for _ in range(100 if self.limited else 0):
            try:
                self.folder.rmdir()
                break
            except OSError:  # its last process is not gone yet
                time.sleep(0.1)

    def inside(self, command: list[str]) -> list[str]:
        """Returns the command that runs another one in the group."""
        enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]
        return enter + command if self.limited else command

    def _look(self) -> None:
        name = "total_rss" if self.old else "anon"
        while not self._done.wait(0.05):
            if self.limited:
                words = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
                self.peak = max(self.peak, int(words[name]))


def main(quick: bool, scale: float | None = None) -> None:
    """Builds, trains, compares, prints and records."""
    scale = scale or (QUICK if quick else FULL)
    limit = int((2 + 6 * scale) * 2**30)
    with tempfile.TemporaryDirectory(prefix="graphmill-big-") as name:
        folder, found = Path(name), {}
        recipe = RECIPE.format(nodes=int(NODES * scale), edges=int(EDGES * scale))
        recipe += "".join(TRAIN.format(name=table, more=more) for table, more in TABLES.items())
        (folder / "big.toml").write_text(recipe)
        print(
            f"scale {scale:g}: {NODES * scale:,.0f} nodes, {EDGES * scale:,.0f} edges, {format_bytes(limit)} of memory"
        )
        found["build"] = _run(folder, limit, "build", "big.toml")
        for table in TABLES:
            found[table] = _run(folder, limit, "train", "big.toml", table)
        stages, models = _recorded(folder / "home")
        same = models["disk"]["weights"] == models["minibatch"]["weights"]
        assert same, "disk and minibatch trained other weights on the same samples"
        for table, each in models.items():
            found[table] |= {name: value for name, value in each.items() if name != "weights"}
        print(json.dumps({"stages": stages, "commands": found}, indent=1))
        record("big", {"scale": scale, "limit_bytes": limit, "stages": stages, "commands": found})


def _run(folder: Path, limit: int, *arguments: str) -> dict[str, Any]:
    """Runs a command in a control group, and returns its seconds, peak and bytes read."""
    _drop_pages(folder / "home")
    before, started = _read_bytes(folder), time.perf_counter()
    environment = os.environ | {"GRAPHMILL_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    code = "import sys; from jobs.cli import main; sys.exit(main())"
    with Group(limit) as group:
        process = subprocess.Popen(
            group.inside([sys.executable, "-c", code, *arguments]),
            cwd=folder,
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = process.communicate(timeout=SECONDS_AT_MOST)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert process.returncode == 0, f"{' '.join(arguments)} failed:\n{said[-2000:]}"
    row = {"seconds": round(time.perf_counter() - started, 1), "peak_bytes": group.peak}
    row |= {"read_bytes": _read_bytes(folder) - before}
    print(
        f"{' '.join(arguments)}: {row['seconds']} s, {format_bytes(group.peak)}, read {format_bytes(row['read_bytes'])}"
    )
    return row


def _recorded(home: Path) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """Returns stage -> seconds, and train table -> seconds of epochs and evaluations, score and digest of the weights."""
    store, stages, models = Store(home), {}, {}
    for artifact in store.artifacts():
        run = artifact.run_record()
        if artifact.stage == "model":
            trainer = artifact.config["train"]["trainer"]
            seconds = run["epoch_seconds"]
            models[trainer] = {
                "epoch_seconds": seconds["train"],
                "evaluate_seconds": seconds["evaluate"],
                "test_accuracy": artifact.summary["numbers"]["test_accuracy"],
                "weights": artifact.files["weights.safetensors"]["digest"],
            }
        elif artifact.part_of is None:
            stages[artifact.stage] = run["seconds"]
    return stages, models


def _drop_pages(home: Path) -> None:
    for path in home.rglob("*") if home.is_dir() else ():
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _read_bytes(folder: Path) -> int:
    """Returns the bytes that the folder's device has read since it was started; others that read from it count, too."""
    device = os.stat(folder).st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(place.read_text().split()[2]) * 512 if place.exists() else 0
