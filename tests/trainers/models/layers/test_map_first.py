"""Layers that map before they sum have the results and gradients of those that sum first; a full-graph pass uses them to narrow rows."""

import numpy as np
import pytest
import torch

from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layers.map_first import MapsFirst
from graphmill.trainers.recipe.config import TrainConfig
from tests.trainers.techniques.fullgraph.passed import RANDOM, problem_block

MODELS = [
    {"model": "gcn"}, {"model": "sage"}, {"aggregator": "gcn", "residual": "linear"}, {"aggregator": "sum"},
    {"model": "gin", "residual": True},
]  # fmt: skip


def built(trainer, in_width=12, **options):
    config = TrainConfig(trainer=trainer, layers=2, hidden=8, dtype="float64", threads=1, **options)
    return build_model(config, in_width, 3, seed=5)


def passed(model, block, x):
    """Returns the logits, and the gradients of all parameters and of the features."""
    x = torch.from_numpy(x).requires_grad_()
    out = model((block, block), x, RANDOM)
    (out**2).sum().backward()
    return [out.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_both_orders_are_one_layer(options):
    summed, mapped = (
        built(trainer, input_dropout=0.2, dropout=0.3, **options) for trainer in ("minibatch", "fullgraph")
    )
    assert not any(isinstance(layer, MapsFirst) for layer in summed.layers)
    assert all(isinstance(layer, MapsFirst) for layer in mapped.layers)
    assert summed.state_dict().keys() == mapped.state_dict().keys()
    block, x = problem_block(mapped, 60, 300, 12)
    for one, other in zip(passed(summed, block, x), passed(mapped, block, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("keys", "in_width", "expected"),
    [
        ({}, 12, [False, True]),  # sums of features that never change are made once, so the first layer sums first
        ({"input_dropout": 0.1}, 12, [True, True]),
        ({"input_dropout": 0.1}, 8, [False, True]),
        ({"input": "linear"}, 12, [False, True]),
        ({"input": "linear", "head": "linear"}, 12, [False, False]),
        ({"aggregator": "max", "input_dropout": 0.1}, 12, [False, False]),
    ],
)
def test_a_layer_maps_first_where_it_narrows_rows_that_change(keys, in_width, expected):
    assert [isinstance(layer, MapsFirst) for layer in built("fullgraph", in_width, **keys).layers] == expected


def test_one_product_of_two_maps_is_two_products():
    model = built("fullgraph")
    layer = model.layers[1]
    block, _ = problem_block(model, 50, 200, 12)
    h = torch.from_numpy(np.random.default_rng(1).standard_normal((50, 8)))
    masks = RANDOM.layer(2, block.dst_ids)
    whole = layer.forward_whole(block, h, masks)
    torch.testing.assert_close(whole, layer.update(layer.aggregate(block, h, masks), h, masks), rtol=1e-12, atol=1e-12)
