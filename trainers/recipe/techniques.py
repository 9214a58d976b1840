"""The table of techniques: each trainer's needs of a pipeline, and the file that implements it.

A technique is a file or a folder in trainers/techniques/ and one row here. The row is read with every train table: it states which tables
the pipeline file must have, which artifacts the training reads, and which of them decide the model's version. Rows name code as text, which
is imported on demand: executors need torch, which code that lists the tables of a pipeline does not load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.file_rules import FileRule
from graphmill.trainers.recipe.option_table import Limit


@dataclass(frozen=True, kw_only=True)
class Technique:
    """One value of the key `trainer`.

    Attributes:
        module: the module that implements it; its function `open_executor(run)` returns an `Executor` (trainers/loop/executor.py).
        needs: tables that the pipeline file must have besides [graph].
        inputs: stages besides the graph and its features whose versions enter the model's, because they can change its weights.
        reads: other stages that the training reads if the pipeline has them; they change how it runs and none of its weights.
        defaults: table -> keys that it has if the file lacks it.
        asks: table -> key -> value that the technique needs in a stage's table, regardless of the file.
        stored: whether the mini-batches come from the `samples` stage, regardless of the key `samples`.
        on_device: whether it trains on devices with memory of their own, too (`device`).
        predicts: whether its executor predicts numbers of the ledger (`planned`), which a check compares.
        settings: "module:name" of the dataclass of the sub-table `[train.NAME]` with the technique's own keys, "" without one.
        data: "module:name" of the function `open_data(run)` that opens plan, features and evaluation of a run (trainers/loop/executor.py).
        domain: "module:name" of the function `domain(topology, lane)` that says how ranks with the rows of all nodes share an evaluation
            (trainers/inference/evaluation.py); "" if there are no such ranks.
        costs: "module:name" of its formulas of memory, bytes and seconds, `Costs` (trainers/recipe/costs/forecast.py); "" without them.
        pieces: "module:name" of the function that measures the pieces of a training without batches, `measure_pieces(case, at_hand, model,
            most_bytes)` (trainers/training/speeds.py); "" for batches.
        by_parts: whether several processes may share a training, each with some of the parts of the graph.
        whole_graph: whether every optimiser step is a pass over all nodes, in chunks, without mini-batches, groups or statistics of them.
        halves: whether it runs the two halves of a layer at different times, so that models have to be lists of layers.
        approximate: whether it trains on less than the whole batches, so that its weights differ from every other technique's.
    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    asks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stored: bool = False
    on_device: bool = False
    predicts: bool = True
    settings: str = ""
    data: str = "graphmill.trainers.training.open_rows:open_data"
    domain: str = ""
    costs: str = ""
    pieces: str = ""
    by_parts: bool = False
    whole_graph: bool = False
    halves: bool = False
    approximate: bool = False

    @property
    def own_shards(self) -> bool:
        """Whether each process reads the features of its parts alone, which lie in shards."""
        return "shards" in self.reads

    def load(self) -> ModuleType:
        """Imports the module that implements the technique."""
        return import_module(self.module)

    def settings_type(self) -> type | None:
        """Imports the dataclass of the technique's own keys; returns None if it has no keys."""
        return _named(self.settings) if self.settings else None

    def open_costs(self) -> Any:
        """Imports its formulas of memory, bytes and seconds."""
        return _named(self.costs)

    def pieces_function(self) -> Any:
        """Imports the function that measures the pieces of a training without batches; returns None if the technique has none."""
        return _named(self.pieces) if self.pieces else None

    def limits(self) -> tuple[Limit, ...]:
        """Imports what does not go with the technique."""
        return (*_named(f"{LIMITS}:EVERYWHERE"), *_named(f"{LIMITS}:LIMITS").get(self.name, ()))

    def rules(self) -> tuple[FileRule, ...]:
        """Imports what the technique's settings ask of the other tables of a file."""
        return _named(f"{LIMITS}:RULES").get(self.name, ())

    def evaluation_domain(self, topology: Any, lane: Any) -> Any:
        """Returns the function that makes the nodes of an evaluation which ranks share."""
        return _named(self.domain)(topology, lane)

    def open_data(self, run: Any) -> None:
        """Opens plan, features and evaluation of a `Run` (trainers/loop/executor.py)."""
        _named(self.data)(run)


LIMITS = "graphmill.trainers.techniques.refusals"
"""Module with the limits and rules of all techniques."""


def _named(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


DEFAULT = "minibatch"
"""The technique of a train table that names none."""


def _row(name: str, *, own_keys: bool = True, **more: Any) -> Technique:
    """Returns the row of a technique of ours.

    Args:
        name: name of the technique, and of its file or folder in trainers/techniques/, with _ for -.
        own_keys: whether it has keys of its own: it is a folder with `executor`, `costs` and `settings`, whose `SETTINGS` is their
            dataclass. A technique without any is one file, and its `costs` are given.
    """
    place = f"graphmill.trainers.techniques.{name.replace('-', '_')}"
    if own_keys:
        own = {"module": f"{place}.executor", "settings": f"{place}.settings:SETTINGS", "costs": f"{place}.costs:COSTS"}
        return Technique(name=name, **own, **more)
    return Technique(name=name, module=place, **more)


_FRESH: dict[str, Any] = {
    "needs": ("sampling",),
    "inputs": ("hotness",),
    "reads": ("budgets", "samples", "cache_plan", "packed_chunks"),
    "asks": {"hotness": {"layers": "inputs"}},
    "on_device": True,
    "halves": True,
    "approximate": True,
}
"""What the techniques with a history of embeddings have in common."""

TECHNIQUES: dict[str, Technique] = {
    row.name: row
    for row in (
        _row(
            DEFAULT,
            own_keys=False,
            costs="graphmill.trainers.techniques.batch_costs:MINIBATCH",
            needs=("sampling",),
            reads=("hotness", "budgets"),
            on_device=True,
        ),
        _row(
            "disk",
            own_keys=False,
            costs="graphmill.trainers.techniques.stored_costs:DISK",
            needs=("sampling", "samples", "memory", "cache_plan"),
            reads=("samples", "cache_plan", "packed_chunks"),
            stored=True,
            on_device=True,
        ),
        _row(
            "factored",
            needs=("sampling",),
            reads=("hotness", "budgets", "samples", "cache_plan", "packed_chunks"),
            on_device=True,
        ),
        _row("fresh", **_FRESH),
        _row("fresh-factored", **_FRESH),
        _row(
            "fullgraph",
            pieces="graphmill.trainers.techniques.fullgraph.pieces:measure_pieces",
            needs=("partitions", "chunks"),
            defaults={"partitions": {"parts": 1}, "chunks": {}},
            inputs=("chunks",),
            reads=("budgets",),
            on_device=True,
            domain="graphmill.trainers.inference.domain:batch_turns",
            by_parts=True,
            whole_graph=True,
            halves=True,
        ),
        _row(
            "distributed",
            needs=("sampling", "partitions"),
            inputs=("partitions",),
            reads=("shards", "hotness", "budgets", "samples", "cache_plan", "packed_chunks"),
            on_device=True,
            data="graphmill.trainers.techniques.distributed.open_parts:open_data",
            by_parts=True,
        ),
        _row(
            "fresh-distributed",
            **_FRESH
            | {
                "needs": ("sampling", "partitions"),
                "inputs": ("partitions", "hotness"),
                "reads": ("shards", *_FRESH["reads"]),
                "data": "graphmill.trainers.techniques.distributed.open_parts:open_data",
                "by_parts": True,
            },
        ),
    )
}


def technique_names() -> tuple[str, ...]:
    """Returns the values that the key `trainer` may have."""
    return tuple(TECHNIQUES)


def find_technique(name: str) -> Technique:
    """Returns the row of a technique; raises InputError if no technique has that name."""
    if name not in TECHNIQUES:
        raise InputError(f"trainer = {name!r} is not one of {', '.join(TECHNIQUES)}", "give one of these names")
    return TECHNIQUES[name]
