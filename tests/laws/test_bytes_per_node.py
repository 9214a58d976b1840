"""No step holds more bytes per node in memory than docs/memory.md says.

Every step runs on two graphs that differ in their number of nodes alone: as many training nodes, batches of the same size, ranges of nodes
that are small beside both. What the peak grows by is what the step holds per node. Python's own allocations and NumPy's are counted, to the
byte; the maps of samplers, which native code allocates, and tensors of torch are not.
"""

import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.graph import checks
from graphmill.assets.graph import stage as graph_stage
from graphmill.assets.hotness import stage as hotness_stage
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.sources import spool
from graphmill.assets.sources.arrays import archive
from graphmill.assets.sources.generated import generators
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels import ranges
from graphmill.trainers.inference import needed
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.run import train_table
from tests.docs.pages import ROOT

LEAST, FEW, MANY = 4_000, 40_000, 140_000
SLACK = 1.0
"""Bytes per node that rounding, sets of bits and what grows with the batches' inputs may add."""

RECIPE = """
seed = 3
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
undirected = false
features = 4
classes = 4
labelled = {labelled}
train_ratio = 0.5
valid_ratio = 0.25
[features]
[partitions]
method = "ldg"
parts = 2
[chunks]
chunks_per_part = 4
[sampling]
fanouts = [2, 2]
batch_size = 50
reuse = 1
[samples]
[hotness]
layers = "inputs"
[memory]
device = "16KiB"
host = "16KiB"
disk = "16MiB"
[cache_plan]
[packed]
"""
TRAINERS: dict[str, dict[str, Any]] = {
    "minibatch": {},
    "factored": {},
    "disk": {},
    "fresh": {"fresh": {"arena": "64KiB"}},
    "fresh-factored": {"fresh-factored": {"arena": "64KiB"}},
    "distributed": {},
    "fresh-distributed": {"fresh-distributed": {"arena": "64KiB"}},
}


@pytest.fixture(scope="module", autouse=True)
def small_ranges() -> Iterator[None]:
    """Makes what is done at one time small beside both graphs."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (ranges, "NODES_AT_ONCE", 1 << 11),
            (ranges, "KEYS_AT_ONCE", 1 << 11),
            (ranges, "SUMS_AT_ONCE", 1 << 14),
            (hotness_stage, "free_bytes", lambda: 0),  # no more sums than that
            (needed, "RANGE_BYTES", 1 << 8),
            (generators, "HELD_EDGES", 1 << 10),
            (generators, "BATCH_EDGES", 1 << 12),
            (generators, "SORT_BYTES", 1 << 18),
            (spool, "BATCH_EDGES", 1 << 12),
            (archive, "SLICE_BYTES", 1 << 14),
            (graph_stage, "NODE_ROWS", 1 << 12),
            (checks.row_slices, "__defaults__", (1 << 12,)),
        ):
            patch.setattr(module, name, value)
        yield


class Traced:
    """The peaks of steps on one graph.

    Attributes:
        peaks: step -> largest number of bytes that it held above what was there before.
    """

    def __init__(self, folder: Path, nodes: int):
        self.peaks: dict[str, int] = {}
        path = folder / f"n{nodes}.toml"
        tables = "".join(_train(name, keys) for name, keys in TRAINERS.items())
        path.write_text(RECIPE.format(nodes=nodes, edges=2 * nodes, labelled=600 / nodes) + tables)
        self.pipeline, self.store = load_pipeline(path, TrainTable), Store(folder / f"home{nodes}")
        self.made: dict[str, Artifact] = {}
        for step in preprocessing_steps(self.pipeline, self.store.home):
            stage, (config,) = step.recipe, step.configs
            sources = [
                {role: self.made[each.name] for role, each in given.items()} for given in (step.inputs, step.reads)
            ]
            execution = stage.Execution(threads=1) if hasattr(stage.Execution(), "threads") else stage.Execution()
            with self.watched(step.name):
                self.made[step.name] = materialize(self.store, stage, config, execution, sources[0], reads=sources[1])
        for table in self.pipeline.train:
            technique, quiet = find_technique(table.trainer), {"report": lambda line: None, "epoch_lines": "none"}
            inputs = {name: self.made[name] for name in ("graph", "features", *technique.inputs)}
            reads = {name: self.made[name] for name in table.reads if name in self.made}
            with self.watched(table.name):
                train_table(self.store, inputs, table, self.pipeline.sampling, 3, reads=reads, **quiet)

    def watched(self, name: str) -> Any:
        return _Watched(self.peaks, name)


class _Watched:
    def __init__(self, peaks: dict[str, int], name: str):
        self.peaks, self.name = peaks, name

    def __enter__(self) -> None:
        tracemalloc.start()

    def __exit__(self, *error: object) -> None:
        self.peaks[self.name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def _train(name: str, keys: dict[str, Any]) -> str:
    lines = [
        f'[[train]]\nname = "{name}"\ntrainer = "{name}"\nlayers = 2\nhidden = 4\nepochs = 1\neval = "sampled"\nqueue = "1MiB"\n'
    ]
    lines += [
        f"[train.{table}]\n" + "".join(f'{key} = "{value}"\n' for key, value in more.items())
        for table, more in keys.items()
    ]
    return "".join(lines)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Bytes per node of each step."""
    # The first run imports and caches what the others find.
    _, few, many = (Traced(tmp_path_factory.mktemp("home"), nodes).peaks for nodes in (LEAST, FEW, MANY))
    return {name: (many[name] - few[name]) / (MANY - FEW) for name in few}


def documented() -> dict[str, float]:
    """Step -> bytes per node that docs/memory.md allows."""
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+) \|", (ROOT / "docs" / "memory.md").read_text(), re.M)
    return {name: float(number) for name, number in rows}


@pytest.mark.slow("the memory per node of every step")
def test_every_step_stays_within_the_table(held: dict[str, float]) -> None:
    allowed = documented()
    assert held.keys() <= allowed.keys()
    over = {name: f"{found:.2f} of {allowed[name]}" for name, found in held.items() if found > allowed[name] + SLACK}
    assert not over, held
