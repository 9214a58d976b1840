"""A step has the loss and the gradients of DGL's and PyG's layers on the same batches, and a training reaches the score of DGL's model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphmill.assets.graph.read import Graph
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.kernels.blocks.dgl_blocks import to_dgl
from graphmill.kernels.blocks.pyg_blocks import to_pyg
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block
from graphmill.trainers.models.layer import LayeredModel, initialise
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.tasks.opened import open_task
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe, sbm
from tests.trainers.graphs import attributed, random_graph

sklearn = pytest.importorskip("sklearn.metrics")

COLUMNS, WIDTH = 12, 8
TASKS: list[tuple[str, dict[str, Any]]] = [
    ("classes", {}),
    ("classes", {"class_weights": "balanced", "label_smoothing": 0.1}),
    ("multilabel", {"pos_weight": "none"}),
    ("multilabel", {"pos_weight": "balanced"}),
    ("regression", {"error": "squared"}),
    ("regression", {"error": "absolute"}),
    ("regression", {"error": "huber"}),
]


def mean_loss(
    kind: str, keys: dict[str, Any], out: torch.Tensor, labels: np.ndarray, training: np.ndarray
) -> torch.Tensor:
    """The mean over a batch as torch's losses have it, of each node the sum over its known values, divided by their number."""
    if kind == "classes":
        counts = np.bincount(training, minlength=out.shape[1])
        weight = torch.from_numpy(len(training) / (len(counts) * counts)) if keys else None
        wanted, smoothing = torch.from_numpy(labels).long(), keys.get("label_smoothing", 0.0)
        return functional.cross_entropy(out, wanted, weight, reduction="sum", label_smoothing=smoothing) / len(labels)
    if kind == "multilabel":
        known, weight = torch.from_numpy(labels >= 0), None
        if keys["pos_weight"] == "balanced":
            weight = torch.from_numpy((training == 0).sum(axis=0) / (training == 1).sum(axis=0))
        wanted = torch.from_numpy((labels == 1).astype(np.float64))
        each = functional.binary_cross_entropy_with_logits(out, wanted, pos_weight=weight, reduction="none")
    else:
        exact = training.astype(np.float64)
        wanted = (labels.astype(np.float64) - np.nanmean(exact, axis=0)) / np.nanstd(exact, axis=0)
        known = torch.from_numpy(~np.isnan(wanted))
        error = {"squared": functional.mse_loss, "absolute": functional.l1_loss, "huber": functional.huber_loss}
        each = error[keys["error"]](out, torch.from_numpy(np.nan_to_num(wanted)), reduction="none")
    return (each * known).mean()


def dgl_layer(
    layer: SageLayer,
) -> tuple[torch.nn.Module, Callable[[Block, torch.Tensor], torch.Tensor], dict[str, str]]:
    dgl = pytest.importorskip("dgl")
    twin = dgl.nn.SAGEConv(layer.own.in_features, layer.own.out_features, "mean").double()
    names = {"own.weight": "fc_self.weight", "own.bias": "fc_self.bias", "neighbours.weight": "fc_neigh.weight"}
    return twin, lambda block, h: twin(to_dgl(block), h), names


def pyg_layer(
    layer: SageLayer,
) -> tuple[torch.nn.Module, Callable[[Block, torch.Tensor], torch.Tensor], dict[str, str]]:
    nn = pytest.importorskip("torch_geometric.nn")
    twin = nn.SAGEConv(layer.own.in_features, layer.own.out_features, aggr="mean").double()
    names = {"own.weight": "lin_r.weight", "own.bias": "lin_l.bias", "neighbours.weight": "lin_l.weight"}

    def applied(block: Block, h: torch.Tensor) -> torch.Tensor:
        made = to_pyg(block)
        return twin((h, h[: block.num_dst]), made.edge_index, size=made.size)

    return twin, applied, names


@pytest.mark.parametrize("library", [dgl_layer, pyg_layer])
@pytest.mark.parametrize(("kind", "keys"), TASKS)
def test_a_step_is_that_of_the_library(tmp_path: Path, library: Any, kind: Any, keys: dict[str, Any]) -> None:
    with attributed(relations=0, type_columns=(), weights=False, labels=kind):
        graph = random_graph(tmp_path)
    loss = open_task(graph).loss(TrainConfig(model="sage", dtype="float64", metric="f1_micro", **keys))
    model = LayeredModel(
        [SageLayer(COLUMNS, WIDTH, LayerOptions()), SageLayer(WIDTH, graph.num_classes, LayerOptions(last=True))]
    )
    initialise(model, 1)
    model.double()
    x = torch.randn(graph.topology.num_nodes, COLUMNS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sampler, training = Sampler(graph.topology, (4, 3), seed=1), np.array(graph.train_ids)
    for step in range(3):
        seeds = np.sort(np.random.default_rng(step).choice(training, 30, replace=False)).astype(np.int32)
        blocks = sampler.sample(BatchKey(0, 0, step), seeds, transpose=model.transpose)
        model.zero_grad()
        labels = graph.labels[seeds]
        ours = loss(model(blocks, x[blocks[0].src_ids], StepRandom(1)), torch.from_numpy(labels)) / len(seeds)
        ours.backward()

        h, twins = x[blocks[0].src_ids], []
        for number, (own, block) in enumerate(zip(model.layers, blocks, strict=True)):
            twin, applied, names = library(own)
            twin.load_state_dict({theirs: own.get_parameter(mine).detach() for mine, theirs in names.items()})
            h = applied(block, h) if number else applied(block, h).relu()
            twins.append((own, twin, names))
        theirs = mean_loss(kind, keys, h, labels, graph.labels[training])
        theirs.backward()
        assert abs(ours.item() - theirs.item()) < 1e-10
        for own, twin, names in twins:
            for mine, other in names.items():
                torch.testing.assert_close(
                    own.get_parameter(mine).grad, twin.get_parameter(other).grad, rtol=0, atol=1e-10
                )


GRAPH = sbm(nodes=3000, edges=60_000, features=16, classes=6, p_in=0.8)
SCORES = {"multilabel": "f1_micro", "regression": "r2"}
SEEDS, EPOCHS, HIDDEN, DROPOUT, EVERY = 4, 150, 16, 0.3, 10
KEYS: dict[str, Any] = {
    "hidden": HIDDEN,
    "epochs": EPOCHS,
    "eval_every": EVERY,
    "dropout": DROPOUT,
    "lr": 0.01,
    "weight_decay": 0.001,
}


def dgl_scores(kind: str, graph: Graph, rows: torch.Tensor) -> list[float]:
    """The test score of each seed of two of DGL's convolutions that learn from the whole graph, the epoch chosen by validation."""
    dgl = pytest.importorskip("dgl")
    topology, labels = graph.topology, np.array(graph.labels)
    target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    ends = (torch.from_numpy(each.astype(np.int64)) for each in (topology.indices, target))
    whole = dgl.add_self_loop(dgl.graph(tuple(ends), num_nodes=topology.num_nodes))
    training = np.array(graph.train_ids)
    mean, deviation = labels[training].mean(axis=0), labels[training].std(axis=0)
    wanted = torch.from_numpy(
        (labels if kind == "multilabel" else (labels - mean) / deviation)[training].astype(np.float32)
    )
    loss = functional.binary_cross_entropy_with_logits if kind == "multilabel" else functional.mse_loss

    def score(out: np.ndarray, ids: np.ndarray) -> float:
        if kind == "multilabel":
            return sklearn.f1_score(labels[ids], out[ids] > 0, average="micro")
        return sklearn.r2_score(labels[ids], out[ids] * deviation + mean)

    found = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        one, two = dgl.nn.GraphConv(rows.shape[1], HIDDEN), dgl.nn.GraphConv(HIDDEN, labels.shape[1])
        learnt = [*one.parameters(), *two.parameters()]
        optimiser, chosen = torch.optim.Adam(learnt, lr=KEYS["lr"], weight_decay=KEYS["weight_decay"]), (-np.inf, 0.0)
        for epoch in range(1, EPOCHS + 1):
            out = two(whole, functional.dropout(one(whole, rows).relu(), DROPOUT))
            optimiser.zero_grad()
            loss(out[training], wanted).backward()
            optimiser.step()
            if epoch % EVERY == 0:
                with torch.no_grad():
                    answers = two(whole, one(whole, rows).relu()).numpy()
                chosen = max(chosen, tuple(score(answers, np.array(ids)) for ids in (graph.valid_ids, graph.test_ids)))
        found.append(chosen[1])
    return found


@pytest.mark.parametrize("kind", SCORES)
def test_a_training_reaches_the_score_of_dgl_within_the_deviation_of_the_seeds(tmp_path: Path, kind: str) -> None:
    """Both may be so near the best score that seeds hardly differ; then one test node is the bound."""
    table = {
        "name": "gcn",
        "model": "gcn",
        "trainer": "fullgraph",
        "seeds": list(range(SEEDS)),
        "fullgraph": {"mode": "device"},
    }
    (tmp_path / "mine.toml").write_text(recipe(table | KEYS, graph=GRAPH, task={"kind": kind}))
    pipeline, store = load_pipeline(tmp_path / "mine.toml", TrainTable), Store(tmp_path / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    models = train_table(store, built.inputs, pipeline.train[0], None, 0, report=lambda line: None)
    ours = [model.summary["numbers"][f"test_{SCORES[kind]}"] for model in models]
    theirs = dgl_scores(kind, built.opened, torch.from_numpy(np.array(built.features.array("rows"))))
    bound = np.std(ours, ddof=1) + np.std(theirs, ddof=1) + 1 / len(built.opened.test_ids)
    assert abs(np.mean(ours) - np.mean(theirs)) <= bound, (ours, theirs)
    assert len(ours) == len(theirs) == SEEDS
