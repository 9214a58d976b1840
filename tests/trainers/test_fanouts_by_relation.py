"""Fan-outs per relation in every trainer: batches that come in any way are equal, and what cannot draw them says so."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.graph.read import open_graph
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.storage.names.user_code import Reference
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import BatchKey
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers import graphs
from tests.trainers.runs import content, losses, train_packed, train_parts, train_small

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
TABLES = SamplingConfig(fanouts=({"relation 0": 2, "relation 2": -1}, {"relation 1": 1, "*": 2}), batch_size=32)


@pytest.fixture(autouse=True)
def _relations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "RELATIONS", 3)


def test_blocks_have_the_numbers_of_each_relation(tmp_path: Path) -> None:
    artifact = graphs.random_graph_artifacts(tmp_path).graph
    graph, drawing = open_graph(artifact), open_drawing(TABLES, {"graph": artifact})
    assert drawing is not None
    blocks = drawing.sampler(graph.topology, seed=3).sample(BatchKey(0, 0, 0), graph.train_ids[:50])
    for block, numbers in zip(blocks[::-1], ((2, 0, -1), (2, 1, 2)), strict=True):
        assert block.edge_type is not None and graph.topology.edge_types is not None
        for i, v in enumerate(block.dst_ids):
            row = graph.topology.edge_types[graph.topology.indptr[v] : graph.topology.indptr[v + 1]]
            there = np.bincount(row, minlength=3)
            expected = [count if most < 0 else min(count, most) for count, most in zip(there, numbers, strict=True)]
            assert np.bincount(block.edge_type[block.start[i] : block.end[i]], minlength=3).tolist() == expected


def test_batches_that_come_in_any_way_end_with_equal_bits(tmp_path: Path) -> None:
    """Of R-GCN: tests/laws/test_typed_trainers.py."""
    model: dict[str, Any] = {"model": "sage"}
    packed = build_packed(tmp_path, epochs=2, sampling=TABLES)
    one, other = (
        train_packed(packed, tmp_path / name, name, sampling=TABLES, **model) for name in ("minibatch", "disk")
    )
    assert content(one)["weights.safetensors"] == content(other)["weights.safetensors"]
    assert losses(one) == losses(other) and losses(one)[-1] < losses(one)[0]
    online = [train_small(tmp_path / str(count), sampling=TABLES, samplers=count, **model) for count in (1, 3)]
    shared = train_small(tmp_path / "shared", sampling=TABLES, trainer="factored", **model)
    parts = train_parts(tmp_path / "parts", 1, sampling=TABLES, **model)
    assert parts is not None and losses(parts) == losses(online[0])
    assert len({content(each)["weights.safetensors"] for each in (*online, shared)}) == 1
    plain = train_small(tmp_path / "plain", **model)
    assert losses(plain) != losses(online[0])


def test_stored_batches_equal_those_that_are_drawn(tmp_path: Path) -> None:
    packed = build_packed(tmp_path, epochs=2, sampling=TABLES)
    graph, samples = open_graph(packed.graph), open_samples(packed.samples)
    drawing = open_drawing(TABLES, {"graph": packed.graph})
    assert drawing is not None
    sampler = drawing.sampler(graph.topology, seed=samples.artifact.config["seed"])
    for epoch, step in ((0, 0), (1, 3)):
        record = samples.record(epoch, step)
        drawn = sampler.sample(BatchKey(0, epoch, step), record.blocks[-1].dst_ids)
        for stored, block in zip(record.blocks, drawn, strict=True):
            for name in ("start", "end", "indices", "src_ids", "edge_type"):
                assert np.array_equal(getattr(stored, name), getattr(block, name)), name


@pytest.mark.parametrize("replace", [False, True])
def test_a_device_draws_the_batches_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool) -> None:
    sampling = dataclasses.replace(TABLES, replace=replace)
    on_cpu = train_small(tmp_path / "cpu", sampling=sampling, model="rgcn")
    stand_in(monkeypatch)
    found = [
        train_small(tmp_path / topology, sampling=sampling, model="rgcn", device="cuda", topology=topology)
        for topology in ("host", "device", "uva")
    ]
    assert len({content(each)["weights.safetensors"] for each in found}) == 1
    np.testing.assert_allclose(losses(found[0]), losses(on_cpu), rtol=1e-4)


def test_evaluation_by_samples_and_fanouts_of_a_table(tmp_path: Path) -> None:
    given = train_small(tmp_path / "given", sampling=TABLES, model="rgcn", eval="sampled")
    plain = SamplingConfig(fanouts=(4, 3), batch_size=32)
    own = train_small(tmp_path / "own", sampling=plain, model="rgcn", eval="sampled", fanouts=TABLES.fanouts)
    assert content(own)["weights.safetensors"] == content(given)["weights.safetensors"]
    assert own.version == given.version


def test_hotness_ranks_by_counts_alone(tmp_path: Path) -> None:
    artifact = graphs.random_graph_artifacts(tmp_path).graph
    scores = []
    for policy in ("bayes", "presample"):
        config = hotness_config(HotnessTable(policy=policy, rounds=2, evaluate_epochs=1), TABLES, 3)  # pyright: ignore
        made = materialize(Store(tmp_path), HOTNESS, config, Threads(threads=1), {"graph": artifact})
        scores.append(np.argsort(np.asarray(made.array("order"))))
    assert scores[0].tolist() == scores[1].tolist()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"model": "gcn"}, 'model = "gcn" sums neighbours'),
        ({"model": "gin"}, 'model = "gin" sums neighbours'),
        ({"model": "sage", "aggregator": "sum"}, 'model = "sage" with aggregator = "sum" sums neighbours'),
    ],
)
def test_models_that_sum_a_uniform_row_are_refused(tmp_path: Path, table: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        train_small(tmp_path, sampling=TABLES, **table)


def test_own_layers_that_sum_a_uniform_row_are_refused(tmp_path: Path) -> None:
    text = """
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.gin import GinLayer

def summed(in_width, num_classes, config):
    return [GinLayer(in_width, 4, LayerOptions()), GinLayer(4, num_classes, LayerOptions(last=True))]
"""
    (tmp_path / "summed_by_relation.py").write_text(text)
    with pytest.raises(InputError, match="asks for edge weights 'sum', which suppose that rows are drawn uniformly"):
        train_small(tmp_path, sampling=TABLES, model=Reference("summed_by_relation:summed", tmp_path))


@pytest.mark.parametrize("scheme", ["unfused", "vanilla"])
def test_schemes_of_one_number_are_refused(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(InputError, match=f'scheme = "{scheme}" draws one number of neighbours per layer'):
        train_parts(tmp_path, 1, sampling=TABLES, model="sage", settings={"scheme": scheme})


def test_relations_that_a_graph_lacks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SamplingConfig(fanouts=({"relatoin 1": 2}, 3), batch_size=32)
    with pytest.raises(InputError, match=r"names the relation 'relatoin 1'.*did you mean relation 1\?") as error:
        train_small(tmp_path, sampling=wrong, model="rgcn")
    assert error.value.remedy == "its relations are: relation 0, relation 1, relation 2"
    monkeypatch.setattr(graphs, "RELATIONS", 0)
    with pytest.raises(InputError, match="the edges of the graph have no relations"):
        train_small(tmp_path / "none", sampling=wrong)
