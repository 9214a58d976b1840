"""Rows that nothing reads: what a step would have whose shapes are padded to a few buckets, so that it can be recorded.

The rows of every block are padded to the next of eight sizes per power of two. The logits of its seeds keep their bits, and gradients are
those of the batch within rounding. They do not keep their bits: a product that sums over rows, as the gradient of a weight is, is cut
otherwise for another number of rows, on a CPU as on a GPU. So padding would be a setting that makes another model (docs/gpu.md).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.sampling.recorded import bucket
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.loss import CrossEntropy
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from tests.kernels.graphs import random_topology

WIDTH, CLASSES = 12, 5
GRAPH = random_topology(900, 8000)
MODELS: dict[str, dict[str, Any]] = {
    "sage": {"model": "sage", "norm": "layer"},
    "mean with self": {"model": "sage", "aggregator": "gcn"},
    "gcn": {"model": "gcn", "norm": "layer"},
    "gat": {"model": "gat", "heads": 2, "attention_dropout": 0.3},
    "gin": {"model": "gin"},
}


def test_buckets_are_eight_per_power_of_two_and_waste_an_eighth_at_most():
    counts = np.arange(1, 5000)
    found = np.array([bucket(int(count)) for count in counts])
    assert (found >= counts).all() and (found <= counts * 9 / 8).all()
    assert all(bucket(int(size)) == size for size in found)
    for power in (5, 8, 11):
        assert len({bucket(count) for count in range((1 << power) + 1, (2 << power) + 1)}) == 8


def padded(block: Block) -> Block:
    """Returns the block with rows without edges behind its destinations and its sources."""
    num_dst, num_src = bucket(block.num_dst), bucket(block.num_src)
    ends = {name: filled(getattr(block, name), num_dst, len(block.indices)) for name in ("start", "end")}
    return replace(
        block,
        num_dst=num_dst,
        num_src=num_src,
        src_ids=filled(block.src_ids, num_src, 0),
        self_weight=filled(block.self_weight, num_dst, 0),
        t_start=filled(block.t_start, num_src + 1, len(block.indices)),
        **ends,
    )


def filled(array: Any, count: int, value: int) -> Any:
    return None if array is None else np.concatenate([array, np.full(count - len(array), value, array.dtype)])


def step(name: str, blocks: tuple[Block, ...], num_seeds: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The logits of the seeds of a batch, and its gradients."""
    config = TrainConfig(layers=len(blocks), hidden=16, dropout=0.4, **MODELS[name])
    model = build_model(config, WIDTH, CLASSES, seed=3)
    rows = np.random.default_rng(1).standard_normal((GRAPH.num_nodes, WIDTH), dtype=np.float32)
    logits = model(blocks, torch.from_numpy(rows[blocks[0].src_ids]), StepRandom(7, 0, 2))[:num_seeds]
    CrossEntropy()(logits, torch.arange(num_seeds).remainder(CLASSES)).backward()
    gradients = {key: each.grad.numpy() for key, each in model.named_parameters() if each.grad is not None}
    return logits.detach().numpy(), gradients


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_seeds", [37, 101])
def test_padding_changes_no_bit_of_logits_and_gradients_by_rounding_alone(name, num_seeds):
    model = build_model(TrainConfig(layers=3, hidden=16, **MODELS[name]), WIDTH, CLASSES, seed=3)
    seeds = np.random.default_rng(num_seeds).permutation(GRAPH.num_nodes)[:num_seeds]
    blocks = Sampler(GRAPH, (4, 3, 2), seed=1).sample(BatchKey(0, 0, 0), seeds, transpose=model.transpose)
    attach_weights(blocks, GRAPH, model.edge_weight)
    more = tuple(padded(block) for block in blocks)
    assert any(one.num_src < other.num_src for one, other in zip(blocks, more, strict=True)), "nothing was padded"
    logits, gradients = step(name, blocks, num_seeds)
    found, others = step(name, more, num_seeds)
    np.testing.assert_array_equal(found, logits)
    assert others.keys() == gradients.keys()
    for key, values in gradients.items():
        assert np.linalg.norm(others[key] - values) <= 1e-5 * np.linalg.norm(values), key
