"""Own models over PyG's bipartite edges: equal to layers of graphmill, in every trainer of mini-batches."""

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from graphmill.assets.storage.names.user_code import Reference
from graphmill.assets.storage.names.version import canonical
from graphmill.kernels.blocks.pyg_blocks import to_pyg
from graphmill.kernels.errors import InputError
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import OwnModule, require_layers
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.assets.packed_chunks.packed import build_packed
from tests.e2e.commands import graphmill
from tests.recipes import recipe, sbm
from tests.trainers.graphs import random_graph, random_topology
from tests.trainers.inference.infer import infer_exact
from tests.trainers.models.test_models import blocks_of, small_model
from tests.trainers.models.test_own import written
from tests.trainers.runs import content, train_packed, train_parts, train_small

BY_HAND = """
import torch
from torch import nn
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer

class Sage(nn.Module):
    # GraphSAGE along edge_index with torch alone, its parameters named like those of graphmill's layer.
    def __init__(self, in_width, out_width):
        super().__init__()
        self.own, self.neighbours = nn.Linear(in_width, out_width), nn.Linear(in_width, out_width, bias=False)
    def forward(self, h, block):
        source, destination = block.edge_index
        total = torch.zeros(block.size[1], h.shape[1], dtype=h.dtype).index_add(0, destination, h[source])
        counts = torch.bincount(destination, minlength=block.size[1]).clamp(min=1)
        return self.own(h[: block.size[1]]) + self.neighbours(total / counts[:, None])

class ByHand(nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.layers = nn.ModuleList([Sage(in_width, config.hidden), Sage(config.hidden, num_classes)])
        self.dropout = nn.Dropout(config.dropout)
    def forward(self, blocks, x):
        h = self.dropout(self.layers[0](x, blocks[0]).relu())
        return self.layers[1](h, blocks[1])

def layers(in_width, num_classes, config):
    return [SageLayer(in_width, 8, LayerOptions()), SageLayer(8, num_classes, LayerOptions(last=True))]
"""
CONVOLVED = """
from torch import nn
from {library} import SAGEConv

class Mine(SAGEConv):
    pass

def convolved(in_width, num_classes, config):
    return nn.Sequential(nn.Linear(in_width, 8), {conv})
"""


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The model of `BY_HAND`, in a module that Python loads once."""
    return Reference("by_hand:ByHand", written(tmp_path_factory.mktemp("by_hand"), "by_hand", BY_HAND))


def test_logits_are_those_of_graphmills_layers(tmp_path: Path, by_hand: Reference) -> None:
    """Of mini-batches, and exact ones from all neighbours."""
    graph = random_graph(tmp_path / "home")
    width, classes = graph.features.width, graph.num_classes
    config = TrainConfig(model=by_hand, blocks="pyg", hidden=8, dropout=0.0)
    mine, ours = (
        build_model(config, width, classes, 0),
        build_model(TrainConfig(hidden=8, dropout=0.0), width, classes, 0),
    )
    assert isinstance(mine, OwnModule)
    mine.load_state_dict({f"inner.{name}": value for name, value in ours.state_dict().items()})
    blocks = blocks_of(graph.topology, np.arange(0, 50, 3), ours, fanouts=(4, 3))
    x = torch.randn(blocks[0].num_src, width)
    torch.testing.assert_close(mine(blocks, x, StepRandom(0)), ours(blocks, x, StepRandom(0)), rtol=1e-5, atol=1e-5)
    exact = [infer_exact(model, graph.topology, MemorySource(graph.features)) for model in (mine, ours)]
    torch.testing.assert_close(*exact, rtol=1e-5, atol=1e-5)


def test_stored_batches_with_packed_rows_train_it_to_the_bits_of_minibatch(tmp_path: Path, by_hand: Reference) -> None:
    packed = build_packed(tmp_path / "packed", epochs=2)
    options: dict[str, Any] = {"model": by_hand, "blocks": "pyg"}
    disk, online = (train_packed(packed, tmp_path / each, each, **options) for each in ("disk", "minibatch"))
    assert content(disk)["weights.safetensors"] == content(online)["weights.safetensors"]


def test_a_pipeline_runs_and_predicts(tmp_path: Path, by_hand: Reference) -> None:
    """Through the command line: run, predict, and a training in chunks as `validate` sees it."""
    assert by_hand.folder is not None
    (tmp_path / "hand.py").write_text((by_hand.folder / "by_hand.py").read_text())
    table = {"name": "mine", "model": "hand:ByHand", "blocks": "pyg", "hidden": 8, "epochs": 2}
    tables: dict[str, Any] = {"graph": sbm(), "sampling": {"fanouts": [4, 4], "batch_size": 64}}
    (tmp_path / "good.toml").write_text(recipe(table, **tables))
    home, out = tmp_path / "home", tmp_path / "out.parquet"
    assert graphmill("run", "good.toml", home=home, cwd=tmp_path, forked=True).returncode == 0
    done = graphmill("predict", "good.toml", "mine", "--out", str(out), home=home, cwd=tmp_path)
    assert done.returncode == 0 and polars.read_parquet(out).height == 300
    whole = {"partitions": {"parts": 2}, "chunks": {}}
    (tmp_path / "cut.toml").write_text(recipe(table | {"trainer": "fullgraph"}, graph=sbm(), **whole))
    assert graphmill("validate", "cut.toml", home=home, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("trainer", ["minibatch", "factored", "distributed"])
def test_trainers_of_mini_batches_train_it(tmp_path: Path, by_hand: Reference, trainer: str) -> None:
    options: dict[str, Any] = {"model": by_hand, "blocks": "pyg"}
    found = []
    for home, more in (("a", {"samplers": 1}), ("b", {"samplers": 3})):
        if trainer == "distributed":
            found.append(train_parts(tmp_path / home, 2, **options, **more))
        elif trainer == "factored":
            settings = FactoredSettings(trainers=more["samplers"])
            found.append(train_small(tmp_path / home, trainer=trainer, settings=settings, **options))
        else:
            found.append(train_small(tmp_path / home, trainer=trainer, **options, **more))
    assert content(found[0]) == content(found[1])
    assert found[0].summary["numbers"]["epochs_run"] == 3


def test_the_form_of_the_blocks_is_part_of_the_version_unless_it_is_the_default(by_hand: Reference) -> None:
    assert "blocks" not in canonical(TrainConfig(model=by_hand))
    assert canonical(TrainConfig(model=by_hand, blocks="pyg"))["blocks"] == "pyg"


def test_what_does_not_read_such_blocks_is_explained(by_hand: Reference) -> None:
    with pytest.raises(InputError, match="blocks = 'pyg' is for a module of your own, not for sage: remove the key"):
        TrainConfig(model="sage", blocks="pyg")
    model = Reference("by_hand:layers", by_hand.folder)
    with pytest.raises(InputError, match=r'by_hand:layers made a list of layers, .* and blocks = "pyg"'):
        build_model(TrainConfig(model=model, blocks="pyg"), 5, 3, seed=0)
    with pytest.raises(InputError, match='is one module over whole blocks, and trainer = "fullgraph"'):
        require_layers(build_model(TrainConfig(model=by_hand, blocks="pyg"), 5, 3, seed=0), "fullgraph")


@pytest.mark.parametrize(
    ("library", "conv", "blocks", "right"),
    [
        ("torch_geometric.nn", "Mine(8, num_classes)", "dgl", "pyg"),
        ("dgl.nn", 'Mine(8, num_classes, "mean")', "pyg", "dgl"),
    ],
)
def test_convolutions_of_the_other_library_are_noticed(
    tmp_path: Path, library: str, conv: str, blocks: Any, right: str
) -> None:
    pytest.importorskip(library.split(".")[0])
    name = f"convolved_{right}"
    written(tmp_path, name, CONVOLVED.replace("{library}", library).replace("{conv}", conv))
    config = TrainConfig(model=Reference(f"{name}:convolved", tmp_path), blocks=blocks)
    with pytest.raises(
        InputError, match=f'has a Mine inside, which does not read what blocks = "{blocks}" gives'
    ) as error:
        build_model(config, 5, 3, seed=0)
    assert f'blocks = "{right}"' in error.value.remedy
    assert isinstance(build_model(TrainConfig(model=config.model, blocks=right), 5, 3, seed=0), OwnModule)


def test_convolutions_of_pyg_compute_what_graphmill_computes() -> None:
    """The mean of the sage layer, and a sum with weights, on batches whose rows are cut down to a few edges."""
    nn = pytest.importorskip("torch_geometric.nn")
    topology = random_topology(80, 500, 6)
    ours = SageLayer(5, 4, LayerOptions(last=True))
    block = blocks_of(topology, np.arange(0, 60, 2), LayeredModel([ours]), fanouts=(3,))[0]
    made, x = to_pyg(block), torch.randn(block.num_src, 5)
    sage, graph_conv = nn.SAGEConv(5, 4), nn.GraphConv(5, 4)
    with torch.no_grad():
        sage.lin_l.weight.copy_(ours.neighbours.weight)
        sage.lin_l.bias.copy_(ours.own.bias)
        sage.lin_r.weight.copy_(ours.own.weight)
    found = sage((x, x[: made.size[1]]), made.edge_index)
    torch.testing.assert_close(found, LayeredModel([ours])((block,), x, StepRandom(0)), rtol=1e-5, atol=1e-5)
    weighted = blocks_of(topology, np.arange(0, 60, 2), small_model("gcn"), fanouts=(4, 3))[1]
    made, x = to_pyg(weighted), torch.randn(weighted.num_src, 5)
    assert made.edge_weight is not None and len(made.self_weight) == made.size[1]
    dense = torch.zeros(made.size[1], made.size[0])
    dense[made.edge_index[1], made.edge_index[0]] = made.edge_weight
    wanted = graph_conv.lin_rel(dense @ x) + graph_conv.lin_root(x[: made.size[1]])
    found = graph_conv((x, x[: made.size[1]]), made.edge_index, made.edge_weight)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
