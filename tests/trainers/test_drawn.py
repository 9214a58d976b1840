"""Training on neighbours that are drawn by weight or by walks: the laws of execution, stored batches, evaluation, hotness and predict."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.samples.config import SamplesExecution, SamplesTable, samples_config
from graphmill.assets.samples.read import open_samples
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.storage.store import Store
from graphmill.kernels.blocks.coefficients import gcn_weights, sum_weights
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.types import BatchKey
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.rows.source import MemorySource
from graphmill.trainers.run import train_table
from tests.assets.sampling_tables.tables import with_tables
from tests.trainers.graphs import random_graph_artifacts, random_topology
from tests.trainers.inference.infer import infer_exact
from tests.trainers.runs import TABLE, WALKS, WEIGHTED

REPLACED = SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=2, replace=True)
SAMPLINGS = {
    "weighted": WEIGHTED,
    "weighted replace": replace(WEIGHTED, replace=True),
    "walks": WALKS,
    "uniform replace": REPLACED,
}


def inputs_of(home, sampling):
    """The artifacts that decide a model's weights, on the graph of `train_small`."""
    artifacts = random_graph_artifacts(home)
    return artifacts, with_tables(home, artifacts.inputs, sampling)


def train(home, sampling, stored=False, **options):
    _, inputs = inputs_of(home, sampling)
    reads = {"samples": store_samples(home, sampling, inputs)} if stored else {}
    table = TrainTable(**(TABLE | options | ({"samples": "stored"} if stored else {})))
    return train_table(Store(home), inputs, table, sampling, 5, reads=reads, report=lambda line: None)[0]


def store_samples(home, sampling, inputs, threads=2):
    config = samples_config(SamplesTable(), sampling, 5)
    given = {role: inputs[role] for role in SAMPLES.inputs(config)}
    return materialize(Store(home), SAMPLES, config, SamplesExecution(threads=threads, workers=1), given)


def content(artifact):
    return {name: artifact.files[name]["digest"] for name in ("weights.safetensors", "metrics.jsonl")}


@pytest.mark.parametrize("name", [name for name in SAMPLINGS if "replace" in name])
def test_models_are_bit_equal_under_any_execution_and_from_stored_batches(tmp_path, name):
    """Weighted and by walks, without replacement: tests/laws/test_trainer_pairs.py."""
    sampling, model = SAMPLINGS[name], "sage"
    runs = [
        train(tmp_path / "1", sampling, model=model, samplers=1),
        train(tmp_path / "2", sampling, model=model, samplers=3, features="memory"),
        train(tmp_path / "3", sampling, model=model, stored=True),
    ]
    assert content(runs[0]) == content(runs[1]) == content(runs[2])
    assert len({run.version for run in runs}) == 1


@pytest.mark.parametrize("name", ["weighted", "walks"])
@pytest.mark.parametrize("model", ["gcn", "gin", "gat", "pinsage"])
def test_every_model_trains(tmp_path, name, model):
    made = train(tmp_path, SAMPLINGS[name], model=model, epochs=2)
    assert np.isfinite(made.summary["numbers"]["loss"])


@pytest.mark.parametrize("name", SAMPLINGS)
def test_stored_batches_are_those_of_the_sampler(tmp_path, name):
    artifacts, inputs = inputs_of(tmp_path, SAMPLINGS[name])
    samples = open_samples(store_samples(tmp_path, SAMPLINGS[name], inputs))
    graph, drawing = artifacts.open(), open_drawing(SAMPLINGS[name], inputs)
    sampler = drawing.sampler(graph.topology, seed=5)
    for epoch, step in product(range(2), range(2)):
        seeds, stored = samples.batch(epoch, step)
        for a, b in zip(stored, sampler.sample(BatchKey(0, epoch, step), seeds, transpose="none"), strict=True):
            assert a.indices.tobytes() == b.indices.tobytes() and a.src_ids.tobytes() == b.src_ids.tobytes()
            assert (a.share is None) == (b.share is None)
            assert a.share is None or a.share.tobytes() == b.share.tobytes()


def test_samples_of_other_tables_or_walks_are_refused(tmp_path):
    _, inputs = inputs_of(tmp_path, WEIGHTED)
    samples = store_samples(tmp_path, WEIGHTED, inputs)
    other = replace(WEIGHTED, empty_rows="uniform")
    _, inputs = inputs_of(tmp_path, other)
    table = TrainTable(**(TABLE | {"samples": "stored"}))
    with pytest.raises(InputError, match="is not what is needed here"):
        train_table(Store(tmp_path), inputs, table, other, 5, reads={"samples": samples}, report=lambda line: None)
    walked = store_samples(tmp_path, WALKS, inputs)
    with pytest.raises(InputError, match="is not what is needed here"):
        longer = replace(WALKS, length=4)
        train_table(
            Store(tmp_path), inputs_of(tmp_path, longer)[1], table, longer, 5, reads={"samples": walked}, report=print
        )


def test_exact_evaluation_is_the_weighted_mean_over_all_neighbours(tmp_path):
    """Against dense matrices, for two layers of sage, in one range and in many."""
    artifacts, inputs = inputs_of(tmp_path, WEIGHTED)
    graph, drawing = artifacts.open(), open_drawing(WEIGHTED, inputs)
    topology, table = graph.topology, TrainTable(**(TABLE | {"model": "sage"}))
    model = build_model(table.config, graph.features.width, graph.num_classes, seed=1)
    weights = np.zeros((topology.num_nodes, topology.num_nodes))
    for v in range(topology.num_nodes):
        row = topology.indices[topology.indptr[v] : topology.indptr[v + 1]]
        degree = topology.out_degree[row].astype(float)
        np.add.at(weights[v], row, degree / max(1, degree.sum()))
    matrix = torch.from_numpy(weights).float()
    h = torch.from_numpy(np.array(graph.features.open())).float()
    with torch.no_grad():
        for index, layer in enumerate(model.layers):
            h = layer.own(h) + layer.neighbours(matrix @ h)
            h = h if index + 1 == len(model.layers) else h.relu()
    for workspace in (2**30, 2**15):
        found = infer_exact(
            model, topology, MemorySource(graph.features), workspace, 2, folder=tmp_path, drawing=drawing
        )
        torch.testing.assert_close(found, h, rtol=1e-4, atol=1e-4)
    plain = infer_exact(model, topology, MemorySource(graph.features), 2**30, 2)
    assert not torch.allclose(plain, h, atol=1e-3)


def test_exact_evaluation_of_walks_repeats_itself_and_has_ten_times_the_paths(tmp_path):
    artifacts, inputs = inputs_of(tmp_path, WALKS)
    graph, drawing = artifacts.open(), open_drawing(WALKS, inputs)
    table = TrainTable(**(TABLE | {"model": "pinsage"}))
    model = build_model(table.config, graph.features.width, graph.num_classes, seed=1)
    found = [
        infer_exact(
            model, graph.topology, MemorySource(graph.features), workspace, threads, folder=tmp_path, drawing=drawing
        )
        for workspace, threads in ((2**30, 2), (2**30, 1), (2**15, 2))
    ]
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], found[2], rtol=1e-4, atol=1e-5)
    sampler = drawing.whole(graph.topology, 1)
    assert sampler.walks.paths == 40 and sampler.fanouts == (5,)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_equal_shares_are_the_coefficients_of_uniform_sampling(tmp_path, name):
    artifacts, inputs = inputs_of(tmp_path, SAMPLINGS[name])
    topology, drawing = artifacts.open().topology, open_drawing(SAMPLINGS[name], inputs)
    block = drawing.sampler(topology, seed=1).sample(BatchKey(0, 0, 0), np.arange(50))[-1]
    taken = block.end - block.start
    equal = replace(block, share=np.repeat(1 / np.maximum(taken, 1), taken).astype(np.float32))
    plain = replace(block, share=None)
    for mine, other in zip(
        gcn_weights(equal, topology.in_degree, topology.out_degree),
        gcn_weights(plain, topology.in_degree, topology.out_degree),
        strict=True,
    ):
        assert np.allclose(mine, other, rtol=1e-5)
    assert np.allclose(sum_weights(equal, topology.in_degree), sum_weights(plain, topology.in_degree), rtol=1e-5)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_hotness_is_the_same_bytes_at_any_number_of_threads(tmp_path, name):
    _, inputs = inputs_of(tmp_path, SAMPLINGS[name])
    config = hotness_config(HotnessTable(), SAMPLINGS[name], 3)
    given = {role: inputs[role] for role in HOTNESS.inputs(config)}
    made = [
        materialize(Store(tmp_path / str(threads)), HOTNESS, config, Threads(threads=threads), given)
        for threads in (1, 2)
    ]
    one, two = (open_hotness(each) for each in made)
    assert one.order.tobytes() == two.order.tobytes() and one.score.tobytes() == two.score.tobytes()
    # Estimates, not counts alone: they take more values.
    assert len(np.unique(one.score)) > len(np.unique(one.visits))


@pytest.mark.parametrize("name", ["sage", "gcn", "pinsage"])
def test_renaming_nodes_leaves_the_weighted_mean_of_all_neighbours_equal(name):
    """Law 7; tables and rows follow the new ids, so that masses are rounded for other neighbours."""
    topology = random_topology(num_nodes=60, num_edges=300, seed=4)
    rename, generator = np.random.default_rng(1).permutation(60), np.random.default_rng(2)
    renamed = random_topology(num_nodes=60, num_edges=300, seed=4, rename=rename)
    weights, x = generator.pareto(1.2, 60) * (generator.random(60) < 0.8), torch.randn(60, 5)
    model = build_model(TrainTable(**(TABLE | {"model": name})).config, 5, 4, seed=1)
    back, outs = np.argsort(rename), []
    for graph, own, rows, seeds in ((topology, weights, x, np.arange(60)), (renamed, weights[back], x[back], rename)):
        tables = build_alias(graph, own, of_nodes=True, empty="none")
        blocks = WeightedSampler(graph, tables, (-1, -1), seed=3).sample(BatchKey(0, 0, 0), seeds)
        attach_weights(blocks, graph, model.edge_weight)
        with torch.no_grad():
            outs.append(model(blocks, rows[blocks[0].src_ids], StepRandom(0, training=False)))
    assert float((outs[0] - outs[1]).norm()) <= 1e-5 * float(outs[0].norm())
