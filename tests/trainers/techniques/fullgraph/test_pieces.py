"""The pieces of a pass over the whole graph can be measured of every model, and a plan adds a visit for each chunk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.chunks.config import ChunksConfig, ChunksTable
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.features.read import NodeTypes
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.jobs.planning.graph import stand_in
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.recipe.costs.course import Case, Speeds
from graphmill.trainers.recipe.costs.known import case_on, speeds_path
from graphmill.trainers.techniques.fullgraph import visits
from graphmill.trainers.techniques.fullgraph.costs import pass_seconds, volumes
from graphmill.trainers.techniques.fullgraph.pieces import _chunk_pass, _part, measure_pieces
from graphmill.trainers.techniques.fullgraph.rows.host_rows import consecutive
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from graphmill.trainers.techniques.fullgraph.visits import (
    CHUNK_NODES,
    STEPS,
    _FewSteps,
    _Shape,
    _small_graph,
    visit_seconds,
)

SIZES = Sizes(num_nodes=300, num_edges=2400, num_train=200, num_classes=3, width=8, row_bytes=32)
TYPES = NodeTypes(starts=(0, 20, 40, 300), columns=(8, 0, 4))
CASES: dict[str, dict[str, Any]] = {
    "sage": {},
    "by weights of the data": {"edge_weight": True},
    "gcn, projected, dropout": {"model": "gcn", "input": "linear", "input_dropout": 0.5, "dropout": 0.5},
    "gin": {"model": "gin"},
    "a wide layer behind a narrow one": {"hidden": 2},
    "layer norms and residuals": {"norm": "layer", "residual": True, "layers": 3},
    "gat": {"model": "gat", "heads": 2},
    "rgcn": {"model": "rgcn"},
    "all layers to the head": {"jk": "cat", "head": "linear"},
    "bfloat16": {"dtype": "bf16"},
    "one device": {"settings": FullGraphSettings(devices=1, overlap=False)},
    "typed": {"input": "typed"},
    "vanilla": {"settings": FullGraphSettings(mode="vanilla", hybrid=False)},
    "layers of the user": {"model": f"{__name__}:own_layers"},
    "not cut": {"settings": FullGraphSettings(mode="device")},
}


class OwnLayer(torch.nn.Module):
    """A layer as a user writes it: without a gradient of its own."""

    def __init__(self, in_width: int, out_width: int):
        super().__init__()
        self.map = torch.nn.Linear(in_width, out_width)

    def aggregate(self, block: Any, rows: torch.Tensor, rng: Any) -> torch.Tensor:
        return rows.mean(0, keepdim=True).expand(block.num_dst, -1)

    def update(self, aggregate: torch.Tensor, own: torch.Tensor, rng: Any) -> torch.Tensor:
        return self.map(aggregate + own)


def own_layers(in_width: int, num_classes: int, config: Any) -> list[OwnLayer]:
    return [OwnLayer(in_width, 4), OwnLayer(4, num_classes)]


def case_of(sizes: Sizes = SIZES, **keys: Any) -> Case:
    table = TrainTable(name="whole", trainer="fullgraph", threads=1, **{"hidden": 4} | keys)
    semantic = ModelConfig(seed=1, train=table.config, sampling=None)
    return case_on(semantic, table.execution, sizes, stand_in(sizes, 1, None), {})


@pytest.mark.parametrize("name", CASES)
def test_pieces_of_every_model_can_be_measured(name: str) -> None:
    case = case_of(**CASES[name])
    at_hand = stand_in(SIZES, 1, None)
    train = case.semantic.train
    types = TYPES if train.input == "typed" else None
    model = build_model(train, SIZES.width, 3, 1, 2 if train.model == "rgcn" else 0, types)
    assert isinstance(model, LayeredModel)
    before = [parameter.clone() for parameter in model.parameters()]
    ones = np.ones(SIZES.num_edges)
    topology = replace(at_hand.graph.topology, weights=ones.astype(np.float32), edge_types=ones.astype(np.uint8))
    at_hand = replace(at_hand, graph=replace(at_hand.graph, topology=topology))
    found = measure_pieces(case, at_hand, model, 1 << 20)
    assert found.visit.keys() == (set() if name == "not cut" else {1})
    assert found.layers.keys() == found.whole.keys() >= {1}
    assert min(*found.visit.values(), *found.layers.values(), *found.whole.values()) > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(map(torch.equal, before, model.parameters()))


def test_a_chunk_maps_the_rows_of_its_own_nodes_and_sums_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timed layer does what the passes do: each source is mapped in the chunk that it belongs to, and gradients need no second sum."""
    case, at_hand = case_of(hidden=8), stand_in(SIZES, 1, None)
    model = build_model(case.semantic.train, SIZES.width, 3, 1)
    layer: Any = model.layers[1]  # pyright: ignore[reportAttributeAccessIssue]
    block = _part(case, at_hand, model, 1 << 12)  # pyright: ignore[reportArgumentType]
    both = _chunk_pass(case, model, 1, block, 8)  # pyright: ignore[reportArgumentType]
    mapped: list[int] = []
    summed: list[int] = []
    project, aggregate = layer.project, layer.aggregate_projected
    monkeypatch.setattr(layer, "project", lambda rows: mapped.append(len(rows)) or project(rows))
    monkeypatch.setattr(
        layer, "aggregate_projected", lambda block, rows, rng: summed.append(len(rows)) or aggregate(block, rows, rng)
    )
    both()
    assert mapped == [block.num_dst] and summed == [block.num_src] and block.num_dst < block.num_src


def test_other_settings_have_other_pieces(tmp_path: Path) -> None:
    def kept(**settings: Any) -> Path:
        semantic = case_of(settings=FullGraphSettings(**settings)).semantic
        return speeds_path(tmp_path, semantic, SIZES, built=True)

    assert len({kept(), kept(hybrid=False), kept(mode="device")}) == 3
    assert kept(ranks=2, timeout=7) == kept()


def test_other_chunks_have_other_pieces(tmp_path: Path) -> None:
    """A visit is timed over chunks of the training's size."""
    semantic = case_of().semantic

    def kept(parts: int, each: int) -> Path:
        chunks = ChunksConfig(table=ChunksTable(chunks_per_part=each), seed=0)
        tables = {"partitions": PartitionsConfig(method="ldg", parts=parts, seed=0), "chunks": chunks}
        return speeds_path(tmp_path, semantic, replace(SIZES, configs=tables), built=True)

    assert len({kept(2, 2), kept(2, 4), kept(4, 2)}) == 3
    assert kept(1, 1) == speeds_path(tmp_path, semantic, SIZES, built=True)


def test_a_model_that_cannot_be_cut_has_no_visits() -> None:
    case = case_of(norm="batch", settings=FullGraphSettings(mode="device"))
    model = build_model(case.semantic.train, SIZES.width, 3, 1)
    assert isinstance(model, LayeredModel) and visit_seconds(case, model, 0.0, 1 << 20) == {}


def test_a_graph_may_have_fewer_nodes_than_the_chunks() -> None:
    few = replace(SIZES, num_nodes=3, num_edges=6, num_train=2)
    case = case_of(few)
    model = build_model(case.semantic.train, SIZES.width, 3, 1)
    assert isinstance(model, LayeredModel) and min(visit_seconds(case, model, 0.0, 1 << 20).values()) > 0


def test_visits_are_timed_over_chunks_like_those_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planned for the edges and rows of the timed chunks is taken off, and no less remains than a chunk of a few nodes takes."""
    asked: list[_Shape] = []

    def timed(case: Case, model: LayeredModel, shape: _Shape) -> tuple[float, float]:
        asked.append(shape)
        return (0.25, 0.0) if shape.nodes == CHUNK_NODES else (2.0, 1e6)

    monkeypatch.setattr(visits, "_seconds_and_bytes", timed)
    case = replace(case_of(), speeds=Speeds(copy_rate=8e6))
    model: Any = build_model(case.semantic.train, SIZES.width, 3, 1)
    assert visit_seconds(case, model, 0.5, 1 << 20) == {1: 2.0 - 0.25 - 0.25}
    assert asked == [_Shape(1), _Shape(1, 300 // STEPS, 8, scattered=True)]
    assert visit_seconds(case, model, 100.0, 1 << 20) == {1: 0.25}, "a visit takes no less"
    asked.clear()
    assert visit_seconds(case, model, 0.5, 100) == {1: 0.25} and asked == [_Shape(1)], "no memory for more"


@pytest.mark.parametrize("scattered", [False, True])
def test_the_chunks_of_timed_passes_have_the_shape_that_is_asked_for(scattered: bool) -> None:
    shape = _Shape(2, 40, 6, scattered)
    model: Any = build_model(case_of().semantic.train, SIZES.width, 3, 1)
    steps = _FewSteps(_small_graph(160, 6, model), shape)
    ids = [steps.step(part, j).dst_ids for part in range(2) for j in range(STEPS)]
    assert [len(each) for each in ids] == [40] * 4 and sorted(np.concatenate(ids)) == list(range(160))
    assert [consecutive(each) for each in ids] == [not scattered] * 4


def test_each_chunk_is_visited_once_in_an_epoch() -> None:
    case, speeds = case_of(), Speeds(layers={1: 0.5}, whole={1: 0.25}, edges=float(SIZES.num_edges))
    visited = replace(speeds, visit={1: 0.125, 2: 2.0})
    found = volumes(case)
    plain, visits = (pass_seconds(replace(case, speeds=each))[1] for each in (speeds, visited))
    assert found.parts == 1 and visits - plain == pytest.approx(0.125 * found.steps)
    uncut = case_of(settings=FullGraphSettings(mode="device"))
    assert pass_seconds(replace(uncut, speeds=visited)) == pass_seconds(replace(uncut, speeds=speeds))
