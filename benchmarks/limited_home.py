"""A pipeline file in a home of its own, whose commands run one by one in a control group (benchmarks/groups.py), each once.

What was measured is kept in `found.json` beside the home. So a measurement that takes an hour may be taken in several calls, and one that
failed is taken again without the others.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.groups import run_limited, told
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store

SECONDS_AT_MOST = 3600
RIVALS = ("dgl", "graphbolt")
GRAPHBOLT = "GRAPHBOLT_PYTHON"
"""Environment variable that names an interpreter with GraphBolt: DGL 2.1 wants another torch than graphmill."""
RECIPE = """
name = "{name}"
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
features = {features}
classes = {classes}
labelled = 0.014
train_ratio = 0.73
valid_ratio = 0.07
[sampling]
fanouts = [10, 10]
batch_size = {batch_size}
reuse = 1
[samples]
[hotness]
[memory]
host = "100MiB"
device = "50MiB"
disk = "20GiB"
[cache_plan]
"""
"""Beginning of a pipeline file: few labelled nodes, undirected edges, features of far more than the bytes of `[memory]`."""


@contextmanager
def folder_of(home: Path | None, prefix: str) -> Iterator[Path]:
    """Yields the folder that is named, which is kept, or one that is removed in the end."""
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        yield home.resolve()
        return
    with TemporaryDirectory(prefix=prefix) as name:
        yield Path(name)


class LimitedHome:
    """Runs the commands of one pipeline, and keeps what they took.

    Args:
        folder: holds the pipeline file, `home` and `found.json`.
        limit_bytes: memory of each command.
        again: whether to plan and train once more what is planned and trained already.
    """

    def __init__(self, folder: Path, limit_bytes: int, again: bool = False):
        self.folder, self.limit_bytes, self.again = folder, limit_bytes, again
        self.store = Store(folder / "home")
        self._file = folder / "found.json"
        self.found: dict[str, dict[str, Any]] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def command(
        self,
        part: str,
        *arguments: str,
        seconds: float = SECONDS_AT_MOST,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """Runs `graphmill ARGUMENTS`, killed once `stopped` is true, unless this part has ended well before. Returns its row."""
        code = "import sys; from graphmill.jobs.cli import main; sys.exit(main())"
        again = self.again and arguments[0] in ("plan", "train")
        retrain = ["--retrain"] if again and arguments[0] == "train" and "--retrain" not in arguments else []
        return self._row(part, [sys.executable, "-c", code, *arguments, *retrain], seconds, again, stopped)

    def build(self, name: str, stages: Mapping[str, str], parts: tuple[str, ...]) -> None:
        """Builds stage after stage, each in a group of its own with a pipeline file PART.toml that asks for no later one.

        Args:
            stages: part -> what it adds to the pipeline file, in the order of building.
            parts: parts that are run; the program ends if one of them is not built.
        """
        recipe = f'name = "{name}"\n'
        for part, text in stages.items():
            recipe += text
            (self.folder / f"{part}.toml").write_text(recipe)
            if part in parts and self.command(part, "build", f"{part}.toml")["ended"] != "well":
                sys.exit(f"{part} was not built, and what follows needs it")

    def note(self, part: str, **values: Any) -> dict[str, Any]:
        """Keeps more values of a part. Returns its row."""
        self._keep(part, self.found[part] | values)
        return self.found[part]

    def rival(
        self, system: str, *, hidden: int, seconds: float, spec: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Trains batches of an epoch in DGL or GraphBolt on mapped files; without an interpreter that has it, returns None.

        Args:
            system: one of `RIVALS`.
            hidden: width of the hidden layer.
            seconds: time after which no batch begins; the epoch is extrapolated from those that ended.
            spec: what the rival reads, if it is not this home's labelled nodes (benchmarks/mapped_rivals.py).
        """
        python = sys.executable if system == "dgl" else os.environ.get(GRAPHBOLT)
        if python is None:
            print(f"{system}: left out, {GRAPHBOLT} names no interpreter that has it")
            return None
        spec = (spec or self._spec(system)) | {"system": system, "hidden": hidden, "seconds": seconds}
        path = self.folder / f"{system}.json"
        path.write_text(json.dumps(spec))
        script = Path(__file__).with_name("mapped_rivals.py")
        row = self._row(system, [python, str(script), str(path)], seconds + 120, self.again)
        if row["ended"] == "well":
            each = json.loads(row["said"].splitlines()[-1])["batch_seconds"]
            mean, num = sum(each) / len(each), spec["batches"]
            row |= {"batches": len(each), "of": num, "extrapolated": len(each) < num, "epoch_seconds": [mean * num]}
            self._keep(system, row)
        return row

    def artifact(self, stage: str) -> Artifact:
        """Returns the artifact of a stage that this home has once."""
        (found,) = [each for each in self.store.artifacts() if each.stage == stage and each.part_of is None]
        return found

    def stages(self) -> dict[str, dict[str, Any]]:
        """Returns stage -> its seconds, those of its parts included, and the bytes that it stored."""
        artifacts = [each for each in self.store.artifacts() if each.stage != "model"]
        found: dict[str, dict[str, Any]] = {}
        for each in artifacts:
            if each.part_of is None:
                found[each.stage] = {"seconds": each.run_record()["seconds"], "stored_bytes": each.total_bytes}
        for each in artifacts:
            if each.part_of is not None:
                found[each.part_of[0]]["seconds"] += each.run_record()["seconds"]
        return found

    def models(self) -> dict[str, dict[str, Any]]:
        """Returns train table -> seconds of epochs and evaluations, score, digest of the weights, bytes asked of disk and moved."""
        found = {}
        for each in self.store.artifacts():
            if each.stage != "model":
                continue
            run = each.run_record()
            ledger = json.loads((each.path / "ledger.json").read_text())
            disk = [move for move in ledger["moves"] if move["link"] == "disk"]
            found[run["execution"]["asked_by"].rpartition("/")[2]] = {
                "epoch_seconds": run["epoch_seconds"]["train"],
                "evaluate_seconds": run["epoch_seconds"]["evaluate"],
                "test_accuracy": each.summary["numbers"].get("test_accuracy"),  # links have ranks
                "weights": each.files["weights.safetensors"]["digest"],
                "asked_bytes": sum(move["asked_bytes"] for move in disk),
                "moved_bytes": sum(move["moved_bytes"] for move in disk),
            }
        return found

    def rows(self) -> dict[str, dict[str, Any]]:
        """Returns part -> what it took, without what it said."""
        return {
            part: {name: value for name, value in row.items() if name != "said"} for part, row in self.found.items()
        }

    def _row(
        self,
        part: str,
        command: list[str],
        seconds: float,
        again: bool,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        if self.found.get(part, {}).get("ended") == "well" and not again:
            return self.found[part]
        environment = {"GRAPHMILL_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)}
        row = run_limited(command, self.folder, self.limit_bytes, seconds, environment, stopped)
        print(told(part, row), flush=True)
        if row["ended"] != "well":
            print(row["said"][-1500:], flush=True)
        self._keep(part, row)
        return row

    def _keep(self, part: str, row: dict[str, Any]) -> None:
        self.found[part] = row
        self._file.write_text(json.dumps(self.found, indent=1))

    def _spec(self, system: str) -> dict[str, Any]:
        graph, features = self.artifact("graph"), self.artifact("features")
        files = {name: str(graph.path / f"{name}.npy") for name in ("indptr", "indices", "labels", "train_ids")}
        sampling = self.artifact("samples").config
        seeds, size = graph.files["train_ids.npy"]["shape"][0], sampling["batch_size"]
        if system == "dgl":
            files["wide_indices"] = str(widened(Path(files["indices"]), self.folder / "wide_indices.npy"))
        return files | {
            "rows": str(features.path / "rows.npy"),
            "fanouts": sampling["fanouts"],
            "batch_size": size,
            "batches": -(-seeds // size),
            "classes": graph.summary["numbers"]["num_classes"],
            "lr": 0.003,
            "threads": 2,
        }


def show(models: dict[str, dict[str, Any]], rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Prints the epochs of trainings and rivals. Returns name -> mean seconds of an epoch."""
    epochs = {name: row["epoch_seconds"] for name, row in (rows | models).items() if "epoch_seconds" in row}
    means = {name: round(sum(each) / len(each), 3) for name, each in epochs.items()}
    for name, mean in sorted(means.items(), key=lambda each: each[1]):
        more = ""
        if rows.get(name, {}).get("extrapolated"):
            more = f", extrapolated from {rows[name]['batches']} of {rows[name]['of']} batches"
        held = format_bytes(rows[name]["anonymous_bytes"]) if name in rows else "?"
        print(f"{name}: {mean:.2f} s an epoch{more}, {held} held")
    return means


def widened(path: Path, out: Path) -> Path:
    """Writes ids as i64, a range at a time."""
    ids = np.load(path, mmap_mode="r")
    if not out.exists() or out.stat().st_size < 8 * len(ids):
        wide = np.lib.format.open_memmap(out, "w+", np.int64, ids.shape)
        for low in range(0, len(ids), DATA_OFFSET**2):
            wide[low : low + DATA_OFFSET**2] = ids[low : low + DATA_OFFSET**2]
        wide.flush()
    return out
