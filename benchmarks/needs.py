"""Peak memory of every data stage against what `graphmill inspect` said, before anything was built and when its inputs were there.

The graph is that of `benchmarks/big.py`, in two sizes. `graphmill build` runs each step in a process of its own; the anonymous pages of
that process and its children are looked at from outside every few milliseconds. Said before: from the source's survey, a bound where sizes
depend on what is drawn. Said exactly: by the step, from the artifacts that it reads, before it begins.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from benchmarks.big import EDGES, NODES
from benchmarks.record import record
from graphmill.assets.costs.needs import COMMAND_BYTES
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store

TINY = 1 / 100_000
QUICK, FULL = (1 / 512, 1 / 256), (1 / 32, 1 / 16)
STARTED = re.compile(r"- (\d+) - big__(\w+) - STEP_WORKER_STARTED")
SAMPLE_SECONDS = 0.003
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


class Watch:
    """The peak of anonymous memory of every process of a build.

    Attributes:
        rest: bytes of the processes that are no step's, at their largest.
    """

    def __init__(self, process: subprocess.Popen[str]):
        self.process, self.rest = process, 0
        self._steps: dict[int, str] = {}
        self._peaks: dict[int, int] = {}
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    @property
    def peaks(self) -> dict[str, int]:
        """Step -> bytes of its process and of those that it started, at their largest."""
        return {step: self._peaks.get(pid, 0) for pid, step in self._steps.items()}

    def hear(self, lines: IO[str]) -> str:
        """Reads the output of the build to its end, which tells the processes of steps."""
        text = ""
        for line in lines:
            text += line
            if found := STARTED.search(line):
                self._steps[int(found[1])] = found[2]
        self._thread.join()
        return text

    def _look(self) -> None:
        children, spawned, count = {}, dict[int, bool](), 0
        while self.process.poll() is None:
            if count % 4 == 0:
                children = _children()
            count += 1
            rest = _anonymous(self.process.pid)
            for pid in children.get(self.process.pid, []):
                held = sum(_anonymous(each) for each in _tree(pid, children))
                if spawned.setdefault(pid, _is_spawned(pid)):
                    self._peaks[pid] = max(self._peaks.get(pid, 0), held)
                else:
                    rest += held
            self.rest = max(self.rest, rest)
            time.sleep(SAMPLE_SECONDS)


def main(quick: bool, scale: float | None = None) -> None:
    """Asks, builds, compares, prints and records."""
    with tempfile.TemporaryDirectory(prefix="graphmill-needs-") as name:
        measured(Path(name), TINY)  # the compiled modules of every process are in Python's cache afterwards
    for size in [scale] if scale else QUICK if quick else FULL:
        with tempfile.TemporaryDirectory(prefix="graphmill-needs-") as name:
            rows = measured(Path(name), size)
        print(f"scale {size:g}: {NODES * size:,.0f} nodes, {EDGES * size:,.0f} edges")
        print(f"{'step':15}{'said before':>14}{'said exactly':>14}{'measured':>12}{'said / measured':>17}")
        for row in rows:
            said = [format_bytes(row[name]) for name in ("before_bytes", "exact_bytes", "peak_bytes")]
            print(
                f"{row['step']:15}{said[0]:>14}{said[1]:>14}{said[2]:>12}{row['exact_bytes'] / row['peak_bytes']:>17.3f}"
            )
        record("needs", {"scale": size, "rows": rows})


def measured(folder: Path, scale: float) -> list[dict[str, Any]]:
    """Returns a row per step: what was said before and exactly, and its peak; the waiting command's as step "command"."""
    (folder / "big.toml").write_text(RECIPE.format(nodes=int(NODES * scale), edges=int(EDGES * scale)))
    said = json.loads(_graphmill(folder, "inspect", "big.toml", "--json").communicate()[0])["needs"]["steps"]
    # `in_process=False` gives each step of a small graph a process, too.
    build = _start(folder, "from graphmill.jobs.launch import Launch, launch; from pathlib import Path\n" + BUILD)
    watch = Watch(build)
    assert build.stdout is not None
    text = watch.hear(build.stdout)
    assert build.wait() == 0, text[-2000:]
    exact = {
        artifact.stage: artifact.run_record().get("work", {}).get("memory_bytes")
        for artifact in Store(folder / "home").artifacts()
        if artifact.part_of is None
    }
    rows = []
    for each in said:
        before = sum(term["bytes"] for term in each["memory"] if not term["what"].startswith("the command"))
        # The features are built by the process of the graph, which takes more afterwards.
        peak = watch.peaks.get(each["step"], 0)
        if peak:
            row = {"step": each["step"], "before_bytes": before, "exact_bytes": exact[each["step"]] or before}
            rows.append(row | {"peak_bytes": peak})
    return [
        *rows,
        {"step": "command", "before_bytes": COMMAND_BYTES, "exact_bytes": COMMAND_BYTES, "peak_bytes": watch.rest},
    ]


BUILD = """
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.trainers.recipe.config import TrainTable
launch(Launch(pipeline=load_pipeline("big.toml", TrainTable), selection="preprocess", in_process=False))
"""


def _graphmill(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return _start(folder, "import sys; from graphmill.jobs.cli import main; sys.exit(main())", *arguments)


def _start(folder: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"GRAPHMILL_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if not arguments else None,
        text=True,
    )


def _tree(pid: int, children: dict[int, list[int]]) -> list[int]:
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(path.name))
    return found


def _is_spawned(pid: int) -> bool:
    """Tells whether a process runs a step."""
    with suppress(OSError):
        return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def _anonymous(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0
