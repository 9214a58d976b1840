"""Lists of whole layers, as PyG's bipartite convolutions are, in every trainer: those of a module over the same blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import Reference
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import OwnLayers
from graphmill.trainers.models.own_layers import WholeLayer
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.graphs import random_graph, random_topology
from tests.trainers.inference.infer import infer_exact
from tests.trainers.models.test_models import blocks_of
from tests.trainers.models.test_own import written
from tests.trainers.runs import content, train_fresh, train_packed, train_parts, train_small, train_whole

pytest.importorskip("torch_geometric")

CONVOLUTIONS = {
    "SAGEConv": "SAGEConv(a, b)",
    "GATConv": "GATConv((a, a), b, add_self_loops=False)",
    "GATv2Conv": "GATv2Conv((a, a), b, add_self_loops=False)",
    "GraphConv": "GraphConv(a, b)",
    "TransformerConv": "TransformerConv((a, a), b)",
    "GINConv": "GINConv(nn.Linear(a, b))",
}
CODE = """
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv, TransformerConv

class Whole(nn.Module):
    def __init__(self, conv, last=False):
        super().__init__()
        self.conv, self.last, self.dropout = conv, last, nn.Dropout(0.2)
    def forward(self, h, edge_index):
        rows = self.conv(h, edge_index)
        return rows if self.last else self.dropout(rows.relu())

class OverBlocks(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
    def forward(self, blocks, x):
        for layer, block in zip(self.layers, blocks):
            x = layer((x, x[: block.size[1]]), block.edge_index)
        return x
""" + "".join(
    f"""
def of_{name}(in_width, num_classes, config):
    made = lambda a, b: {text}
    return [Whole(made(in_width, config.hidden)), Whole(made(config.hidden, num_classes), last=True)]

def of_{name}Module(in_width, num_classes, config):
    return OverBlocks(of_{name}(in_width, num_classes, config))
"""
    for name, text in (CONVOLUTIONS | {"GCNConv": "GCNConv(a, b)"}).items()
)
WEIGHTS = "weights.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `CODE`, in a module that Python loads once."""
    return written(tmp_path_factory.mktemp("whole_layers"), "whole_layers", CODE)


def options(folder: Path, name: str) -> dict[str, Any]:
    return {"model": Reference(f"whole_layers:of_{name}", folder)}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_logits_are_those_of_a_module_over_blocks(tmp_path: Path, folder: Path, name: str) -> None:
    """In float64, of batches and by all neighbours, whole and in many ranges."""
    graph = random_graph(tmp_path / "home")
    width, classes, more = graph.features.width, graph.num_classes, {"hidden": 8, "dtype": "float64"}
    listed = build_model(TrainConfig(**options(folder, name), **more), width, classes, 0)
    module = build_model(TrainConfig(**options(folder, f"{name}Module"), blocks="pyg", **more), width, classes, 0)
    assert isinstance(listed, OwnLayers)
    module.load_state_dict(
        {
            key.replace("layers.", "inner.layers.").replace(".inner.conv", ".conv"): value
            for key, value in listed.state_dict().items()
        }
    )
    blocks = blocks_of(graph.topology, np.arange(0, 50, 3), listed, fanouts=(4, 3))
    x, still = torch.randn(blocks[0].num_src, width, dtype=torch.float64), StepRandom(0, training=False)
    torch.testing.assert_close(listed(blocks, x, still), module(blocks, x, still), rtol=1e-10, atol=1e-10)
    rows = MemorySource(graph.features)
    wanted = infer_exact(module, graph.topology, rows)
    for workspace_bytes in (1 << 30, 40_000):
        found = infer_exact(listed, graph.topology, rows, workspace_bytes)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_trainers_of_mini_batches_have_the_weights_of_minibatch(tmp_path: Path, folder: Path) -> None:
    """And techniques with a history that keeps nothing."""
    more = options(folder, "GATConv") | {"hidden": 8}
    never = {"t_stale": 0}
    wanted = content(train_small(tmp_path / "minibatch", **more))[WEIGHTS]
    found: dict[str, Artifact] = {
        "factored": train_small(tmp_path / "a", trainer="factored", settings=FactoredSettings(trainers=2), **more),
        "distributed": train_parts(tmp_path / "b", 1, **more),
        "fresh": train_fresh(tmp_path / "c", fresh=never, **more),
        "fresh-factored": train_fresh(tmp_path / "d", fresh=never, trainer="fresh-factored", **more),
    }
    assert {name: content(model)[WEIGHTS] for name, model in found.items()} == dict.fromkeys(found, wanted)
    packed = build_packed(tmp_path / "packed", epochs=2)
    ways = [train_packed(packed, tmp_path / way, way, **more) for way in ("disk", "minibatch")]
    assert len({content(model)[WEIGHTS] for model in ways}) == 1


def test_a_history_at_the_borders_of_layers_is_used(tmp_path: Path, folder: Path) -> None:
    """Rows of earlier steps take the place of computed ones, and the training repeats itself."""
    more = options(folder, "SAGEConv") | {"hidden": 8, "epochs": 4}
    found = [train_fresh(tmp_path / each, fresh={"probe": 20}, **more) for each in ("one", "two")]
    assert content(found[0]) == content(found[1])
    assert '"cached_cosine"' in found[0].file("metrics.jsonl").read_text()


@pytest.mark.parametrize("name", sorted(CONVOLUTIONS))
def test_the_whole_graph_in_chunks_has_the_weights_of_one_that_is_not_cut(
    tmp_path: Path, folder: Path, name: str
) -> None:
    """Without dropout, whose masks are those of torch's generator."""
    more = options(folder, name) | {"hidden": 8, "dtype": "float64", "eval_every": 0, "optimizer": "sgd"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Dropout, "forward", lambda self, rows: rows)
        ways = [train_whole(tmp_path / mode, mode=mode, **more) for mode in ("device", "p2p+reuse", "vanilla")]
    weights = [load(model.file(WEIGHTS).read_bytes()) for model in ways]
    for key, value in weights[0].items():
        for other in weights[1:]:
            torch.testing.assert_close(other[key], value, rtol=1e-8, atol=1e-10)


def test_a_convolution_that_takes_no_pair_is_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match="'GCNConv' received a tuple"):
        train_small(tmp_path / "home", **options(folder, "GCNConv"))
    model = build_model(TrainConfig(**options(folder, "GCNConvModule"), blocks="pyg"), 5, 3, 0)
    assert not isinstance(model, OwnLayers)


def test_a_layer_of_another_shape_is_refused(folder: Path) -> None:
    class Half(torch.nn.Module):
        def forward(self, h: Any, edge_index: Any) -> Any:
            return h[0]

    topology = random_topology(40, 200, 1)
    block = blocks_of(topology, np.arange(5), OwnLayers([WholeLayer(Half())]), fanouts=(3,))[0]
    with pytest.raises(InputError, match=r"the layer Half returned \[\d+, 4\] for 5 nodes"):
        WholeLayer(Half()).aggregate(block, torch.ones(block.num_src, 4), StepRandom(0).layer(0, block.dst_ids))
