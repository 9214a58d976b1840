"""Layers without parameters: L of them are the powers of the matrix of coefficients, and what they cannot do is told."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.building.keys import ConfigError
from graphmill.kernels.types import Topology
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.models.build import build_model
from graphmill.trainers.recipe.config import TrainConfig
from tests.kernels.graphs import random_topology
from tests.trainers.models.test_models import blocks_of

KEYS: dict[str, Any] = {
    "model": "gcn",
    "maps": False,
    "input": "linear",
    "hidden": 4,
    "metric": "mrr",
    "dtype": "float64",
}


def coefficients(topology: Topology) -> torch.Tensor:
    """The dense matrix of 1 / sqrt((d_in(v) + 1) (d_out(u) + 1)) of edges u -> v and of nodes themselves."""
    of_target, of_source = ((each + 1.0) ** -0.5 for each in (topology.in_degree, topology.out_degree))
    found = np.eye(topology.num_nodes)
    target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    np.add.at(found, (target, topology.indices), 1.0)
    return torch.from_numpy(found * of_target[:, None] * of_source)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999), st.integers(1, 3), st.booleans())
def test_layers_are_powers_of_the_matrix_of_coefficients(seed: int, layers: int, residual: bool) -> None:
    topology = random_topology(30, 90, seed=seed)
    model = build_model(TrainConfig(**KEYS, layers=layers, residual=residual), 5, 4, seed)
    x = torch.randn(30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    nodes = np.arange(30, dtype=np.int32)
    found = model(blocks_of(topology, nodes, model, fanouts=(-1,) * layers), x, EVALUATION)
    matrix = coefficients(topology) + residual * torch.eye(30, dtype=torch.float64)
    start = model.projection.linear(x)
    expected = torch.linalg.matrix_power(matrix, layers) @ start
    # Coefficients are float32, as all weights of edges.
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    weight, grad = model.projection.linear.weight, torch.randn_like(found)
    (ours,), (theirs,) = (torch.autograd.grad(each, weight, grad) for each in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert {name for name, _ in model.named_parameters()} == {"projection.linear.weight", "projection.linear.bias"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"model": "sage"}, "maps = False is for gcn, not for sage"),
        ({"input": "none"}, 'write input = "linear" or "typed" too'),
        ({"metric": "accuracy"}, 'write head = "linear" too'),
        ({"norm": "layer"}, "norm = 'layer' is for layers with parameters"),
        ({"activation": "tanh"}, "activation = 'tanh' is for layers with parameters"),
        ({"edge_features": True}, "edge_features = True is for layers with parameters"),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else "",
)
def test_what_layers_without_parameters_cannot_do_is_told(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TrainConfig(**KEYS | keys)
