"""Exact inference equals a dense pass; sampled inference repeats itself; ranges cover the nodes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assets.graph import Graph
from tests.trainers.graphs import random_graph
from trainers.config import TrainConfig
from trainers.evaluate import accuracy, infer_exact, infer_sampled, row_ranges
from trainers.models.build import build_model
from trainers.sources import MemorySource


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


def dense_logits(graph: Graph, model: torch.nn.Module, name: str) -> torch.Tensor:
    """The same model over a dense adjacency matrix, in plain torch."""
    n = graph.topology.num_nodes
    adjacency = torch.zeros(n, n)
    dst = np.repeat(np.arange(n), np.diff(graph.topology.indptr))
    adjacency[torch.from_numpy(dst), torch.from_numpy(np.array(graph.topology.indices)).long()] = 1
    h = torch.from_numpy(np.array(graph.features.open()))
    d_in, d_out = adjacency.sum(1), adjacency.sum(0)
    layers = list(model.layers)  # pyright: ignore
    for index, layer in enumerate(layers):
        if name == "sage":
            agg = adjacency @ h / d_in.clamp(min=1)[:, None]
            h = h @ layer.own.weight.T + layer.own.bias + agg @ layer.neighbours.weight.T
        else:
            scaled = (adjacency + torch.eye(n)) / ((d_in + 1)[:, None] * (d_out + 1)[None, :]).sqrt()
            h = scaled @ h @ layer.linear.weight.T + layer.linear.bias
        h = h.relu() if index + 1 < len(layers) else h
    return h


@pytest.mark.parametrize("workspace_bytes", [1, 20_000, 2**30])
@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_exact_inference_equals_a_dense_pass(graph: Graph, name: str, workspace_bytes: int) -> None:
    config = TrainConfig(model=name, layers=3, hidden=8, dropout=0.5, input_dropout=0.5)  # pyright: ignore
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    with torch.no_grad():
        expected = dense_logits(graph, model, name)
    logits = infer_exact(model, graph.topology, MemorySource(graph.features), workspace_bytes, threads=2)
    assert logits.shape == (400, 4)
    assert float((logits - expected).norm()) <= 1e-5 * float(expected.norm())


def test_sampled_inference_repeats_itself_and_follows_the_order_of_ids(graph: Graph) -> None:
    model = build_model(TrainConfig(layers=2, hidden=8), graph.features.width, graph.num_classes, seed=0)
    features = MemorySource(graph.features)
    ids = np.array(graph.valid_ids)

    def infer(batch_size: int, seed: int = 0) -> torch.Tensor:
        return infer_sampled(
            model, graph.topology, features, ids, fanouts=(2, 2), batch_size=batch_size, seed=seed, threads=1
        )

    assert torch.equal(infer(30), infer(30))
    assert not torch.equal(infer(30), infer(30, seed=1))
    full = infer_sampled(model, graph.topology, features, ids, fanouts=(-1, -1), batch_size=7, seed=0, threads=1)
    exact = infer_exact(model, graph.topology, features, 2**20, threads=1)[torch.from_numpy(ids).long()]
    torch.testing.assert_close(full, exact)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 30))
def test_ranges_cover_all_nodes_within_the_bound(degrees: list[int], max_rows: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    ranges = list(row_ranges(indptr, max_rows))
    assert [n for low, high in ranges for n in range(low, high)] == list(range(len(degrees)))
    for low, high in ranges:
        assert high - low == 1 or sum(degrees[low:high]) + high - low <= max_rows


def test_accuracy_breaks_ties_by_the_lowest_class() -> None:
    logits = torch.tensor([[1.0, 1.0], [0.0, 2.0], [3.0, 1.0]])
    assert accuracy(logits, np.array([0, 1, 1])) == pytest.approx(2 / 3)


def test_paths_do_not_matter(graph: Graph, tmp_path: Path) -> None:
    """A copied store gives the same logits: nothing depends on where files lie."""
    other = random_graph(tmp_path)
    model = build_model(TrainConfig(layers=2, hidden=8), graph.features.width, graph.num_classes, seed=0)
    one, two = (infer_exact(model, g.topology, MemorySource(g.features), 2**20, threads=2) for g in (graph, other))
    assert torch.equal(one, two)
