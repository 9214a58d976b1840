"""Law 2 for full-graph training: for any parts, chunks, schedule, mode and devices it equals a pass that is not cut.

Norm-wise per parameter: 1e-5 in float32 (GAT with 4 layers 1e-4), 1e-10 in float64, dropout on.
"""

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.trainers.devices.logical import LogicalDevice
from tests.graphs import build_graph
from tests.kernels.graphs import random_topology
from tests.trainers.techniques.fullgraph.passed import KernelSteps, cut, made_model, uncut
from tests.trainers.techniques.fullgraph.passes.test_whole_pass import MODES, assert_near

MODELS = {"gcn": {}, "sage": {}, "gin": {}, "gat": {"heads": 2, "attention_dropout": 0.3}}
DATA = "GRAPHMILL_TEST_DATA"


def bound_of(model, layers, dtype):
    return 1e-10 if dtype == "float64" else 1e-4 if model == "gat" and layers == 4 else 1e-5


def small(seed, num_nodes=40, num_edges=160, width=6):
    generator = np.random.default_rng(seed)
    graph = random_topology(num_nodes, num_edges, seed=seed)
    x = generator.standard_normal((num_nodes, width)).astype(np.float32)
    labels = generator.integers(0, 3, num_nodes).astype(np.int32)
    return graph, x, labels, np.sort(generator.permutation(num_nodes)[: num_nodes // 2])


def statistics(model):
    """The running statistics of a model, none without a batch normalisation."""
    return {name: buffer.clone() for name, buffer in model.named_buffers() if "running" in name}


def assert_dense(
    problem, model, layers, parts, chunks, mode, devices, dtype, hybrid, link, hidden=8, classes=3, **options
):
    graph, x, labels, train_ids = problem
    built = made_model(
        x.shape[1], classes, layers=layers, hidden=hidden, dropout=0.4, dtype=dtype, model=model,
        **{**MODELS.get(model, {}), **options},
    )  # fmt: skip
    before = {name: value.clone() for name, value in built.state_dict().items()}
    (loss, expected), moved = uncut(graph, x, labels, train_ids, built), statistics(built)
    built.load_state_dict(before)
    part_of = np.random.default_rng(layers).integers(0, parts, graph.num_nodes).astype(np.int32)
    on = [LogicalDevice(i, link_gbps=link) for i in range(devices)]
    found_loss, found = cut(
        graph, x, labels, train_ids, built, KernelSteps(graph, part_of, parts, chunks), mode, devices=on, hybrid=hybrid
    )
    bound = bound_of(model, layers, dtype)
    assert found_loss == pytest.approx(loss, rel=bound)
    assert_near(found, expected, bound)
    assert_near(statistics(built), moved, bound)


def divisors(parts):
    return [count for count in range(1, parts + 1) if parts % count == 0]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_drawn_graphs_and_cuts(data):
    parts = data.draw(st.integers(1, 4))
    assert_dense(
        small(data.draw(st.integers(0, 999))), data.draw(st.sampled_from(list(MODELS))), data.draw(st.integers(2, 4)), parts,
        data.draw(st.integers(1, 8)), data.draw(st.sampled_from(MODES)), data.draw(st.sampled_from(divisors(parts))),
        data.draw(st.sampled_from(["float32", "float64"])), data.draw(st.booleans()), data.draw(st.sampled_from([None, 1e3])),
    )  # fmt: skip


NORMED = ("gcn", "sage", "gin", "gat", "pinsage")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_batch_normalisation_is_over_the_rows_of_all_chunks(data):
    parts = data.draw(st.integers(1, 4))
    options = {
        "residual": data.draw(st.sampled_from([False, True, "linear"])),
        "activation": data.draw(st.sampled_from(["relu", "elu"])),
    }
    assert_dense(
        small(data.draw(st.integers(0, 999))), data.draw(st.sampled_from(NORMED)), data.draw(st.integers(2, 4)), parts,
        data.draw(st.integers(1, 8)), data.draw(st.sampled_from(MODES)), data.draw(st.sampled_from(divisors(parts))),
        "float64", data.draw(st.booleans()), data.draw(st.sampled_from([None, 1e3])), norm="batch", **options,
    )  # fmt: skip


@pytest.mark.slow("all parts, chunks, modes, devices and dtypes of each model with 2 to 4 layers")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_the_whole_matrix(model, layers):
    problem = small(layers)
    for parts, chunks, mode, dtype in product(range(1, 5), range(1, 9), MODES, ("float32", "float64")):
        for devices in divisors(parts):
            hybrid = (chunks + devices) % 2 == 0
            assert_dense(problem, model, layers, parts, chunks, mode, devices, dtype, hybrid, None)


@pytest.mark.parametrize("model", MODELS)
def test_photo(tmp_path, model):
    found = sorted(Path(os.environ.get(DATA, "/nowhere")).glob("photo*.npz"))
    if not found:
        pytest.skip(f"photo is not in the folder {DATA}")
    artifacts = build_graph(Store(tmp_path), config_class("npz")(source="npz", path=found[0], undirected=True))
    graph, x = artifacts.open(), np.array(artifacts.features.array("rows"), np.float32)
    problem = (graph.topology, x, np.array(graph.labels), np.array(graph.train_ids))
    assert_dense(problem, model, 3, 2, 3, "p2p+reuse", 2, "float32", True, None, hidden=16, classes=graph.num_classes)
