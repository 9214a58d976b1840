"""Stored samples of a small graph, for the tests of this folder and of trainers."""

from typing import Any

from graphmill.assets.building.materialize import materialize
from graphmill.assets.samples.config import SamplesConfig, SamplesExecution
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.storage.store import Store
from tests.trainers.graphs import random_graph_artifacts

CONFIG: dict[str, Any] = {"seed": 5, "method": "uniform", "fanouts": (4, 3), "batch_size": 32, "epochs": 1}
SMALL_PARTS = 10_000
"""Bytes a part such that the seven batches of an epoch make several parts."""


def build_samples(home, progress=None, graph=None, workers=1, threads=1, **config):
    """Returns the samples of the small graph in `home`, with several parts an epoch."""
    store = Store(home)
    found = [artifact for artifact in store.artifacts() if artifact.stage == "graph"]
    graph = graph or (found[0] if found else random_graph_artifacts(home).graph)
    semantic = SamplesConfig(**(CONFIG | {"part_bytes": SMALL_PARTS} | config))
    execution = SamplesExecution(workers=workers, threads=threads)
    return materialize(store, SAMPLES, semantic, execution, {"graph": graph}, progress)


def contents(artifact):
    """Every byte of the samples and of their parts, but for the records of how they came to be."""
    found = {}
    for each in (artifact, *(artifact.open_part(name) for name in artifact.parts)):
        for name in (*each.files, "manifest.json", "block_digests.bin"):
            found[each.label, name] = (each.path / name).read_bytes()
    return found
