"""From a train table's `model` to the module."""

from __future__ import annotations

from torch import nn

from trainers.config import TrainConfig
from trainers.models.gcn import GcnLayer
from trainers.models.layer import LayeredModel, initialise
from trainers.models.sage import SageLayer

LAYERS: dict[str, type[nn.Module]] = {"sage": SageLayer, "gcn": GcnLayer}


def build_model(config: TrainConfig, in_width: int, num_classes: int, seed: int) -> LayeredModel:
    """Builds and initialises the model of a train table.

    Args:
        config: names the architecture, depth, width and dropout.
        in_width: feature columns.
        num_classes: logits.
        seed: with the parameter names, decides every initial value.
    """
    widths = [in_width] + [config.hidden] * (config.layers - 1) + [num_classes]
    drops = [config.dropout] * (config.layers - 1) + [None]
    layer = LAYERS[config.model]
    layers = [layer(*sizes, drop) for *sizes, drop in zip(widths[:-1], widths[1:], drops, strict=True)]
    model = LayeredModel(layers, config.input_dropout)
    initialise(model, seed)
    return model
