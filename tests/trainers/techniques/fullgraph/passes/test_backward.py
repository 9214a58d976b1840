"""A backward pass from a given gradient has torch's bits, and no training loads torch's algebra of shapes for it."""

import subprocess
import sys

import pytest
import torch

from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import backward_from


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_are_those_of_torch_to_the_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    found = []
    x, above = torch.randn(7, 5, dtype=dtype), torch.randn(7, 3, dtype=dtype)
    weight = torch.randn(5, 3, dtype=dtype)
    for ours in (True, False):
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        out = torch.tanh(leaves[0] @ leaves[1])
        backward_from(out, above) if ours else out.backward(above)
        found.append([leaf.grad for leaf in leaves])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_a_gradient_of_another_shape_or_type_is_refused() -> None:
    out = torch.ones(2, 3, requires_grad=True) * 2
    for wrong in (torch.ones(3), torch.ones(2, 3, dtype=torch.float64)):
        with pytest.raises(AssertionError, match="of another tensor"):
            backward_from(out, wrong)


def test_a_full_graph_pass_loads_neither_algebra_nor_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PASS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("|")[-1].strip() == "[]", done.stdout


PASS = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from tests.trainers.runs import train_whole

with TemporaryDirectory() as folder:
    train_whole(Path(folder), 2, 2, mode="p2p")
print("|", [name for name in ("sympy", "torch._dynamo") if name in sys.modules])
"""
