"""Layers: gradients against finite differences, initial values, masks, and the renaming law (law 7)."""

from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Stream, Topology
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from tests.trainers.graphs import random_topology

MODELS = ("sage", "gcn", "gat", "gin")


def small_model(name: str, in_width: int = 5, dropout: float = 0.0, seed: int = 1, **options: Any) -> LayeredModel:
    if name.endswith(" of sage"):
        name, options = "sage", {"aggregator": name.split()[0]} | options
    if name == "gat":
        options = {"heads": 2, "attention_dropout": dropout} | options
    config = TrainConfig(model=name, layers=2, hidden=4, dropout=dropout, input_dropout=dropout, **options)
    model = build_model(config, in_width, 3, seed)
    assert isinstance(model, LayeredModel)
    return model


def blocks_of(topology: Topology, seeds: np.ndarray, model: LayeredModel, fanouts: tuple[int, ...] = (-1, -1)):
    sampler = Sampler(topology, fanouts, seed=5)
    blocks = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), seeds.astype(topology.indices.dtype), transpose="all")
    attach_weights(blocks, topology, model.edge_weight)
    return blocks


ENDS = {"input": "linear", "head": "linear"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "layer", "residual": True},
        {"norm": "batch", "dropout": 0.4},
        ENDS | {"norm": "layer", "residual": True, "dropout": 0.4},
        *(ENDS | {"jk": jk} for jk in ("sum", "max", "cat")),
        {"residual": "linear", "activation": "gelu"},
        ENDS | {"feed_forward": 1.5, "norm": "layer", "dropout": 0.3, "activation": "elu"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", (*MODELS, "gcn of sage", "max of sage", "sum of sage"))
def test_gradients_match_finite_differences(name: str, options: dict[str, Any]) -> None:
    topology = random_topology(num_nodes=12, num_edges=40, seed=3)
    model = small_model(name, **options).double()
    blocks = blocks_of(topology, np.array([0, 3, 7]), model, fanouts=(3, 2))
    x = torch.randn(blocks[0].num_src, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()

    def forward(rows: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        values = dict(zip([key for key, _ in model.named_parameters()], parameters, strict=True))
        return torch.func.functional_call(model, values, (blocks, rows, StepRandom(9)))

    assert torch.autograd.gradcheck(forward, (x, *model.parameters()))


@pytest.mark.parametrize("name", MODELS)
def test_initial_values_depend_on_seed_and_parameter_name_only(name: str) -> None:
    first, again, other = (small_model(name, seed=seed, norm="layer", residual=True) for seed in (1, 1, 2))
    torch.manual_seed(123)
    for (key, a), (_, b), (_, c) in zip(
        first.named_parameters(), again.named_parameters(), other.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), key
        if key.endswith("norm.weight"):
            assert (a == 1).all(), key
        elif a.dim() > 1:
            assert not torch.equal(a, c), key
            bound = (6 / sum(a.shape)) ** 0.5
            assert a.abs().max() <= bound and a.std() > bound / 5, key
        else:
            assert not a.any(), key


def test_dropout_masks_change_with_step_and_layer_and_stop_in_evaluation() -> None:
    ids = np.arange(200, dtype=np.int32)
    x = torch.ones(200, 16)
    base = StepRandom(0, train_epoch=1, position=2).layer(1, ids).dropout(x, 0.5)
    assert torch.equal(base, StepRandom(0, train_epoch=1, position=2).layer(1, ids).dropout(x, 0.5))
    assert abs(float((base == 0).float().mean()) - 0.5) < 0.05 and set(base.unique().tolist()) == {0.0, 2.0}
    others = [
        StepRandom(1, 1, 2).layer(1, ids),
        StepRandom(0, 2, 2).layer(1, ids),
        StepRandom(0, 1, 3).layer(1, ids),
        StepRandom(0, 1, 2).layer(2, ids),
    ]
    assert all(not torch.equal(base, other.dropout(x, 0.5)) for other in others)
    assert torch.equal(StepRandom(0, 1, 2, training=False).layer(1, ids).dropout(x, 0.5), x)


def test_a_nodes_mask_does_not_depend_on_its_place() -> None:
    ids, order = np.arange(50, dtype=np.int32), np.random.default_rng(0).permutation(50).astype(np.int32)
    x = torch.ones(50, 7)
    straight = StepRandom(0).layer(1, ids).dropout(x, 0.3)
    shuffled = StepRandom(0).layer(1, ids[order]).dropout(x, 0.3)
    assert torch.equal(straight[torch.from_numpy(order).long()], shuffled)


@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "layer", "residual": True}, {"norm": "batch"}, ENDS | {"jk": "cat", "residual": True}],
    ids=str,
)
@pytest.mark.parametrize("name", MODELS)
def test_renaming_nodes_leaves_outputs_equal_without_sampling(name: str, options: dict[str, Any]) -> None:
    topology = random_topology(num_nodes=60, num_edges=300, seed=4)
    rename = np.random.default_rng(1).permutation(60)  # old id -> new id
    renamed = random_topology(num_nodes=60, num_edges=300, seed=4, rename=rename)
    model = small_model(name, **options)
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(2))
    x_renamed = torch.empty_like(x)
    x_renamed[torch.from_numpy(rename)] = x
    outs: list[torch.Tensor] = []
    for graph, rows, seeds in ((topology, x, np.arange(60)), (renamed, x_renamed, rename)):
        blocks = blocks_of(graph, seeds, model)
        outs.append(
            model(blocks, rows[torch.from_numpy(blocks[0].src_ids).long()], StepRandom(0, training=False)).detach()
        )
    assert float((outs[0] - outs[1]).norm()) <= 1e-5 * float(outs[0].norm())
