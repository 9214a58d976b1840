"""Modules over blocks and over a graph, cut between their layers: PyG's and DGL's own numbers, in chunks and with a history."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.storage.names.user_code import Reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.cut.cut import CutModule, changed_buffers
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import OwnModule, require_layers
from graphmill.trainers.models.own_limits import model_problems
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.rows.source import MemorySource
from tests.recipes import recipe, sbm
from tests.trainers.graphs import attributed, random_graph, random_topology
from tests.trainers.inference.infer import infer_exact
from tests.trainers.models.test_own import written
from tests.trainers.runs import content, train_fresh, train_small, train_whole

pytest.importorskip("torch_geometric")

PAIRS = {
    "SAGEConv": "SAGEConv(a, b)",
    "SAGEConvMax": "SAGEConv(a, b, aggr='max')",
    "GATConv": "GATConv((a, a), b, heads=2, concat=False, add_self_loops=False)",
    "GATv2Conv": "GATv2Conv((a, a), b, heads=2, concat=False, add_self_loops=False)",
    "GraphConv": "GraphConv(a, b)",
    "TransformerConv": "TransformerConv((a, a), b)",
    "GINConv": "GINConv(nn.Linear(a, b))",
    "RGCNConv": "RGCNConv((a, a), b, num_relations=3)",
    "Written": "Written(a, b)",
}
"""Convolutions that take pairs of rows, of PyG, and one by hand."""
NODES = {
    "SAGEConv": "SAGEConv(a, b)",
    "GCNConv": "GCNConv(a, b)",
    "GCNConvImproved": "GCNConv(a, b, improved=True)",
    "GCNConvPlain": "GCNConv(a, b, add_self_loops=False)",
    "GATConv": "GATConv(a, b, heads=2, concat=False)",
    "GATv2Conv": "GATv2Conv(a, b)",
    "TransformerConv": "TransformerConv(a, b)",
    "GINConv": "GINConv(nn.Linear(a, b))",
    "APPNP of one hop": "nn_Sequence(nn.Linear(a, b), APPNP(1, 0.1))",
    "ChebConv of one hop": "ChebConv(a, b, K=1)",
}
"""Convolutions of one hop on one set of nodes."""
HOPS = {
    "SGConv": "SGConv(a, b, K=2)",
    "APPNP": "nn_Sequence(nn.Linear(a, b), APPNP(2, 0.1))",
    "TAGConv": "TAGConv(a, b, K=2)",
}
"""Convolutions of several hops."""
CODE = """
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import (
    APPNP, ChebConv, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, GraphNorm, RGCNConv, SAGEConv, SGConv, TAGConv, TransformerConv,
)

class Written(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.own, self.neighbours = nn.Linear(a, b), nn.Linear(a, b, bias=False)
    def forward(self, pair, edge_index):
        (source, destination), (h, own) = edge_index, pair
        total = torch.zeros(own.shape[0], h.shape[1], dtype=h.dtype).index_add(0, destination, h[source])
        return self.own(own) + self.neighbours(total)

class nn_Sequence(nn.Module):
    def __init__(self, first, last):
        super().__init__()
        self.first, self.last = first, last
    def forward(self, x, edge_index):
        return self.last(self.first(x), edge_index)

class OverBlocks(nn.Module):
    def __init__(self, made, in_width, num_classes, config):
        super().__init__()
        widths = [in_width] + [config.hidden] * (config.layers - 1) + [num_classes]
        self.convs = nn.ModuleList(made(a, b) for a, b in zip(widths, widths[1:]))
        self.dropout = nn.Dropout(config.dropout)
        self.typed = any(isinstance(each, RGCNConv) for each in self.convs)
    def forward(self, blocks, x):
        for index, (conv, block) in enumerate(zip(self.convs, blocks)):
            more = (block.edge_type,) if self.typed else ()
            x = conv((x, x[: block.size[1]]), block.edge_index, *more)
            if index + 1 < len(blocks):
                x = self.dropout(x.relu())
        return x

class NormedBlocks(OverBlocks):
    # Statistics of the rows of a batch, and a count that no logits depend on.
    def __init__(self, in_width, num_classes, config):
        super().__init__(SAGEConv, in_width, num_classes, config)
        self.norm = nn.BatchNorm1d(config.hidden)
        self.register_buffer("passes", torch.zeros(()))
    def forward(self, blocks, x):
        first, last = blocks
        if self.training:
            self.passes.add_(1)
        x = self.norm(self.convs[0]((x, x[: first.size[1]]), first.edge_index)).relu()
        return self.convs[1]((x, x[: last.size[1]]), last.edge_index)

class OverGraph(nn.Module):
    def __init__(self, made, in_width, num_classes, config):
        super().__init__()
        self.lift = nn.Linear(in_width, config.hidden)
        self.convs = nn.ModuleList(made(config.hidden, config.hidden) for _ in range(config.layers))
        self.last = nn.Linear(config.hidden, num_classes)
    def forward(self, x, edge_index):
        x = self.lift(x).relu()
        for conv in self.convs:
            x = functional.dropout(conv(x, edge_index).relu(), p=0.0, training=self.training)
        return self.last(x)

class Jumping(OverGraph):
    # Rows of several layers pass the borders.
    def __init__(self, in_width, num_classes, config):
        super().__init__(lambda a, b: SAGEConv(a, b), in_width, num_classes, config)
        self.last = nn.Linear((1 + config.layers) * config.hidden, num_classes)
    def forward(self, x, edge_index):
        rows = [self.lift(x).relu()]
        for conv in self.convs:
            rows.append(rows[-1] + conv(rows[-1], edge_index).relu())
        return self.last(torch.cat(rows, dim=-1))

class Messages(nn.Module):
    # Without a convolution of PyG.
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.first, self.last, self.rounds = nn.Linear(in_width, 8), nn.Linear(8, num_classes), config.layers
    def forward(self, x, edge_index):
        source, destination = edge_index
        x = self.first(x)
        for _ in range(self.rounds):
            weight = (x[source] * x[destination]).sum(1, keepdim=True).sigmoid()
            x = x + torch.zeros(x.size(0), 8, dtype=x.dtype).index_add(0, destination, weight * x[source])
        return self.last(x)

class Branching(OverGraph):
    def __init__(self, in_width, num_classes, config):
        super().__init__(lambda a, b: SAGEConv(a, b), in_width, num_classes, config)
    def forward(self, x, edge_index):
        return super().forward(x if x.sum() > 0 else -x, edge_index)

class OverAll(Branching):
    def forward(self, x, edge_index):
        x = self.lift(x)
        x = x - x.mean(0)
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.last(x)

class Normed(OverGraph):
    def __init__(self, in_width, num_classes, config):
        super().__init__(lambda a, b: SAGEConv(a, b), in_width, num_classes, config)
        self.norm = nn.BatchNorm1d(config.hidden)
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + self.last(self.norm(self.lift(x)))

class Deeper(OverGraph):
    def __init__(self, in_width, num_classes, config):
        super().__init__(lambda a, b: SAGEConv(a, b), in_width, num_classes, config)
    def forward(self, x, edge_index):
        return super().forward(self.convs[0](self.lift(x), edge_index)[:, : self.lift.in_features], edge_index)
""" + "".join(
    f"""
def {kind}_{number}(in_width, num_classes, config):
    return {kind}(lambda a, b: {text}, in_width, num_classes, config)
"""
    for kind, texts in (("OverBlocks", PAIRS), ("OverGraph", NODES | HOPS))
    for number, text in enumerate(texts.values())
)
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
TRAINED: dict[str, Any] = {"dtype": "float64", "optimizer": "sgd", "eval_every": 0, "hidden": 8, "dropout": 0.0}
PYG = {"GCN": {}, "GraphSAGE": {}, "GAT": {"heads": 2}, "GIN": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `CODE`, in a module that Python loads once."""
    return written(tmp_path_factory.mktemp("cut_modules"), "cut_modules", CODE)


def over_blocks(name: str) -> str:
    return f"OverBlocks_{[*PAIRS].index(name)}"


def over_graph(name: str) -> str:
    return f"OverGraph_{[*NODES, *HOPS].index(name)}"


def config_of(folder: Path, name: str, trainer: str = "fullgraph", **options: Any) -> TrainConfig:
    reference = name if ":" in name else f"cut_modules:{name}"
    return TrainConfig(**{"model": Reference(reference, folder), "trainer": trainer, "dtype": "float64"} | options)


def cut_of(folder: Path, name: str, width: int = 6, classes: int = 3, **options: Any) -> CutModule:
    made = build_model(config_of(folder, name, hidden=8, dropout=0.0, **options), width, classes, 0)
    require_layers(made, "fullgraph")
    assert isinstance(made, CutModule)
    return made


def gradients(logits: Tensor, x: Tensor, model: torch.nn.Module) -> list[Tensor]:
    wanted = [x, *model.parameters()]
    found = torch.autograd.grad(
        (logits * torch.arange(logits.numel()).view_as(logits)).sum(), wanted, allow_unused=True
    )
    return [torch.zeros_like(each) if one is None else one for each, one in zip(wanted, found, strict=True)]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_and_gradients_of_batches_are_those_of_the_whole_module(folder: Path, name: str, layers: int) -> None:
    """In float64, on the same blocks, and with a history of nothing between the layers."""
    topology = random_topology(80, 500, 6, relations=3)
    cut = cut_of(folder, over_blocks(name), trainer="fresh", blocks="pyg", layers=layers)
    (whole,) = cut.whole
    assert [*cut.state_dict()] == [*whole.state_dict()]
    for batch in range(3):
        blocks = Sampler(topology, (4, 3, 2)[:layers], seed=3).sample(
            BatchKey(0, 0, batch), np.arange(batch, 80, 7, dtype=np.int32), transpose="all"
        )
        x = torch.randn(blocks[0].num_src, 6, dtype=torch.float64, requires_grad=True)
        random = StepRandom(0, batch)
        wanted = whole(blocks, x, random)
        of_whole = gradients(wanted, x, whole)
        for between in (None, lambda layer, block, h: h):
            found = cut(blocks, x, random, between)
            torch.testing.assert_close(found, wanted, **CLOSE)
            for one, other in zip(gradients(found, x, cut), of_whole, strict=True):
                torch.testing.assert_close(one, other, **CLOSE)


DGL = {
    "SAGEConv": "SAGEConv(a, b, 'mean')",
    "GATv2Conv": "GATv2Conv(a, b, 1, allow_zero_in_degree=True)",
    "GINConv": "GINConv(nn.Linear(a, b), 'sum')",
    "GraphConv": "GraphConv(a, b, norm='right', allow_zero_in_degree=True)",
}
DGL_CODE = """
from dgl.nn import GATv2Conv, GINConv, GraphConv, SAGEConv
from torch import nn

class OverBlocks(nn.Module):
    def __init__(self, made, in_width, num_classes, config):
        super().__init__()
        self.first, self.last = made(in_width, config.hidden), made(config.hidden, num_classes)
    def forward(self, blocks, x):
        x = self.first(blocks[0], x).flatten(1).relu()
        return self.last(blocks[1], x).flatten(1)
""" + "".join(
    f"""
def of_{name}(in_width, num_classes, config):
    return OverBlocks(lambda a, b: {text}, in_width, num_classes, config)
"""
    for name, text in (DGL | {"Both": "GraphConv(a, b, allow_zero_in_degree=True)"}).items()
)


@pytest.fixture(scope="module")
def over_dgl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `DGL_CODE`."""
    pytest.importorskip("dgl")
    return written(tmp_path_factory.mktemp("cut_dgl"), "cut_dgl", DGL_CODE)


@pytest.mark.parametrize("name", DGL)
def test_blocks_of_dgl_train_in_chunks_and_with_a_history(tmp_path: Path, over_dgl: Path, name: str) -> None:
    assert_chunks_train_like_one(over_dgl, tmp_path / "whole", f"cut_dgl:of_{name}")
    more: dict[str, Any] = {"model": Reference(f"cut_dgl:of_{name}", over_dgl), "hidden": 8}
    wanted = content(train_small(tmp_path / "minibatch", **more))["weights.safetensors"]
    assert content(train_fresh(tmp_path / "fresh", fresh={"t_stale": 0}, **more))["weights.safetensors"] == wanted


def test_degrees_of_a_block_of_dgl_are_not_those_of_the_graph(over_dgl: Path) -> None:
    config = TrainConfig(model=Reference("cut_dgl:of_Both", over_dgl), trainer="fullgraph")
    with pytest.raises(InputError, match=r"built of GraphConv.* layer 0 \(GraphConv\) reads more than the neighbours"):
        require_layers(build_model(config, 6, 3, 0), "fullgraph")


def weights_of(model: Any) -> dict[str, Tensor]:
    return load(model.file("weights.safetensors").read_bytes())


def assert_chunks_train_like_one(folder: Path, home: Path, name: str, **options: Any) -> None:
    """A training in chunks has the weights of one that is not cut, and both the same exact logits."""
    reference = name if ":" in name else f"cut_modules:{name}"
    more = TRAINED | {"model": Reference(reference, folder)} | options
    ways = [train_whole(home / mode, mode=mode, **more) for mode in ("device", "p2p+reuse", "vanilla")]
    weights = [weights_of(model) for model in ways]
    for key, value in weights[0].items():
        for other in weights[1:]:
            torch.testing.assert_close(other[key], value, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", PAIRS)
def test_blocks_in_chunks_have_the_weights_of_a_training_that_is_not_cut(
    tmp_path: Path, folder: Path, name: str
) -> None:
    with attributed(type_columns=()):
        assert_chunks_train_like_one(folder, tmp_path, over_blocks(name), blocks="pyg")


@pytest.mark.parametrize("name", [*NODES, "Jumping", "Messages", *(f"torch_geometric.nn:{each}" for each in PYG)])
def test_a_graph_in_chunks_has_the_weights_of_a_training_that_is_not_cut(
    tmp_path: Path, folder: Path, name: str
) -> None:
    named = over_graph(name) if name in NODES else name
    assert_chunks_train_like_one(folder, tmp_path, named, **PYG.get(name.rpartition(":")[2], {}))


@pytest.mark.parametrize("name", [*NODES, "Jumping", "Messages", *(f"torch_geometric.nn:{each}" for each in PYG)])
def test_exact_logits_of_layers_are_those_of_the_whole_module(tmp_path: Path, folder: Path, name: str) -> None:
    graph = random_graph(tmp_path / "home")
    named, width, classes = over_graph(name) if name in NODES else name, graph.features.width, graph.num_classes
    cut, (whole,) = (made := cut_of(folder, named, width, classes)), made.whole
    rows = MemorySource(graph.features)
    wanted = infer_exact(whole, graph.topology, rows)
    for workspace_bytes in (1 << 30, 40_000):
        found = infer_exact(cut, graph.topology, rows, workspace_bytes)
        torch.testing.assert_close(found, wanted, **CLOSE)


@pytest.mark.parametrize("name", ["SAGEConv", "GATv2Conv", "GINConv", "RGCNConv"])
def test_a_history_is_kept_at_the_borders_of_the_layers(tmp_path: Path, folder: Path, name: str) -> None:
    """With none, the weights are those of minibatch to the bit; with one, rows are pruned, and the training repeats itself."""
    with attributed(type_columns=()):
        more: dict[str, Any] = {
            "model": Reference(f"cut_modules:{over_blocks(name)}", folder),
            "blocks": "pyg",
            "hidden": 8,
        }
        wanted = content(train_small(tmp_path / "minibatch", **more))["weights.safetensors"]
        for trainer in ("fresh", "fresh-factored"):
            if (trainer, name) != ("fresh-factored", "GINConv"):
                found = train_fresh(tmp_path / trainer, trainer=trainer, fresh={"t_stale": 0}, **more)
                assert content(found)["weights.safetensors"] == wanted
        kept = [train_fresh(tmp_path / each, fresh={"probe": 20}, epochs=4, **more) for each in ("one", "two")]
        assert content(kept[0]) == content(kept[1]) and content(kept[0])["weights.safetensors"] != wanted
        assert '"cached_cosine"' in kept[0].file("metrics.jsonl").read_text()


def test_statistics_of_batches_are_those_of_minibatch(tmp_path: Path, folder: Path) -> None:
    more: dict[str, Any] = {"model": Reference("cut_modules:NormedBlocks", folder), "blocks": "pyg", "hidden": 8}
    ways = [
        train_small(tmp_path / "minibatch", **more),
        train_fresh(tmp_path / "fresh", fresh={"t_stale": 0}, **more),
    ]
    assert content(ways[0])["weights.safetensors"] == content(ways[1])["weights.safetensors"]
    assert weights_of(ways[1])["inner.norm.running_mean"].any() and weights_of(ways[1])["inner.passes"] > 0


def test_rows_of_heads_side_by_side_are_kept_as_wide_as_they_are(tmp_path: Path, folder: Path) -> None:
    options: dict[str, Any] = {
        "model": Reference("torch_geometric.nn:GAT", folder),
        "hidden": 8,
        "heads": 2,
        "epochs": 4,
    }
    model = train_fresh(tmp_path / "home", fresh={"probe": 20}, **options)
    assert '"cached_cosine"' in model.file("metrics.jsonl").read_text()


@pytest.mark.parametrize("name", HOPS)
def test_a_convolution_of_several_hops_is_refused_by_its_name(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"built of {name}.* cannot be trained in chunks: layer 0 .*{name}") as error:
        cut_of(folder, over_graph(name))
    assert 'mode = "device"' in error.value.remedy


def test_one_chunk_takes_what_cannot_be_cut(tmp_path: Path, folder: Path) -> None:
    """As a training that is not cut; and `validate` looks at the number of chunks."""
    more = TRAINED | {"model": Reference(f"cut_modules:{over_graph('APPNP')}", folder)}
    ways = [train_whole(tmp_path / mode, 1, 1, mode=mode, **more) for mode in ("device", "p2p+reuse")]
    assert content(ways[0])["weights.safetensors"] == content(ways[1])["weights.safetensors"]
    table = {"name": "mine", "model": f"cut_modules:{over_graph('APPNP')}", "trainer": "fullgraph"}
    for chunks, problems in ((1, 0), (2, 1)):
        text = recipe(table, graph=sbm(), chunks={"chunks_per_part": chunks})
        pipeline = parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)
        assert len([*model_problems(pipeline)]) == problems


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Branching", "its forward cannot be read without values"),
        ("OverAll", r"layer 0 \(SAGEConv\) reads more than the neighbours of a node"),
        ("Deeper", "its logits have passed 3 layers, and layers = 2"),
    ],
)
def test_what_cannot_be_cut_is_told(folder: Path, name: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"built of SAGEConv.* cannot be trained in chunks: {problem}"):
        cut_of(folder, name)
    config = config_of(folder, name, trainer="minibatch", hidden=8, dropout=0.0)
    assert isinstance(build_model(config, 6, 3, 0), OwnModule)


def test_a_history_refuses_a_convolution_that_weighs_by_degrees(folder: Path) -> None:
    with pytest.raises(InputError, match=r"built of GCNConv.* with a history .* weigh edges by degrees"):
        cut_of(folder, over_graph("GCNConv"), trainer="fresh")


def test_buffers_that_no_pass_changes_are_none(tmp_path: Path, folder: Path) -> None:
    cut = cut_of(folder, over_graph("GINConv"))
    assert [*cut.buffers()] and not changed_buffers(cut, 6)
    normed = cut_of(folder, "Normed")
    assert {name.rpartition(".")[2] for name in changed_buffers(normed, 6)} >= {"running_mean", "running_var"}
    with pytest.raises(InputError, match=r"has buffers .*which a pass in chunks would change"):
        train_whole(tmp_path / "home", model=Reference("cut_modules:Normed", folder), hidden=8)


def test_ranks_and_devices_train_it_to_the_bits_of_one(tmp_path: Path, folder: Path) -> None:
    more = TRAINED | {"model": Reference("torch_geometric.nn:GAT", folder), "dropout": 0.3, "epochs": 3}
    ways = [train_whole(tmp_path / str(devices), parts=2, devices=devices, **more) for devices in (1, 2)]
    assert len({content(model)["weights.safetensors"] for model in ways}) == 1


def test_models_are_made_on_several_threads_while_others_compute(folder: Path) -> None:
    """The reading of a module leaves the calls of other threads alone."""
    module, errors, done = torch.nn.Linear(4, 4), [], threading.Event()

    def compute() -> None:
        try:
            while not done.is_set():
                assert isinstance(module(torch.ones(2, 4)), Tensor)
        except BaseException as error:
            errors.append(error)

    def make() -> None:
        try:
            cut_of(folder, over_graph("SAGEConv"))
        except BaseException as error:
            errors.append(error)

    computing, makers = threading.Thread(target=compute), [threading.Thread(target=make) for _ in range(4)]
    for each in (computing, *makers):
        each.start()
    for each in makers:
        each.join()
    done.set()
    computing.join()
    assert not errors
