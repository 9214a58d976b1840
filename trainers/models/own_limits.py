"""Finds users' own models that do not go with their trainers, before anything is built: `python -m graphmill.trainers.models.own_limits`.

Only the model itself shows whether it is a list of layers and whether it has buffers, so it is made once, with a made-up number of features
and classes. An error of its own may be about these numbers, and is left to the training.

The process reads the path and the text of a pipeline file from its standard input, as JSON, and prints a list of [path of the key,
sentence]. It is a process of its own, since it runs a user's code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.toml_lines import KeyPath
from graphmill.assets.storage.user_code import is_reference, load_reference
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.own import Model, build_own_model
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.together import clashes

IN_WIDTH, NUM_CLASSES = 8, 3
"""Columns of features and number of classes of the model that is made."""


def model_problems(pipeline: Pipeline) -> Iterator[tuple[KeyPath, str]]:
    """Yields the keys of train tables whose own models do not go with their trainers, and the problem of each."""
    for index, table in enumerate(pipeline.train):
        if is_reference(table.model):
            yield from ((("train", index, "model"), text) for text in _problems_of(table, pipeline.tables))


def _problems_of(table: TrainTable, tables: object) -> Iterator[str]:
    try:
        load_reference(table.model)
        model = build_own_model(table.config, IN_WIDTH, NUM_CLASSES, seed=0)
    except InputError as error:
        if not str(error).startswith(f"{table.model}({IN_WIDTH}"):
            yield f"{error.problem}: {error.remedy}"
        return
    yield from (clash.text for clash in clashes(table, tables, _kinds(model)))  # pyright: ignore[reportArgumentType]


def _kinds(model: Model) -> set[str]:
    """Returns the options of the table of options that a model is."""
    found = {"layers" if isinstance(model, LayeredModel) else "module"}
    return found | ({"buffers"} if any(True for _ in model.buffers()) else set())


def main() -> None:
    """Reads a pipeline file and prints the problems of its models."""
    given = json.load(sys.stdin)
    pipeline = parse_pipeline(Path(given["path"]), given["text"].encode(), TrainTable)
    print(json.dumps([*model_problems(pipeline)]))


if __name__ == "__main__":
    main()
