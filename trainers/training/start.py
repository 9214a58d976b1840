"""The start of a fine-tuning: a model takes the weights that another one has learnt, on the same graph or on another one of its schema.

Everything else of a training begins anew: optimiser, learning rate, random decisions. The start is an input of the model's artifact, so its
version is part of the model's, and a checkpoint of the training goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.trained import trained_data
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.own import Model
from graphmill.trainers.tasks.schema import differences, read_schema


def take_weights(model: Model, start: Artifact, inputs: Mapping[str, Artifact]) -> None:
    """Gives a model the weights of a trained one; buffers, such as running statistics, are taken, too.

    Args:
        inputs: role -> artifact of the training; a rank without the features leaves the comparison of data to the first one.

    Raises:
        InputError: the data or the shapes of the weights differ; it lists all differences.
    """
    from safetensors.torch import load_file

    weights = load_file(start.file("weights.safetensors"))
    found = [*_of_data(model, start, inputs), *_of_shapes(model.state_dict(), weights)]
    if found:
        listed = "".join(f"\n  {each}" for each in found)
        problem = f"{start.label} cannot be the start of a training on {inputs['graph'].label}:{listed}"
        raise InputError(
            problem,
            "give the table the keys of that model, and build the graph as that of its training; or leave start out",
        )
    model.load_state_dict(weights)


def _of_data(model: Model, start: Artifact, inputs: Mapping[str, Artifact]) -> Iterator[str]:
    """Yields how the data of the training differ from those of the start's training."""
    same = all(
        start.inputs[role]["version"] == inputs[role].version for role in ("graph", "features") if role in inputs
    )
    if same or "features" not in inputs:
        return
    yield from differences(read_schema(trained_data(start)), read_schema(inputs))
    if node_rows(model) is not None:
        yield "it has learnt a row for each node without features of another graph"


def _of_shapes(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Iterator[str]:
    """Yields how the names and shapes of weights differ."""
    for name in dict.fromkeys([*wanted, *weights]):
        here, there = (tuple(of[name].shape) if name in of else None for of in (wanted, weights))
        if here is None:
            yield f"its {name} {there} has no place in this table's model"
        elif there is None:
            yield f"it lacks {name} {here}"
        elif here != there:
            yield f"its {name} has the shape {there}, and here {here}"
