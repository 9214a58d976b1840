"""The optimiser: torch's Adam to the bit, and torch's compiler stays out of the process."""

import copy
import subprocess
import sys

import pytest
import torch

from tests.e2e.commands import ROOT
from trainers.models.optimiser import make_adam


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_is_torchs_adam_to_the_bit(weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    begin, gradients = torch.randn(7, generator=generator), torch.randn(6, 7, generator=generator)
    ours, theirs = (torch.nn.Parameter(begin.clone()) for _ in range(2))
    pair = (
        (ours, make_adam([ours], 0.05, weight_decay)),
        (theirs, torch.optim.Adam([theirs], lr=0.05, weight_decay=weight_decay)),
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


def test_torchs_compiler_is_not_imported() -> None:
    code = (
        "import sys, torch; from trainers.models.optimiser import make_adam; p = torch.nn.Parameter(torch.ones(3)); "
        "o = make_adam([p], 0.1); p.grad = torch.ones(3); o.step(); o.zero_grad(); o.load_state_dict(o.state_dict()); "
        "assert p.tolist() != [1, 1, 1]; assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
