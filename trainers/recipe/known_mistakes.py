"""What a training would refuse by its recipe and by numbers of the graph that are known before anything is built."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from graphmill.assets.cache_plan.costs import budget_bytes
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.sampling.bounds import even_seeds
from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.recipe.costs.step import least_step_bytes, parameter_bytes
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.techniques import find_technique

TYPED = 'set input = "typed" in the train table: a projection per node type'
NO_SEEDS = "has no training nodes", "give its source labels, or a training split of labelled nodes (docs/own-data.md)"
"""End of the sentence about a graph, and the remedy."""


def known_mistakes(semantic: ModelConfig, execution: TrainExecution, sizes: Sizes) -> Iterator[InputError]:
    """Yields the mistakes for which the training of a recipe would be refused; numbers of the graph that are not known are 0."""
    train = semantic.train
    if not sizes.num_train and not train.predicts_links:  # links of a source are counted when they are split
        yield InputError(f"the graph {NO_SEEDS[0]}", NO_SEEDS[1])
    if not is_reference(train.model) and (found := widths_mistake(train, sizes.type_widths)):
        yield found
    if found := rows_mistake(train, sizes.type_widths):
        yield found
    if found := ranks_mistake(train, train.own_settings.ranks, sizes.num_train):
        yield found
    if sizes.num_classes and (found := weights_mistake(train, sizes.num_classes)):
        yield found
    if found := workspace_mistake(semantic, execution, sizes):
        yield found
    if found := memory_mistake(train, execution, sizes):
        yield found


def memory_mistake(train: TrainConfig, execution: TrainExecution, sizes: Sizes) -> InputError | None:
    """Returns the mistake of `features = "memory"` if that holds more rows than `[memory] host` allows; None if it is not certain.

    Of shards some rank holds more. Packed rows are read from disk, and nothing counts against `host` without a cache.
    """
    settings, technique, known = train.own_settings, find_technique(train.trainer), {*sizes.configs, *sizes.artifacts}
    needed = {"budgets", "hotness"} if technique.own_shards else {"budgets"}
    cached = needed <= known and "budgets" in technique.reads and "budgets" not in settings.unread
    if execution.features != "memory" or execution.cache == "none" or settings.rows == "packed" or not cached:
        return None
    budgets = sizes.artifacts.get("budgets")
    automatic = budgets is not None and "host" in budgets.summary["numbers"]["automatic"]
    budget = None if automatic else budget_bytes(sizes, "host")
    held = -(-sizes.feature_bytes // settings.ranks) if technique.own_shards else sizes.feature_bytes
    if budget is None or held <= budget:
        return None
    what = " of shards on a rank at least" if technique.own_shards else ""
    problem = f'features = "memory" holds {format_bytes(held)}{what}, and [memory] host allows {budget:,} bytes'
    return InputError(problem, 'raise host, or set features = "mapped"')


def workspace_mistake(semantic: ModelConfig, execution: TrainExecution, sizes: Sizes) -> InputError | None:
    """Returns the mistake of a `workspace` below what a step of a built-in model takes for certain; None if there is none."""
    train = semantic.train
    if execution.workspace is None or is_reference(train.model) or not (sizes.width and sizes.num_classes):
        return None
    bound, classes, seeds = parse_size(execution.workspace), max(2, sizes.num_classes), least_seeds(semantic, sizes)
    held = least_step_bytes(train, sizes.width, classes, seeds)
    if find_technique(train.trainer).whole_graph:  # its passes hold a chunk, whose size is not known yet
        held = parameter_bytes(train, sizes.width, classes, relations=1, types=1)
    if held <= bound:
        return None
    problem = f"workspace = {execution.workspace!r} holds {format_bytes(bound)}, and a step takes at least {format_bytes(held)}"
    lower = f", or `batch_size` in [sampling]: a batch has {seeds:,} seeds" if seeds > 1 else ""
    return InputError(problem, f'set workspace = "{held}" or more, or lower `hidden`{lower}')


def least_seeds(semantic: ModelConfig, sizes: Sizes) -> int:
    """Returns seeds that the largest batch of a training has at least; 1 if ranks or parts share them, or if they are not counted."""
    parted = "partitions" in sizes.configs or "partitions" in sizes.artifacts
    if semantic.sampling is None or not sizes.trains_counted or parted or semantic.train.own_settings.ranks > 1:
        return 1
    return even_seeds(sizes.num_train, semantic.sampling.batch_size)[1]


def ranks_mistake(train: TrainConfig, ranks: int, num_train: int) -> InputError | None:
    """Returns the mistake of ranks that share mini-batches and outnumber the training nodes (0: not known); None if there is none."""
    if not 0 < num_train < ranks or find_technique(train.trainer).whole_graph:
        return None
    problem = (
        f"{ranks:,} ranks share the mini-batches of {num_train:,} training nodes: {ranks - num_train:,} never have one"
    )
    return InputError(problem, f"give at most {num_train:,} ranks")


def widths_mistake(train: TrainConfig, widths: Sequence[int]) -> InputError | None:
    """Returns the mistake of node types with several widths of features (0: none), which only typed input reads; None if there is none."""
    if train.input == "typed" or len({*widths} - {0}) < 2:
        return None
    found = ", ".join(f"{columns:,}" for columns in widths)
    problem = f"the node types have features of {found} columns, and input = {train.input!r} reads rows of one width"
    return InputError(problem, TYPED)


def rows_mistake(train: TrainConfig, widths: Sequence[int]) -> InputError | None:
    """Returns the mistake of learnable rows for types without features where every type has some; `widths` as of `widths_mistake`."""
    if train.embedding != "node" or not widths or 0 in widths:
        return None
    problem = 'embedding = "node" has a row for each node of the types without features, and all types of the graph have features'
    return InputError(problem, "remove the key")


def bounds_mistake(train: TrainConfig, bounds: Mapping[str, tuple[float, float]]) -> tuple[InputError, bool] | None:
    """Returns the mistake of node types whose features have several widths, and whether that is certain; None if they have one.

    Args:
        bounds: node type -> fewest and most columns of its features, 0 of both for a type without.
    """
    found = {name: each for name, each in bounds.items() if each[1]}
    if train.input == "typed" or len(found) < 2 or len({end for each in found.values() for end in each}) < 2:
        return None
    shown = ", ".join(f"{name} {_spelled(*each)}" for name, each in found.items())
    reads = f"input = {train.input!r} reads rows of one width"
    if max(low for low, _ in found.values()) > min(high for _, high in found.values()):
        return InputError(f"the node types have features of several widths ({shown} columns), and {reads}", TYPED), True
    return InputError(
        f"{reads}, and how wide features are is known once they are encoded: {shown} columns", TYPED
    ), False


def _spelled(low: float, high: float) -> str:
    return f"{low:,}" if low == high else f"{low:,} or more" if math.isinf(high) else f"{low:,} to {high:,}"


def weights_mistake(train: TrainConfig, num_classes: int, names: Sequence[str] = ()) -> InputError | None:
    """Returns the mistake of a list of class weights that has another length than the classes; None if there is none."""
    if isinstance(train.class_weights, str) or len(train.class_weights) == num_classes:
        return None
    problem = f"class_weights = {list(train.class_weights)} has {len(train.class_weights)} entries"
    return InputError(problem, f"give one for each of the {num_classes} classes{': ' * bool(names)}{', '.join(names)}")
