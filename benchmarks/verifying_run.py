"""One timed run of benchmarks/verifying.py in a process of its own: `python -m benchmarks.verifying_run WHAT FOLDER QUICK`.

The time of the processor is that of all threads and of the processes that built parts. What the comparisons of this process took is counted
by calling them through a clock of the thread that compares.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Stage
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import Versions, find_inputs, preprocessing_steps
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.files import verified
from graphmill.assets.storage.local import artifact
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import execution_of
from graphmill.jobs.runs.training import training_steps
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.graphs import GraphArtifacts, build_graph

SIZE = {
    "nodes": 1_000_000,
    "edges": 8_000_000,
    "features": 128,
    "classes": 16,
    "train_ratio": 0.1,
    "valid_ratio": 0.001,
}
QUICK = SIZE | {"nodes": 100_000, "edges": 800_000, "valid_ratio": 0.01}
SAMPLING = SamplingConfig(fanouts=(15, 10), batch_size=1000)
TABLE: dict[str, Any] = {
    "name": "epoch",
    "model": "sage",
    "hidden": 64,
    "epochs": 1,
    "threads": 2,
    "features": "mapped",
}


RUN = ["train.epochs=2"]
QUICK_RUN = ["train.epochs=1", "graph.nodes=16384", "graph.edges=131072"]


def main(what: str, folder: Path, quick: bool) -> None:
    """Prints {"seconds", "cpu_seconds", "comparing_seconds", "weights"} as its last line."""
    if what == "graph":
        _graph(folder, quick)
        print(json.dumps({}))
        return
    with tempfile.TemporaryDirectory(dir=folder) as name:
        home = Path(name)
        run = _whole_run if what == "run" else _epoch
        artifacts = _graph(folder, quick) if what == "epoch" else None
        verified._SOUND.clear()  # the graph was not built in this process, and counts as unread
        comparing = _timed_comparisons()
        begun, spent = time.perf_counter(), _cpu_seconds()
        models = run(home, artifacts, quick)
        found = {"seconds": time.perf_counter() - begun, "cpu_seconds": _cpu_seconds() - spent}
        weights = [model.files["weights.safetensors"]["digest"] for model in models]
    print(json.dumps(found | {"comparing_seconds": sum(comparing), "weights": weights}))


def _cpu_seconds() -> float:
    """Returns the time of the processor so far: of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _timed_comparisons() -> list[float]:
    """Has the comparisons note their seconds in the list that is returned."""
    seconds: list[float] = []

    def timed(compare: Any) -> Any:
        def run(*given: Any) -> Any:
            begun = time.thread_time()
            try:
                return compare(*given)
            finally:
                seconds.append(time.thread_time() - begun)

        return run

    verified.READ_THREADS = 1  # then the thread that asks is the one that compares
    artifact.verify_once, artifact.verify_again = timed(artifact.verify_once), timed(artifact.verify_again)
    verified.VerifiedRows.require = timed(verified.VerifiedRows.require)
    return seconds


def _graph(folder: Path, quick: bool) -> GraphArtifacts:
    return build_graph(Store(folder / "graph"), config_class("rmat")(seed=1, **(QUICK if quick else SIZE)))


def _epoch(home: Path, artifacts: GraphArtifacts | None, quick: bool) -> list[Artifact]:
    assert artifacts is not None
    return list(train_table(Store(home), artifacts.inputs, TrainTable(**TABLE), SAMPLING, 0, report=_nothing))


def _whole_run(home: Path, artifacts: GraphArtifacts | None, quick: bool) -> list[Artifact]:
    """Carries out every step of `rmat-disk`, with half of its epochs: more of the run is then comparing."""
    store, versions, pipeline = (
        Store(home),
        Versions(),
        load_pipeline("rmat-disk", TrainTable, settings=QUICK_RUN if quick else RUN),
    )
    data = preprocessing_steps(pipeline, home)
    for step in data:
        stage = step.recipe
        assert isinstance(stage, Stage)
        materialize(store, stage, step.configs[0], execution_of(stage, 2), find_inputs(store, step, versions))
    models = []
    for step, table in zip(training_steps(pipeline, data), pipeline.train, strict=True):
        found = find_inputs(store, step, versions)
        inputs, reads = ({role: found[role] for role in roles} for roles in (step.inputs, step.reads))
        models += train_table(store, inputs, table, pipeline.sampling, pipeline.seed, reads=reads, report=_nothing)
    return models


def _nothing(line: str) -> None:
    """Nobody listens."""


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), bool(int(sys.argv[3])))
