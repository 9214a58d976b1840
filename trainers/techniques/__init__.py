"""The table of techniques: what each trainer needs of a pipeline, and which file carries it out.

A technique is one file in this folder and one row here. The row is read wherever a train table is: it says which tables the pipeline
file must have, which artifacts the training reads, and which of them decide the model's version. The file is imported only where the
technique trains, since it imports torch. No other file of the project names a technique.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from kernels.errors import InputError
from trainers.techniques.distributed_settings import DistributedSettings
from trainers.techniques.factored_settings import FactoredSettings
from trainers.techniques.fresh_distributed_settings import FreshDistributedSettings
from trainers.techniques.fresh_settings import FreshSettings
from trainers.techniques.fullgraph_settings import FullGraphSettings


@dataclass(frozen=True, kw_only=True)
class Technique:
    """One value of the key `trainer`.

    Attributes:
        name: the value.
        module: the file that carries it out; its function `open_executor(run)` returns an `Executor` (trainers/executor.py).
        needs: tables that the pipeline file must have besides [graph].
        inputs: stages besides the graph and its features whose versions enter the model's, because they can change its weights.
        reads: stages that the training reads besides, where the pipeline has them; they change how it runs and none of its weights.
        asks: table -> key -> value that the technique needs in a stage's table, whatever the file says there.
        stored: the mini-batches come from the `samples` stage, whatever the key `samples` says.
        on_device: it trains on devices with memory of their own, too (`device`).
        predicts: its file has a function `predicted(run, epochs)`: numbers that the ledger has after so many epochs, name -> number
            (trainers/checks.py). A check compares them.
        settings: dataclass of the sub-table `[train.NAME]` with the technique's own keys, None without one.
        samples_on_device: a device with memory of its own may sample the batches (`topology`).
        books_topology: devices sample, so `topology = "device"` has a meaning on the CPU: its bytes are booked on each of them.
        by_parts: several processes may share a training, each with the rows of its parts (trainers/open_parts.py).
        whole_graph: every optimiser step is a pass over all nodes, in pieces: there are no mini-batches, no groups of them, and no
            statistics of one.
        approximate: it trains on less than what the batches ask for, so its weights are those of no other technique.
    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    asks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stored: bool = False
    on_device: bool = False
    predicts: bool = False
    settings: type | None = None
    samples_on_device: bool = False
    books_topology: bool = False
    by_parts: bool = False
    whole_graph: bool = False
    approximate: bool = False

    def load(self) -> ModuleType:
        """Imports the file that carries the technique out."""
        import importlib

        return importlib.import_module(self.module)


DEFAULT = "minibatch"
"""The technique of a train table that names none."""

TECHNIQUES: dict[str, Technique] = {
    row.name: row
    for row in (
        Technique(
            name=DEFAULT,
            module="trainers.techniques.minibatch",
            needs=("sampling",),
            reads=("hotness", "budgets"),
            on_device=True,
            predicts=True,
            samples_on_device=True,
        ),
        Technique(
            name="disk",
            module="trainers.techniques.disk",
            needs=("sampling", "samples", "memory", "cache_plan"),
            reads=("samples", "cache_plan", "packed_chunks"),
            stored=True,
            on_device=True,
            predicts=True,
        ),
        Technique(
            name="factored",
            module="trainers.techniques.factored",
            needs=("sampling",),
            reads=("hotness", "budgets"),
            on_device=True,
            predicts=True,
            settings=FactoredSettings,
            books_topology=True,
        ),
        Technique(
            name="fresh",
            module="trainers.techniques.fresh",
            needs=("sampling",),
            inputs=("hotness",),
            reads=("budgets", "samples", "cache_plan", "packed_chunks"),
            asks={"hotness": {"layers": "inputs"}},
            on_device=True,
            predicts=True,
            settings=FreshSettings,
            approximate=True,
        ),
        Technique(
            name="fullgraph",
            module="trainers.techniques.fullgraph",
            needs=("partitions", "chunks"),
            inputs=("chunks",),
            on_device=True,
            predicts=True,
            settings=FullGraphSettings,
            whole_graph=True,
        ),
        Technique(
            name="distributed",
            module="trainers.techniques.distributed",
            needs=("sampling", "partitions"),
            inputs=("partitions",),
            reads=("shards", "hotness", "budgets"),
            on_device=True,
            predicts=True,
            settings=DistributedSettings,
            by_parts=True,
        ),
        Technique(
            name="fresh-distributed",
            module="trainers.techniques.fresh_distributed",
            needs=("sampling", "partitions"),
            inputs=("partitions", "hotness"),
            reads=("shards", "budgets"),
            asks={"hotness": {"layers": "inputs"}},
            on_device=True,
            predicts=True,
            settings=FreshDistributedSettings,
            by_parts=True,
            approximate=True,
        ),
    )
}


def technique_names() -> tuple[str, ...]:
    """Returns the values that the key `trainer` may have."""
    return tuple(TECHNIQUES)


def find_technique(name: str) -> Technique:
    """Returns the row of a technique.

    Raises:
        InputError: there is no technique of that name.
    """
    if name not in TECHNIQUES:
        raise InputError(f"trainer = {name!r} is not one of {', '.join(TECHNIQUES)}", "give one of these names")
    return TECHNIQUES[name]
