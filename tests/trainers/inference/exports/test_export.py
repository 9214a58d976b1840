"""Exported models compute the logits of graphmill: as torch programs, as modules of PyG and as modules of DGL, on a whole graph."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import Tensor, nn

import graphmill
from graphmill.assets.features.read import NodeTypes
from graphmill.assets.storage.names.user_code import Reference
from graphmill.jobs.command import graphmill as command
from graphmill.kernels.blocks.pyg_blocks import to_pyg, to_subgraph
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Topology
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.inference.exports.convolutions import NoCounterpartError
from graphmill.trainers.inference.exports.export import _programs, _run_layers, _save, own_state
from graphmill.trainers.inference.exports.modules import ModuleText
from graphmill.trainers.inference.exports.programs import LayerPart, Part, arguments_of_layer, parts_of, write_part
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.recipe.config import TrainConfig
from tests.jobs.conftest import quick_launches as quick_launches
from tests.recipes import recipe, sbm
from tests.trainers.graphs import random_topology
from tests.trainers.models.test_own import written

RELATIONS, NODES, WIDTH, CLASSES = 3, 70, 7, 4
TYPES = NodeTypes(starts=(0, 30, 50, NODES), columns=(WIDTH, 3, 0))
MASKS = StepRandom(0, training=False)
ENDS = {"input": "linear", "head": "linear"}
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "sage": {},
    "sage sum": {"aggregator": "sum"},
    "sage max": {"aggregator": "max"},
    "sage gcn": {"aggregator": "gcn"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat", "heads": 2},
    "pinsage": {"model": "pinsage"},
    "rgcn": {"model": "rgcn"},
    "rgcn of bases": {"model": "rgcn", "bases": 2},
    "rgat": {"model": "rgat", "heads": 2},
}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm": {"norm": "layer", "residual": True, "activation": "gelu"},
    "batch norm": {"norm": "batch", "residual": "linear", "activation": "tanh"},
    "ends": ENDS | {"jk": "cat", "activation": "elu"},
    "sum": ENDS | {"jk": "sum", "input": "typed", "activation": "leaky_relu"},
    "max": ENDS | {"jk": "max", "input": "typed", "embedding": "node"},
    "feed forward": ENDS | {"feed_forward": 1.5, "norm": "layer"},
}
WEIGHED = ("gcn", "sage", "sage sum", "sage gcn", "gin", "gat", "rgcn")
WITHOUT = {
    ("sage max", False, "dgl"),
    *((name, True, "pyg") for name in ("gin", "gat", "rgcn")),
}
"""Models, with or without the data's weights, for which a library has no convolution."""


def topology() -> Topology:
    return random_topology(NODES, 400, seed=2, relations=RELATIONS, weights=True)


def drawn_model(weighed: bool = False, **options: Any) -> LayeredModel:
    """A model in float64 with drawn parameters and running statistics."""
    config = TrainConfig(hidden=8, dropout=0.3, edge_weight=weighed, dtype="float64", **options)
    model = build_model(config, WIDTH, CLASSES, 1, RELATIONS, TYPES if options.get("input") == "typed" else None)
    assert isinstance(model, LayeredModel)
    torch.manual_seed(4)
    rows = node_rows(model)
    for tensor in [*model.parameters(), *([] if rows is None else [rows.table.values])]:
        tensor.data.normal_()
    for name, tensor in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            tensor.uniform_(0.5, 2)
    return model


def expected_logits(model: Any, graph: Topology, x: Tensor) -> Tensor:
    """The logits of all nodes by graphmill's own kernels."""
    sampler = Sampler(graph, (-1, -1), seed=5)
    nodes = np.arange(graph.num_nodes, dtype=graph.indices.dtype)
    blocks = sampler.sample(BatchKey(0, 0, 0), nodes, transpose="all")
    attach_weights(blocks, graph, model.edge_weight)
    assert (blocks[0].src_ids == nodes).all()
    with torch.no_grad():
        return model(blocks, x, MASKS)


def edges_of(graph: Topology) -> dict[str, Tensor]:
    """The edges of a graph as tensors."""
    (block,) = Sampler(graph, (-1,), seed=5).sample(BatchKey(0, 0, 0), np.arange(graph.num_nodes, dtype=np.int32))
    found = to_subgraph((block,))
    return {"edge_index": found.edge_index, "edge_weight": found.edge_weight, "edge_type": found.edge_type}


def loaded(path: Path) -> Any:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def taken(names: list[str], values: Mapping[str, Tensor]) -> list[Tensor]:
    return [values[name.partition("=")[0]] for name in names if name.partition("=")[0] in values]


def library_logits(model: LayeredModel, library: Any, folder: Path, values: Mapping[str, Tensor]) -> Tensor:
    """The logits of the module of a library, loaded by its file from the state dict beside it."""
    text = ModuleText(model, library)
    (folder / f"{library}_model.py").write_text(text.text("a model", f"{library}.safetensors"))
    _save(folder / f"{library}.safetensors", text.tensors)
    module: nn.Module = loaded(folder / f"{library}_model.py").trained()
    assert module.state_dict().keys() == load_file(folder / f"{library}.safetensors").keys()
    if library == "dgl":
        dgl = pytest.importorskip("dgl")
        values = {**values, "graph": dgl.graph(tuple(values["edge_index"]), num_nodes=NODES)}
    with torch.no_grad():
        return module(*taken(text.arguments, values))


def slow(name: str, form: str) -> list[pytest.MarkDecorator]:
    """The mark of a case whose form is tried with other models, too."""
    return [] if form == "plain" or name in ("sage", "gat") else [pytest.mark.slow("each form with each model")]


CASES = [
    *(
        pytest.param(name, form, False, marks=slow(name, form))
        for name in MODELS
        for form in FORMS
        if form != "feed forward" or name in WEIGHED[:-1]
    ),
    *((name, "plain", True) for name in WEIGHED),
]


@pytest.mark.parametrize(("name", "form", "weighed"), CASES)
def test_logits_of_all_nodes_are_those_of_graphmill(name: str, form: str, weighed: bool, tmp_path: Path) -> None:
    model, graph = drawn_model(weighed, **MODELS[name], **FORMS[form]), topology()
    x = torch.randn(NODES, WIDTH, dtype=torch.float64)
    values = {"x": x, "node_ids": torch.arange(NODES), **edges_of(graph)}
    expected = expected_logits(model, graph, x)
    # Weights of edges are float32 in graphmill.
    near = 1e-10 if model.edge_weight is None else 1e-5
    for library in ("pyg", "dgl"):
        if (name, weighed, library) in WITHOUT:
            with pytest.raises(NoCounterpartError):
                ModuleText(model, library)  # pyright: ignore[reportArgumentType]
            continue
        found = library_logits(model, library, tmp_path, values)
        torch.testing.assert_close(found, expected, rtol=near, atol=near, msg=library)
    assert {write_part(part, tmp_path) for part in parts_of(model, WIDTH)} == {""}
    programs = sorted(path.name for path in tmp_path.glob("*.pt2"))
    (tmp_path / "run_layers.py").write_text(_run_layers(model, name, programs))
    run = loaded(tmp_path / "run_layers.py").logits
    found = run(*taken([*run.__code__.co_varnames[: run.__code__.co_argcount]], values))
    torch.testing.assert_close(found, expected, rtol=near, atol=near)


OWN = """
import torch
from torch import nn
from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv
from graphmill import LayeredModel, LinearHead, aggregate, attend

class Halves(nn.Module):
    cacheable, edge_weight = True, "gcn"
    def __init__(self, in_width, out_width, reduce):
        super().__init__()
        self.own, self.neighbours, self.reduce = nn.Linear(in_width, out_width), nn.Linear(in_width, out_width), reduce
        self.norm = nn.BatchNorm1d(out_width)
    def aggregate(self, block, h_src, rng):
        return aggregate(block, h_src, self.reduce)
    def update(self, agg, h_dst, rng):
        return rng.dropout(self.norm(self.own(h_dst) + self.neighbours(agg)).relu(), 0.5)

class Attending(nn.Module):
    cacheable, edge_weight = False, "gcn"
    def __init__(self, in_width, out_width):
        super().__init__()
        self.map, self.left, self.right = (nn.Linear(in_width, width) for width in (out_width, 1, 1))
    def aggregate(self, block, h_src, rng):
        own = h_src[: block.num_dst] if block.dst_pos is None else h_src[torch.as_tensor(block.dst_pos).long()]
        return attend(block, self.map(h_src), self.left(h_src), self.right(own))
    def update(self, agg, h_dst, rng):
        return agg

def halves(in_width, num_classes, config):
    return [Halves(in_width, config.hidden, "weighted"), Attending(config.hidden, num_classes)]

def ended(in_width, num_classes, config):
    layers = [Halves(in_width, config.hidden, "mean"), Halves(config.hidden, config.hidden, "sum")]
    return LayeredModel(layers, readout=LinearHead(2, config.hidden, num_classes, "cat"))

def whole(in_width, num_classes, config):
    return [SAGEConv(in_width, config.hidden), GATv2Conv(config.hidden, num_classes, add_self_loops=False)]

class Reading(nn.Module):
    def __init__(self, in_width, out_width):
        super().__init__()
        self.map = nn.Linear(in_width, out_width)
    def aggregate(self, block, h_src, rng):
        return h_src[: block.num_dst] * float(block.end[0] > 0)
    def update(self, agg, h_dst, rng):
        return self.map(agg)

def reading(in_width, num_classes, config):
    return [Reading(in_width, config.hidden), Reading(config.hidden, num_classes)]

class Graph(nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.first, self.last = GCNConv(in_width, config.hidden), SAGEConv(config.hidden, num_classes)
        self.dropout = nn.Dropout(0.5)
    def forward(self, x, edge_index, edge_weight=None):
        return self.last(self.dropout(self.first(x, edge_index, edge_weight).relu()), edge_index)

class Data(Graph):
    def forward(self, data):
        return super().forward(data.x, data.edge_index, data.edge_weight)

class Dgl(nn.Linear):
    def __init__(self, in_width, num_classes, config):
        super().__init__(in_width, num_classes)
    def forward(self, blocks, x):
        return super().forward(x[: blocks[-1].num_dst_nodes()])

class Blocks(nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(in_width, config.hidden), SAGEConv(config.hidden, num_classes)])
    def forward(self, blocks, x):
        for conv, block in zip(self.convs, blocks):
            x = conv((x, x[: block.size[1]]), block.edge_index).tanh()
        return x
"""
OWN_KEYS = {
    "halves": "0.own.weight",
    "ended": "layers.0.own.weight",
    "whole": "0.lin_l.weight",
    "Graph": "first.lin.weight",
    "Data": "first.lin.weight",
    "Blocks": "convs.0.lin_l.weight",
}


def own_model(name: str, folder: Path) -> Any:
    reference = Reference(f"bring:{name}", written(folder, "bring", OWN))
    blocks = {"blocks": "pyg"} if name == "Blocks" else {}
    return build_model(TrainConfig(model=reference, hidden=8, dtype="float64", **blocks), WIDTH, CLASSES, 1)


@pytest.mark.parametrize("name", OWN_KEYS)
def test_own_models_leave_as_programs_with_the_keys_of_their_modules(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    model, graph = own_model(name, tmp_path), topology()
    x, edges = torch.randn(NODES, WIDTH, dtype=torch.float64), edges_of(graph)
    expected = expected_logits(model, graph, x)
    parts = [*parts_of(model, WIDTH, ("edge_weight",))]
    assert [write_part(part, tmp_path) for part in parts] == [""] * len(parts)
    assert OWN_KEYS[name] in own_state(model)
    programs = {path.stem: torch.export.load(path).module() for path in tmp_path.glob("*.pt2")}
    if name == "Blocks":
        nodes = [torch.arange(NODES)] * 3
        found = programs["model"](x=x, edges=[edges["edge_index"]] * 2, nodes=nodes)
    elif name in ("Graph", "Data"):
        found = programs["model"](x=x, edge_index=edges["edge_index"], edge_weight=edges["edge_weight"].double())
    else:
        (tmp_path / "run_layers.py").write_text(_run_layers(model, name, [f"{each}.pt2" for each in programs]))
        found = loaded(tmp_path / "run_layers.py").logits(x, edges["edge_index"])
    near = 1e-10 if name in ("whole", "Blocks") else 1e-5
    torch.testing.assert_close(found, expected, rtol=near, atol=near)


@pytest.mark.parametrize(
    ("name", "why"), [("reading", "a layer does not run on edges alone"), ("Dgl", "graphs of DGL")]
)
def test_models_that_no_program_can_have_are_told(name: str, why: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    data = SimpleNamespace(graph=SimpleNamespace(topology=topology()), features=SimpleNamespace(width=WIDTH))
    trained: Any = SimpleNamespace(model=own_model(name, tmp_path), data=data)
    left_out: dict[str, str] = {}
    assert list(_programs(trained, tmp_path, left_out)) == [] and why in "".join(left_out.values())


@pytest.mark.parametrize(
    ("name", "weighed"), [*((name, False) for name in MODELS), *((name, True) for name in WEIGHED)]
)
def test_a_layer_on_a_sampled_block_is_that_of_graphmill(name: str, weighed: bool) -> None:
    """With sources that are no destinations, destinations anywhere among the sources, and weights of the sampler."""
    model, graph = drawn_model(weighed, **MODELS[name]), topology()
    sampler = Sampler(graph, (3, 3), seed=5)
    (block, _) = sampler.sample(BatchKey(0, 0, 0), np.arange(0, NODES, 7, dtype=np.int32), transpose="all")
    attach_weights((block,), graph, model.edge_weight)
    assert block.num_dst < block.num_src < NODES and (block.end - block.start).max() == 3
    order = torch.randperm(block.num_src)
    h, made = torch.randn(block.num_src, WIDTH, dtype=torch.float64), to_pyg(block)
    place = torch.argsort(order)  # of each source among the shuffled ones
    values = {"edge_weight": made.edge_weight, "self_weight": made.self_weight, "edge_type": made.edge_type}
    given = {each: values[each] for each in arguments_of_layer(model.layers[0])}
    edges = torch.stack([place[made.edge_index[0]], made.edge_index[1]])
    with torch.no_grad():
        part = LayerPart(model.layers[0]).eval()
        found = part(h[order], place[: block.num_dst], edges, **given)
        expected = model.forward_layer(0, block, h, MASKS)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def no_export(*given: Any, **more: Any) -> None:
    raise RuntimeError("cannot follow it")


@pytest.mark.parametrize("name", ["gcn", "gat", "rgcn"])
def test_torchscript_takes_the_place_of_an_export_that_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.export.export", no_export)
    model, graph = drawn_model(**MODELS[name]), topology()
    x = torch.randn(NODES, WIDTH, dtype=torch.float64)
    values, expected = {"x": x, **edges_of(graph)}, expected_logits(model, graph, x)
    assert {write_part(part, tmp_path) for part in parts_of(model, WIDTH)} == {""}
    programs = sorted(path.name for path in tmp_path.glob("*.pt"))
    assert programs == ["layer-1.pt", "layer-2.pt"]
    (tmp_path / "run_layers.py").write_text(_run_layers(model, name, programs))
    run = loaded(tmp_path / "run_layers.py").logits
    found = run(*taken([*run.__code__.co_varnames[: run.__code__.co_argcount]], values))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class Counting(nn.Module):
    """Depends on the number of nodes as Python sees it, which programs have as a constant."""

    def forward(self, outputs: list[Tensor]) -> Tensor:
        return outputs[0] * float(int(outputs[0].shape[0]))


def test_a_program_that_holds_for_one_size_alone_is_not_written(tmp_path: Path) -> None:
    part = Part("head", Counting(), lambda n, *_: {"outputs": [torch.rand(n, 3)]})
    reason = write_part(part, tmp_path)
    assert reason.startswith("torch.export: ") and "; TorchScript: " in reason and not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["dot", "bilinear", "distmult", "transe", "rotate", "mlp"])
def test_scores_of_pairs_are_those_of_the_head(name: Any, tmp_path: Path) -> None:
    model = drawn_model(metric="mrr", link_head=name)
    head: Any = model.link_head
    source, target = torch.randn(2, 9, 8, dtype=torch.float64)
    more = {"relation": torch.arange(9) % RELATIONS} if head.reads_relations else {}
    with torch.no_grad():
        expected = head(source, target, *more.values())
        text = ModuleText(model, "pyg")
        (tmp_path / "pyg_model.py").write_text(text.text("a model", "pyg.safetensors"))
        module = loaded(tmp_path / "pyg_model.py").Model().double()
        module.load_state_dict(text.tensors, strict=True)
        torch.testing.assert_close(module.score(source, target, *more.values()), expected, rtol=1e-10, atol=1e-10)
    assert [write_part(part, tmp_path) for part in parts_of(model, WIDTH)] == ["", "", ""]
    score = torch.export.load(tmp_path / "score.pt2").module()
    torch.testing.assert_close(score(source=source, target=target, **more), expected, rtol=1e-10, atol=1e-10)


LINKS: dict[str, dict[str, Any]] = {"max": {"aggregator": "max"}, "rows": {"model": "rows"}}


@pytest.mark.smoke
def test_the_command_writes_a_trained_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_launches: None
) -> None:
    """The folder alone gives the logits of the exact evaluation, in float32."""
    path, home, folder = tmp_path / "mine.toml", tmp_path / "home", tmp_path / "out"
    for variable in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
        monkeypatch.setenv(variable, str(home))
    train = {"name": "gat", "model": "gat", "heads": 2, "hidden": 8, "epochs": 1, "norm": "batch"}
    path.write_text(recipe(train, seed=0, graph=sbm(), sampling={"fanouts": [4, 4], "batch_size": 64}))
    asked = ["--home", str(home), "export", f"{path}/gat", "--to", str(folder)]
    refused = CliRunner().invoke(command, asked)
    assert "are not in" in str(refused.exception) and not folder.exists()
    graphmill.run(path, home=home, report=lambda line: None)
    done = CliRunner().invoke(command, asked)
    assert done.exit_code == 0, done.output
    assert {"layer-1.pt2", "pyg_model.py", "dgl.safetensors"} < {each.name for each in folder.iterdir()}
    trained = graphmill.open(path, "gat", home=home)
    expected, edges = trained.logits(), edges_of(trained.graph.topology)["edge_index"]
    x = torch.from_numpy(np.array(trained.features.open()))
    close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(loaded(folder / "run_layers.py").logits(x, edges), expected, **close)
    with torch.no_grad():
        torch.testing.assert_close(loaded(folder / "pyg_model.py").trained()(x, edges), expected, **close)
    again = CliRunner().invoke(command, asked)
    assert "is there already" in str(again.exception)
    here = tmp_path / "again"
    here.mkdir()
    monkeypatch.chdir(here)  # an empty folder is taken as it is, the current one, too
    exported = graphmill.export(path, "gat", ".", home=home)
    assert {each.name for each in here.iterdir()} == {each.name for each in folder.iterdir()} - {"__pycache__"}
    assert exported.left_out == {} and (tmp_path / "again/README.md").read_text().count("| `") == len(exported.files)


def test_models_of_links_leave_with_their_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_launches: None
) -> None:
    path, home = tmp_path / "mine.toml", tmp_path / "home"
    for variable in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
        monkeypatch.setenv(variable, str(home))
    trains = [{"name": name, "hidden": 8, "epochs": 1, "link_head": "bilinear"} | more for name, more in LINKS.items()]
    sampling = {"fanouts": [4, 4], "batch_size": 256}
    path.write_text(recipe(*trains, seed=0, graph=sbm(), sampling=sampling, task={"kind": "links"}))
    graphmill.run(path, home=home, report=lambda line: None)
    exported = {name: graphmill.export(path, name, tmp_path / name, home=home) for name in LINKS}
    assert {"layer-1.pt2", "score.pt2", "pyg_model.py"} < exported["max"].files.keys()
    assert exported["max"].left_out.keys() == {"dgl.nn"} and exported["rows"].left_out == {}
    assert exported["rows"].files.keys() == {"state.safetensors", "score.pt2"}
    rows, edges = (graphmill.open(path, name, home=home) for name in ("max", "graph"))
    x, index = torch.from_numpy(np.array(rows.features.open())), edges_of(edges.topology)["edge_index"]
    found = loaded(tmp_path / "max/run_layers.py").logits(x, index)
    torch.testing.assert_close(found, rows.logits(), rtol=1e-5, atol=1e-5)
    table = graphmill.open(path, "rows", home=home)
    ends = load_file(tmp_path / "rows/state.safetensors")["nodes.rows"][:5], torch.rand(5, 8)
    score = torch.export.load(tmp_path / "rows/score.pt2").module()(source=ends[0], target=ends[1])
    torch.testing.assert_close(score, table.model.link_head(*ends))
    # A table of rows opens and predicts on a graph without node types as well.
    assert graphmill.predict(path, "rows", tmp_path / "rows.parquet", home=home) == 300
