"""The order of a training process, and its form as JSON for a process that another one starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.epoch_lines import Lines


@dataclass(frozen=True, kw_only=True)
class Order:
    """A training to be done, and its store."""

    # The recipe, checked.
    pipeline: Pipeline
    # Name of the train table.
    table: str
    # The store's home; None for the default.
    home: Path | None
    # Role -> version of an artifact, or a prefix of it; other versions are computed from the recipe and the raw content.
    inputs: Mapping[str, str] = field(default_factory=dict)
    # Continues from a checkpoint if there is one; if False, a checkpoint is replaced.
    resume: bool = False
    # Trains models that the store has again, and replaces them. Their weights are equal, unless the machine or a library computes
    # differently now; their times and ledgers are those of the new training.
    retrain: bool = False
    # The epochs about which a line is printed.
    epoch_lines: Lines = "some"
    # Number of processes that share the training; 0 for the table's number.
    ranks: int = 0
    # Address of the Ray cluster on whose nodes they run; "" for this machine.
    on: str = ""
    # Path that stands for every environment variable in the recipe; None where the environment is asked.
    variables: Path | None = None
    # Function that receives these lines, too; None for standard error alone.
    tell: Callable[[str], None] | None = None

    def plain(self) -> dict[str, Any]:
        """Returns the order as values of JSON, for the process that carries it out; `tell` stays here."""
        values = {name: value for name, value in vars(self).items() if name not in ("pipeline", "tell")}
        text = {"path": str(self.pipeline.path), "text": self.pipeline.text}
        paths = {
            name: None if path is None else str(path)
            for name, path in (("home", self.home), ("variables", self.variables))
        }
        return values | text | paths | {"inputs": dict(self.inputs)}


def plain_order(values: Mapping[str, Any]) -> Order:
    """Returns the order that `Order.plain` wrote; other values are ignored."""
    names = ("table", "inputs", "resume", "retrain", "epoch_lines", "ranks", "on")
    home, variables = (None if values[name] is None else Path(values[name]) for name in ("home", "variables"))
    pipeline = parse_pipeline(Path(values["path"]), values["text"].encode(), TrainTable, variables=variables)
    return Order(pipeline=pipeline, home=home, variables=variables, **{name: values[name] for name in names})
