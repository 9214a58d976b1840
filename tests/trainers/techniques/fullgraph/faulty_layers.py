"""A user's own layers that fail at one rank, for tests of faults; what they do stands in the environment."""

import os

from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer


class Faulty(SageLayer):
    """Raises in the training of the rank of FAULT_RANK."""

    def update(self, agg, h_dst, rng):
        if rng.training and os.environ.get("FAULT_RANK") == os.environ.get("RANK"):
            raise ZeroDivisionError("a rank that raises")
        return super().update(agg, h_dst, rng)


def layers(in_width, num_classes, config):
    """Returns two layers, of which the last one may fail."""
    return [
        SageLayer(in_width, config.hidden, LayerOptions()),
        Faulty(config.hidden, num_classes, LayerOptions(last=True)),
    ]
