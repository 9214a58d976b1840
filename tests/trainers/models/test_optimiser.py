"""The optimiser: torch's Adam to the bit, and torch's compiler stays out of the process."""

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch

from graphmill.trainers.models.optimiser import cut_gradients, make_optimiser
from graphmill.trainers.recipe.config import TrainConfig
from tests.e2e.commands import ROOT


@pytest.mark.parametrize(
    ("keys", "kind", "theirs_too"),
    [
        ({}, torch.optim.Adam, {}),
        ({"weight_decay": 0.1, "betas": (0.8, 0.9)}, torch.optim.Adam, {"weight_decay": 0.1, "betas": (0.8, 0.9)}),
        ({"optimizer": "adamw", "weight_decay": 0.1}, torch.optim.AdamW, {"weight_decay": 0.1}),
        ({"optimizer": "sgd", "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
        ({"optimizer": "sgd"}, torch.optim.SGD, {}),
    ],
)
def test_it_is_torchs_to_the_bit(keys: dict[str, Any], kind: Any, theirs_too: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    begin, gradients = torch.randn(7, generator=generator), torch.randn(6, 7, generator=generator)
    ours, theirs = (torch.nn.Parameter(begin.clone()) for _ in range(2))
    pair = (
        (ours, make_optimiser([ours], TrainConfig(lr=0.05, **keys))),
        (theirs, kind([theirs], lr=0.05, **theirs_too)),
    )
    for number, gradient in enumerate(gradients):
        for parameter, optimiser in pair:
            optimiser.zero_grad()
            parameter.grad = gradient.clone()
            optimiser.step()
            assert parameter.requires_grad and parameter.is_leaf
        assert torch.equal(ours, theirs)
        if number == 2:  # a resumed run goes on from what was stored
            pair[0][1].load_state_dict(copy.deepcopy(pair[1][1].state_dict()))


def test_gradients_are_cut_to_a_length_over_all_parameters() -> None:
    long, short = ([torch.nn.Parameter(torch.zeros(n)) for n in (3, 4)] for _ in range(2))
    for parameters, factor in ((long, 10.0), (short, 0.01)):
        for parameter in parameters:
            parameter.grad = factor * torch.ones_like(parameter)
    theirs = [torch.nn.Parameter(each.detach().clone()) for each in long]
    for ours, twin in zip(long, theirs, strict=True):
        assert ours.grad is not None
        twin.grad = ours.grad.clone()
    torch.nn.utils.clip_grad_norm_(theirs, 2.0)
    for parameters in (long, short):
        cut_gradients(parameters, 2.0)
    assert all(torch.allclose(a.grad, b.grad) for a, b in zip(long, theirs, strict=True))  # pyright: ignore
    assert all((each.grad == 0.01).all() for each in short)  # pyright: ignore
    cut_gradients(long, 0.0)
    assert sum(float((each.grad**2).sum()) for each in long) == pytest.approx(4.0, rel=1e-5)  # pyright: ignore


def test_torchs_compiler_is_not_imported() -> None:
    code = """
import sys, torch
from graphmill.trainers.models.optimiser import make_optimiser
from graphmill.trainers.recipe.config import TrainConfig
for optimizer in ("adam", "adamw", "sgd"):
    p = torch.nn.Parameter(torch.ones(3))
    o = make_optimiser([p], TrainConfig(optimizer=optimizer))
    p.grad = torch.ones(3)
    o.step()
    o.zero_grad()
    o.load_state_dict(o.state_dict())
    assert p.tolist() != [1, 1, 1] and "torch._dynamo" not in sys.modules, optimizer
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
