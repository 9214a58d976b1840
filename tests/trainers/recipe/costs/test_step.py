"""The bytes of a step by its widths are those that a logical device counts."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphmill.assets.features.read import NodeTypes
from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.sampling.drawing import Drawing
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.batch import BatchSizes
from graphmill.trainers.recipe.costs.step import parameter_bytes, step_bytes
from tests.trainers.graphs import random_topology

WIDTH, CLASSES = 40, 7


def counted(train: TrainConfig, per_positive: int = 1) -> tuple[int, int, BatchSizes]:
    """Returns the peak of a step and the bytes of the parameters, as a device counts them, and the sizes of its batch.

    Of links its pairs join any two of the seeds.
    """
    seeds = np.arange(256, dtype=np.int32)
    topology = random_topology(20_000, 120_000, seed=3, relations=16, weights=train.edge_weight)
    types = NodeTypes(starts=(0, 5_000, 10_000, 15_000, 20_000), columns=(WIDTH,) * 4)
    model = build_model(train, WIDTH, CLASSES, 0, 16, types)
    sampler = Drawing(neighbours=Neighbours(fanouts=(6,) * train.layers)).sampler(topology, seed=0)
    blocks = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), seeds, transpose=model.transpose)
    attach_weights(blocks, topology, model.edge_weight)
    device = LogicalDevice()
    x = device.alloc((blocks[0].num_src, WIDTH), torch.float32, "inputs")
    x.zero_()
    device.adopt(model.parameters(), "parameters")
    pairs = np.random.default_rng(3).integers(0, 256, (256, 1 + per_positive, 3), dtype=np.int32)
    pairs[..., 2] %= 16
    with device.active():
        out = model(blocks, x, StepRandom(0))
        if train.predicts_links:
            PairLoss(None, LinkLoss(train.link_loss), train.row_penalty).of(model)(
                out, torch.from_numpy(pairs)
            ).backward()
        else:
            functional.cross_entropy(out, torch.zeros(256, dtype=torch.long)).backward()
    rows = (*(block.num_src for block in blocks), blocks[-1].num_dst)
    num_pairs = train.predicts_links * pairs.size // 3
    sizes = BatchSizes(1, rows, tuple(len(block.indices) for block in blocks), pairs=num_pairs)
    return device.peak["total"] - x.numel() * 4, device.peak["parameters"], sizes


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"model": "sage"},
        {"model": "sage", "dropout": 0.0},
        {"model": "sage", "norm": "layer", "residual": True},
        {"model": "sage", "input": "linear", "head": "linear"},
        {"model": "sage", "input": "typed", "head": "linear"},
        {"model": "sage", "input_dropout": 0.3},
        {"model": "gcn"},
        {"model": "gin"},
        {"model": "gat", "heads": 4},
        {"model": "gat", "input": "linear"},
        {"model": "pinsage"},
        {"model": "rgcn"},
        {"model": "rgat", "heads": 2},
        *({"model": model, "edge_weight": True} for model in ("sage", "gcn", "gin", "gat", "rgcn")),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_step_takes_what_its_widths_say(options: dict, layers: int) -> None:
    train = TrainConfig(hidden=64, layers=layers, **options)
    peak, parameters, sizes = counted(train)
    # Gradients of the parameters are there at the end, and each parameter once.
    said = step_bytes(train, WIDTH, CLASSES, sizes) + 2 * parameters
    # An rgcn has at most one run per edge, and here about 0.86.
    assert 0.97 < said / peak < (1.25 if train.model == "rgcn" else 1.15)
    assert parameter_bytes(train, WIDTH, CLASSES) == pytest.approx(parameters, rel=0.13)


@pytest.mark.parametrize("per_positive", [1, 40])
@pytest.mark.parametrize(
    "options",
    [
        {"link_head": "dot", "model": "gcn"},
        {"link_head": "dot", "model": "sage", "row_penalty": 0.1},
        {"link_head": "dot", "model": "gat", "link_loss": "margin"},
        {"link_head": "bilinear", "model": "sage"},
        {"link_head": "distmult", "model": "rgcn", "link_loss": "binary"},
        {"link_head": "transe", "model": "sage"},
        {"link_head": "rotate", "model": "gcn"},
        {"link_head": "mlp", "model": "sage"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_step_of_links_takes_its_pairs_besides(options: dict, per_positive: int) -> None:
    train = TrainConfig(hidden=64, layers=2, metric="auc", **options)
    peak, parameters, sizes = counted(train, per_positive)
    said = step_bytes(train, WIDTH, train.hidden, sizes) + 2 * parameters
    assert 0.97 < said / peak < (1.25 if train.model == "rgcn" else 1.15), said / peak
    assert parameter_bytes(train, WIDTH, train.hidden) == pytest.approx(parameters, rel=0.13)
