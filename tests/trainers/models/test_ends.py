"""The two ends of a model, a projection of the features and a linear head: what they are made of, and that every way to train has them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.building.stage import Silent
from graphmill.assets.storage.names.version import canonical
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.ends import LinearHead, Projection
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import MemorySource
from tests.assets.packed_chunks.packed import Packed, build_packed
from tests.trainers.graphs import random_graph, random_topology
from tests.trainers.models.test_models import blocks_of, small_model
from tests.trainers.runs import content, train_packed, train_small

TUNED: dict[str, Any] = {"input": "linear", "head": "linear", "jk": "cat", "norm": "layer", "residual": True}


def test_the_defaults_enter_no_version() -> None:
    assert not {"input", "head", "jk"} & set(canonical(TrainConfig()))
    assert {"input", "head", "jk"} <= set(canonical(TrainConfig(**TUNED)))


@pytest.mark.parametrize(
    ("ends", "shapes"),
    [
        ({}, {"layers.0.own.weight": (4, 5), "layers.1.own.weight": (3, 4)}),
        ({"input": "linear"}, {"projection.linear.weight": (4, 5), "layers.0.own.weight": (4, 4)}),
        ({"head": "linear"}, {"layers.1.own.weight": (4, 4), "readout.linear.weight": (3, 4)}),
        ({"head": "linear", "jk": "max"}, {"readout.linear.weight": (3, 4)}),
        ({"head": "linear", "jk": "cat"}, {"readout.linear.weight": (3, 8)}),
    ],
)
def test_widths(ends: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    found = {name: tuple(value.shape) for name, value in small_model("sage", **ends).named_parameters()}
    assert {name: found[name] for name in shapes} == shapes


def test_hidden_layers_of_a_linear_head_have_norm_activation_and_dropout() -> None:
    model = small_model("gcn", dropout=0.5, **TUNED)
    assert all(not layer.finish.options.last for layer in model.layers)
    topology = random_topology(num_nodes=30, num_edges=90, seed=1)
    blocks = blocks_of(topology, np.arange(30), model)
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    x = x[torch.from_numpy(blocks[0].src_ids).long()]
    h = model.input(x, blocks[0].src_ids, StepRandom(3))
    dropped = (h == 0).float().mean()
    assert 0.3 < float(dropped) < 0.7 and not torch.equal(h, model.input(x, blocks[0].src_ids, StepRandom(4)))
    assert torch.equal(model.input(x, blocks[0].src_ids, StepRandom(3, training=False)), model.projection.linear(x))
    with torch.no_grad():
        out = model.forward_layer(1, blocks[1], model.forward_layer(0, blocks[0], h, StepRandom(3)), StepRandom(3))
    assert float(out.min()) == 0 and 0.5 < float((out == 0).float().mean()) < 0.95  # half by ReLU, then half by dropout


def test_seeds_that_are_no_prefix_find_their_rows() -> None:
    """Jumping knowledge takes the seeds' rows out of every layer, whatever place they have there."""
    model = small_model("sage", **TUNED)
    topology = random_topology(num_nodes=40, num_edges=160, seed=2)
    blocks = blocks_of(topology, np.array([7, 1, 30]), model)
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    rng = StepRandom(0, training=False)
    sampled = model(blocks, x[torch.from_numpy(blocks[0].src_ids).long()], rng)
    whole = blocks_of(topology, np.arange(40), model)
    everything = model(whole, x[torch.from_numpy(whole[0].src_ids).long()], rng)
    torch.testing.assert_close(sampled, everything[[7, 1, 30]])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"jk": "max"}, "jk = 'max' is read by a linear head, and head = 'convolution': write head = \"linear\" too"),
        ({"model": "mine:model", "head": "linear"}, "head = 'linear': for the models of graphmill, not for mine:model"),
        (
            {"model": "gat", "layers": 1, "hidden": 6, "heads": 4, "head": "linear"},
            "hidden = 6 is not a multiple of heads = 4",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        TrainConfig(**options)
    assert problem in str(caught.value)


def test_a_model_of_ones_own_brings_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_ends.py").write_text(
        "from graphmill.trainers.models.ends import LinearHead, Projection\n"
        "from graphmill.trainers.models.layers.finish import LayerOptions\n"
        "from graphmill.trainers.models.layer import LayeredModel\n"
        "from graphmill.trainers.models.layers.sage import SageLayer\n"
        "def make(in_width, num_classes, config):\n"
        "    layers = [SageLayer(6, 6, LayerOptions()) for _ in range(2)]\n"
        "    ends = {'projection': Projection(in_width, 6), 'readout': LinearHead(2, 6, num_classes, 'sum')}\n"
        "    return LayeredModel(layers, **ends)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = build_model(TrainConfig(model="with_ends:make", layers=2), 5, 3, seed=0)
    assert isinstance(model, LayeredModel) and model.jumps and model.transpose == "all"
    assert isinstance(model.projection, Projection) and isinstance(model.readout, LinearHead)


def test_embeddings_are_what_the_head_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.trainers.recipe.costs.exact.TILE_ROWS", (64, 64))
    graph = random_graph(tmp_path)
    config = TrainConfig(layers=2, hidden=8, **TUNED)
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    assert isinstance(model, LayeredModel) and model.readout is not None
    bounds = Bounds(workspace_bytes=50_000, threads=1, folder=tmp_path)
    ranges = list(Inference(model, graph.topology, MemorySource(graph.features), bounds).ranges())
    assert len(ranges) > 2
    for each in ranges:
        embedding = each.embeddings(each.low, each.high)
        assert embedding.shape == (each.high - each.low, 16)
        assert torch.equal(model.readout.linear(embedding), each.logits)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return build_packed(tmp_path_factory.mktemp("packed"), epochs=2)


def test_training_from_disk_is_the_same_training(packed: Packed, tmp_path: Path) -> None:
    online, disk = (content(train_packed(packed, tmp_path, name, **TUNED)) for name in ("minibatch", "disk"))
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert online[name] == disk[name]


def test_an_interrupted_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    class Stopping(Silent):
        left = 9

        def advance(self, n: int) -> None:
            self.left -= n
            if self.left < 0:
                raise Stop

    options = TUNED | {"checkpoint_steps": 1, "eval": "sampled", "dropout": 0.3}
    whole = train_small(tmp_path / "whole", **options)
    with pytest.raises(Stop):
        train_small(tmp_path / "stopped", progress=Stopping(), **options)
    again = train_small(tmp_path / "stopped", resume=True, **options)
    assert content(again) == content(whole)
    assert whole.config["train"]["jk"] == "cat"
