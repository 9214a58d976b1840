"""First values of parameters: their bounds by the key `init`, and which maps it is for."""

import math

import pytest

from trainers.models.build import build_model
from trainers.recipe.config import TrainConfig

WIDE = {"layers": 2, "hidden": 64, "residual": "linear", "input": "linear", "head": "linear"}


def largest(init, model):
    """Returns the largest absolute value of each parameter, by name."""
    built = build_model(TrainConfig(model=model, init=init, threads=1, **WIDE), 100, 10, seed=3)
    return {name: (tuple(each.shape), each.abs().max().item()) for name, each in built.named_parameters()}


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_maps_beside_the_convolutions_begin_as_torch_begins_them(model):
    glorot, torch = largest("glorot", model), largest("torch", model)
    beside = {name for name in glorot if name.startswith(("projection.", "readout.")) or ".skip." in name}
    assert len(beside) == 8
    columns = {"projection": 100, "readout": 64, "layers": 64}
    for name, (shape, most) in torch.items():
        if name not in beside:
            assert most == glorot[name][1]
            continue
        bound = 1 / math.sqrt(columns[name.partition(".")[0]])
        assert (0.9 if len(shape) > 1 else 0.5) * bound < most <= bound
        expected = math.sqrt(6 / sum(shape)) if len(shape) > 1 else 0
        assert 0.9 * expected <= glorot[name][1] <= expected
