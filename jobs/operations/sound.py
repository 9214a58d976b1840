"""What a file alone decides about its trainings and reading it cannot tell.

That is ranks that the command line names, users' own models, and what the file asks for and its trainings do not read.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from graphmill.assets.building.child import run_child
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Step, preprocessing_steps
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.jobs.runs.training import all_steps, training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.together import useless_lines


def require_sound(
    pipeline: Pipeline, names: Collection[str] = (), ranks: int = 0, sizes: Mapping[str, Sizes] | None = None
) -> None:
    """Refuses train tables that cannot be trained as they are asked for.

    Args:
        names: names of the train tables; all of them when empty.
        ranks: number of ranks that the command line names, 0 for the numbers of the tables.
        sizes: name of a table -> sizes of the graph that it trains on, with which users' models are made; None for made-up ones.

    Raises:
        InputError: ranks cannot share the parts evenly, or a user's own model does not go with a trainer; all mistakes with their lines.
    """
    problems = [*_ranks_problems(pipeline, ranks), *_model_problems(pipeline, sizes or {})]
    chosen = [index for index, table in enumerate(pipeline.train) if not names or table.name in names]
    pipeline.require([(path, text) for path, text in problems if path[1] in chosen])


def _ranks_problems(pipeline: Pipeline, ranks: int) -> Iterator[tuple[KeyPath, str]]:
    """Yields the numbers of ranks that do not divide the parts."""
    partitions = pipeline.table("partitions")
    for index, table in enumerate(pipeline.train):
        asked = ranks or table.own_settings.ranks
        given = f"--ranks {ranks}" if ranks else f"ranks = {asked}"
        devices = table.own_settings.devices
        if table.by_parts and ranks and devices % ranks:
            text = f"devices = {devices} is not a multiple of {given}: remove the key, or give a multiple"
            yield ("train", index, table.trainer, "devices"), text
        if table.by_parts and partitions is not None and partitions.parts % asked:
            text = f"{given} does not divide [partitions] parts = {partitions.parts}: give a divisor"
            yield ("train", index, table.trainer, "ranks"), text


def _model_problems(pipeline: Pipeline, sizes: Mapping[str, Sizes]) -> list[tuple[KeyPath, str]]:
    """Returns the users' own models that cannot be made or do not go with their trainers; a process of its own makes them."""
    if not any(is_reference(table.model) for table in pipeline.train):
        return []
    ranked = {table.name for table in pipeline.train if table.predicts_links}  # whose models need no number of classes
    ends = {
        name: (each.width, each.num_classes)
        for name, each in sizes.items()
        if each.width and (each.num_classes or name in ranked)
    }
    order = json.dumps({"path": str(pipeline.path), "text": pipeline.text, "ends": ends})
    child = run_child([sys.executable, "-m", "graphmill.trainers.models.own_limits"], order=order)
    # A model that ends the process will end the training, too, which says why.
    lines = child.stdout.splitlines() if child.returncode == 0 else ["[]"]
    return [(tuple(path), text) for path, text in json.loads(lines[-1])]


def unread_lines(pipeline: Pipeline) -> Iterator[str]:
    """Yields a note for each table or key that has no effect on some trainings, and for each step that none of them reads.

    A file without trainings only builds data, so nothing is said of its steps.
    """
    yield from useless_lines(pipeline.train, pipeline.tables)
    steps = preprocessing_steps(pipeline)
    read = {step.name for training in training_steps(pipeline, steps) for step in _below(training)}
    for step in steps if pipeline.train else ():
        if step.name not in read and {step.recipe.table, step.name} & {*pipeline.tables}:
            yield f"note: [{step.recipe.table}]: {step.name} is built, and no training of this file reads it"


def untrained_lines(pipeline: Pipeline, home: Path | None) -> Iterator[str]:
    """Yields a note for each model of another pipeline that the file names and the home lacks, with the command that trains it.

    It is not a mistake: the other pipeline may train it before this one runs.
    """
    for step in all_steps(pipeline.by_split[0], home):
        for source in step.inputs.values():
            try:
                source.recipe.chosen(source.configs[0])
            except InputError as error:
                yield f"note: {step.name}: {error.problem}; {error.remedy}"


def _below(step: Step) -> Iterator[Step]:
    """Yields the steps that a step depends on, some of them several times."""
    for source in (*step.inputs.values(), *step.reads.values()):
        yield source
        yield from _below(source)
