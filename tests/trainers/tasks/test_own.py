"""Own models of other tasks than classes: PyG's numbers on the same batches, equal bits in all trainers that take them, one sentence each
for what does not fit, and predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.assets.storage.names.user_code import Reference
from graphmill.assets.storage.store import Store
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own_limits import model_problems
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.record.scores import METRICS_OF
from graphmill.trainers.run import train_table
from graphmill.trainers.tasks.opened import open_task
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from tests.assets.packed_chunks.packed import build_packed
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe, sbm
from tests.trainers.graphs import attributed, link_graph_artifacts, random_graph
from tests.trainers.models.test_own import written
from tests.trainers.models.test_own_graph import nodes_and_edges
from tests.trainers.runs import Stops, content, losses, train_packed
from tests.trainers.tasks.test_links import FACTORED, TABLE, train_links, weights
from tests.trainers.tasks.test_rivals import mean_loss

pytest.importorskip("torch_geometric")

CODE = """
from torch import nn
from torch_geometric.nn import SAGEConv

class Layer(nn.Module):
    def __init__(self, in_width, out_width, last=False):
        super().__init__()
        self.conv, self.last = SAGEConv(in_width, out_width), last
    def forward(self, h, edge_index):
        rows = self.conv(h, edge_index)
        return rows if self.last else rows.relu()

def layers(in_width, out_width, config):
    return [Layer(in_width, config.hidden), Layer(config.hidden, out_width, last=True)]

class OverBlocks(nn.Module):
    def __init__(self, in_width, out_width, config):
        super().__init__()
        self.layers = nn.ModuleList(layers(in_width, out_width, config))
    def forward(self, blocks, x):
        for layer, block in zip(self.layers, blocks):
            x = layer((x, x[: block.size[1]]), block.edge_index)
        return x

class Wide(OverBlocks):
    def __init__(self, in_width, out_width, config):
        super().__init__(in_width, out_width + 1, config)

class Misspelt(OverBlocks):
    def forward(self, blocks, x):
        return super().forward(blocks, x) * blocks[0].wieght

def wide(in_width, out_width, config):
    return layers(in_width, out_width + 2, config)
"""
FORMS: dict[str, dict[str, Any]] = {
    "layers": {"model": "own_tasks:layers"},
    "blocks": {"model": "own_tasks:OverBlocks", "blocks": "pyg"},
    "graph": {"model": "torch_geometric.nn:GCN"},
}
"""Forms of a model: a list of layers, a module over blocks, a module over one graph."""
KEYS = {"multilabel": {"pos_weight": "balanced"}, "regression": {"error": "huber"}}
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `CODE`, in a module that Python loads once."""
    return written(tmp_path_factory.mktemp("own_tasks"), "own_tasks", CODE)


def keys_of(form: str, folder: Path) -> dict[str, Any]:
    return FORMS[form] | {"model": Reference(FORMS[form]["model"], folder)}


def pyg_outputs(model: Any, form: str, blocks: tuple[Block, ...], x: Tensor) -> Tensor:
    """What PyG's convolutions compute of a batch whose edges are listed one by one."""
    if form == "graph":
        ids, edges = nodes_and_edges(blocks)
        place = {node: number for number, node in enumerate(ids)}
        edge_index = torch.tensor([[place[each[end]] for each in edges] for end in (0, 1)])
        return model.inner(x, edge_index)[: blocks[-1].num_dst]
    layers = [layer.inner for layer in model.layers] if form == "layers" else model.inner.layers
    for layer, block in zip(layers, blocks, strict=True):
        edges = [(s, d) for d in range(block.num_dst) for s in block.indices[block.start[d] : block.end[d]]]
        x = layer((x, x[: block.num_dst]), torch.tensor(edges).T)
    return x


def require_equal(model: Any, ours: Tensor, theirs: Tensor) -> None:
    """Compares two losses and their gradients by all parameters."""
    torch.testing.assert_close(ours, theirs, **CLOSE)
    parameters = [*model.parameters()]
    for one, other in zip(*(torch.autograd.grad(each, parameters) for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KEYS)
def test_a_step_of_labels_and_numbers_is_pygs(tmp_path: Path, folder: Path, kind: Any, form: str) -> None:
    with attributed(relations=0, type_columns=(), weights=False, labels=kind):
        graph = random_graph(tmp_path)
    more: dict[str, Any] = {"hidden": 8, "dropout": 0.0, "dtype": "float64", "metric": METRICS_OF[kind][0]}
    config = TrainConfig(**keys_of(form, folder), **more, **KEYS[kind])
    model, training = build_model(config, graph.features.width, graph.num_classes, 0), np.array(graph.train_ids)
    for step in range(3):
        seeds = np.sort(np.random.default_rng(step).choice(training, 30, replace=False)).astype(np.int32)
        blocks = Sampler(graph.topology, (4, 3), seed=1).sample(BatchKey(0, 0, step), seeds, transpose="all")
        x = torch.randn(blocks[0].num_src, graph.features.width, dtype=torch.float64)
        labels, still = graph.labels[seeds], StepRandom(0, training=False)
        ours = open_task(graph).loss(config).of(model)(model(blocks, x, still), torch.from_numpy(labels)) / len(seeds)
        theirs = mean_loss(kind, KEYS[kind], pyg_outputs(model, form, blocks, x), labels, graph.labels[training])
        require_equal(model, ours, theirs)


def pair_scores(head: Any, name: str, rows: Tensor, pairs: Tensor) -> Tensor:
    """The scores of pairs i64[..., 2] of places in rows, by the formula of a head."""
    source, target = rows[pairs[..., 0]], rows[pairs[..., 1]]
    if name == "mlp":
        hidden = source @ head.source.weight.T + head.source.bias + target @ head.target.weight.T
        return (hidden.relu() @ head.score.weight.T + head.score.bias)[..., 0]
    return ((source @ head.weight if name == "bilinear" else source) * target).sum(-1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("head", "loss"), [("dot", "bpr"), ("bilinear", "binary"), ("mlp", "margin")])
def test_a_step_of_links_is_pygs(tmp_path: Path, folder: Path, form: str, head: Any, loss: Any) -> None:
    graph = link_graph_artifacts(tmp_path).open()
    assert graph.links is not None
    more: dict[str, Any] = {"hidden": 8, "dropout": 0.0, "dtype": "float64", "metric": "auc"}
    config = TrainConfig(**keys_of(form, folder), link_head=head, link_loss=loss, **more)
    model = build_model(config, graph.features.width, graph.num_classes, 0)
    edges = training_edges(graph.links, graph.topology, SamplingConfig(fanouts=(4, 3), per_positive=3), seed=1)
    sampler = LinkSampler(Sampler(graph.topology, (4, 3), seed=1), edges)
    for step in range(3):
        key, chosen = BatchKey(0, 0, step), np.random.default_rng(step).permutation(len(edges.source))[:25]
        blocks, links = sampler.sample(key, chosen, transpose="all"), edges.batch(key, chosen)
        x = torch.randn(blocks[0].num_src, graph.features.width, dtype=torch.float64)
        rows, places = model(blocks, x, StepRandom(0, training=False)), torch.from_numpy(links.scored)
        ours = open_task(graph).loss(config).of(model)(rows, places) / len(chosen)

        theirs = pyg_outputs(model, form, blocks, x)
        assert theirs.shape == (blocks[-1].num_dst, 8)
        scores = pair_scores(model.link_head, head, theirs, places[..., :2].long())
        positive, negative = scores[:, :1], scores[:, 1:]
        if loss == "binary":
            labels = torch.zeros_like(scores).index_fill_(1, torch.tensor([0]), 1.0)
            wanted = functional.binary_cross_entropy_with_logits(scores, labels)
        elif loss == "bpr":
            wanted = -functional.logsigmoid(positive - negative).mean()
        else:
            wanted = (1 - positive + negative).clamp(min=0).mean()
        require_equal(model, ours, wanted)


@pytest.mark.parametrize("form", FORMS)
def test_trainings_of_links_have_equal_bits_however_they_are_carried_out(
    tmp_path: Path, folder: Path, form: str
) -> None:
    options: dict[str, Any] = keys_of(form, folder) | {"link_head": "bilinear"}
    whole = train_links(tmp_path / "whole", samplers=1, **options)
    assert whole.summary["numbers"]["test_auc"] > 0.6
    assert content(train_links(tmp_path / "ahead", samplers=3, **options)) == content(whole)
    assert weights(train_links(tmp_path / "factored", **options | FACTORED)) == weights(whole)
    with pytest.raises(ConnectionAbortedError):
        train_links(tmp_path / "stopped", progress=Stops(13), checkpoint_steps=1, **options)
    assert content(train_links(tmp_path / "stopped", resume=True, **options)) == content(whole)
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=128, reuse=2)
    packed = build_packed(tmp_path, graph=link_graph_artifacts(tmp_path), sampling=sampling, epochs=2)
    online = train_links(tmp_path, sampling=sampling, **options)
    for trainer, more in {"minibatch": {"samples": "stored"}, "disk": {}}.items():
        table = TABLE | {"trainer": trainer} | options | more
        assert weights(train_packed(packed, tmp_path / trainer, sampling=sampling, **table)) == weights(online)


@pytest.mark.parametrize("form", FORMS)
def test_a_pass_over_the_whole_graph_has_the_loss_of_one_batch_of_all_links(
    tmp_path: Path, folder: Path, form: str
) -> None:
    options: dict[str, Any] = keys_of(form, folder) | {"accumulate": 1, "dropout": 0.0, "dtype": "float64"}
    options |= {"exclude_targets": False}
    uncut: dict[str, Any] = {"trainer": "fullgraph", "settings": FullGraphSettings(mode="device")}
    whole = train_links(tmp_path / "whole", **options | uncut)
    if form == "graph":  # whose convolution counts the edges of a source, also of those that no block has
        assert losses(whole)[-1] < losses(whole)[0]
        return
    batched = train_links(tmp_path / "batch", sampling=SamplingConfig(fanouts=(-1, -1), batch_size=5000), **options)
    np.testing.assert_allclose(losses(whole), losses(batched), rtol=1e-10)


def problems(folder: Path, model: str, kind: str, known: tuple[int, int] | None, **keys: Any) -> list[str]:
    table = {"name": "mine", "model": f"own_tasks:{model}", "hidden": 8} | keys
    text = recipe(table, graph=sbm(), task={"kind": kind}, sampling={"fanouts": [4, 4], "batch_size": 64})
    pipeline = parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)
    return [text for _, text in model_problems(pipeline, {"mine": known} if known else {})]


@pytest.mark.parametrize("kind", ["multilabel", "regression", "links"])
def test_a_model_is_tried_before_data_are_built(folder: Path, kind: str) -> None:
    """Of links the width of its outputs is `hidden`, and the number of classes says nothing."""
    pyg = {"blocks": "pyg"}
    known = (6, 0 if kind == "links" else 5)
    wanted = "the head of links scores rows of hidden = 8" if kind == "links" else "the labels have 5"
    for sound, keys in (("layers", {}), ("OverBlocks", pyg)):
        for given in (known, None):
            assert problems(folder, sound, kind, given, **keys) == []
    for wrong, keys in (("wide", {}), ("Wide", pyg)):
        (found,) = problems(folder, wrong, kind, known, **keys)
        assert wanted in found and found.startswith(f"own_tasks:{wrong} returned")
        assert problems(folder, wrong, kind, None, **keys) == []
    (found,) = problems(folder, "Misspelt", kind, None, **pyg)
    assert "AttributeError" in found and "own_tasks.py:" in found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["multilabel", "regression", "links"])
def test_a_pipeline_trains_and_predicts(tmp_path: Path, folder: Path, kind: str, form: str) -> None:
    (tmp_path / "own_tasks.py").write_text((folder / "own_tasks.py").read_text())
    table = {"name": "mine", "hidden": 8, "epochs": 2} | FORMS[form]
    tables: dict[str, Any] = {"task": {"kind": kind}, "sampling": {"fanouts": [4, 4], "batch_size": 64}}
    (tmp_path / "mine.toml").write_text(recipe(table, graph=sbm(), **tables))
    pipeline, store, out = load_pipeline(tmp_path / "mine.toml", TrainTable), Store(tmp_path / "home"), tmp_path / "a"
    built = build_config(store.home, pipeline.graph, threads=1)
    assert pipeline.sampling is not None
    train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    found = out.with_suffix(".parquet")
    columns = Columns(top=3) if kind == "links" else Columns()
    predict_table(store, pipeline, "mine", found, columns=columns)
    read, nodes = polars.read_parquet(found), built.opened.topology.num_nodes
    assert len(read) == (3 * nodes if kind == "links" else nodes)
    assert {"multilabel": "labels", "regression": "prediction", "links": "target"}[kind] in read.columns
