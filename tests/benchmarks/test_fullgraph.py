"""DGL's pass of the full-graph benchmark computes what ours computes, and one that does not is refused."""

import numpy as np
import pytest
import torch

from benchmarks.fullgraph import Case, DglPass
from benchmarks.whole_graphs import made_topology

pytest.importorskip("dgl")


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_another_parameter_in_dgls_layers_is_noticed(model: str) -> None:
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 300, (2, 2000)).astype(np.int32)
    theirs = DglPass(Case(made_topology(src, dst, 300), model, width=12), model).compared()
    with torch.no_grad():
        next(theirs.layers[0].parameters()).mul_(1.1)
    with pytest.raises(AssertionError, match="DGL"):
        theirs.compared()
