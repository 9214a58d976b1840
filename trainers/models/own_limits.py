"""Finds users' own models that do not go with their trainers, before anything is built: `python -m graphmill.trainers.models.own_limits`.

Only the model itself shows whether it is a list of layers and whether it has buffers, so it is made once, with the numbers of features and
classes of the graph. If these are not known, they are made up: an error of its own may be about them, and is left to the training.

The process reads the path and the text of a pipeline file from its standard input, as JSON, and for each table whose numbers are known the
two; it prints a list of [path of the key, sentence]. It is a process of its own, since it runs a user's code.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.storage.names.user_code import is_reference, load_reference
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.own import Model, build_own_model
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.option_table import FileCase
from graphmill.trainers.recipe.together import clashes

IN_WIDTH, NUM_CLASSES = 8, 3
"""Columns of features and number of classes of a model for a graph of which they are not known."""


def model_problems(
    pipeline: Pipeline, ends: Mapping[str, tuple[int, int]] | None = None
) -> Iterator[tuple[KeyPath, str]]:
    """Yields the keys of train tables whose own models do not go with their trainers, and the problem of each.

    Args:
        ends: name of a table -> (columns of features, number of classes), of those that are known.
    """
    for index, table in enumerate(pipeline.train):
        if is_reference(table.model):
            yield from (
                (("train", index, "model"), text)
                for text in _problems_of(table, pipeline.tables, (ends or {}).get(table.name))
            )


def _problems_of(table: TrainTable, tables: Mapping[str, Any], known: tuple[int, int] | None) -> Iterator[str]:
    in_width, num_classes = known or (IN_WIDTH, NUM_CLASSES)
    try:
        load_reference(table.model)
        model = build_own_model(table.config, in_width, num_classes, seed=0)
    except InputError as error:
        if known or not str(error).startswith(f"{table.model}({IN_WIDTH}"):
            yield f"{error.problem}: {error.remedy}"
        return
    yield from (clash.text for clash in clashes(FileCase(train=table, tables=tables), _kinds(model)))


def _kinds(model: Model) -> set[str]:
    """Returns the options of the table of options that a model is."""
    found = {"layers" if isinstance(model, LayeredModel) else "module"}
    return found | ({"buffers"} if any(True for _ in model.buffers()) else set())


def main() -> None:
    """Reads a pipeline file and prints the problems of its models."""
    given = json.load(sys.stdin)
    pipeline = parse_pipeline(Path(given["path"]), given["text"].encode(), TrainTable)
    print(json.dumps([*model_problems(pipeline, {name: (each[0], each[1]) for name, each in given["ends"].items()})]))


if __name__ == "__main__":
    main()
