"""A pass over chunks has the loss and the gradients of a pass that is not cut, and moves the rows that the paper's formulas count."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphmill.trainers.record.ledger import Ledger
from tests.kernels.graphs import random_topology
from tests.trainers.techniques.fullgraph.made_steps import MadeSteps
from tests.trainers.techniques.fullgraph.passed import cut, made_model, uncut

MODES = ["vanilla", "p2p", "p2p+reuse"]
MODELS = [
    {"model": "gcn"}, {"model": "sage"}, {"model": "gin"}, {"model": "gat", "heads": 2, "attention_dropout": 0.3},
    {"model": "gcn", "residual": True, "norm": "layer"}, {"model": "gat", "residual": True},
    {"model": "sage", "input": "linear", "head": "linear", "jk": "cat"},
    {"model": "gin", "head": "linear", "jk": "max", "input_dropout": 0.2}, {"model": "gcn", "input": "linear", "input_dropout": 0.1},
]  # fmt: skip


def problem(num_nodes, num_edges, num_parts, chunks, seed, width=6, classes=3):
    generator = np.random.default_rng(seed)
    graph = random_topology(num_nodes, num_edges, seed=seed)
    x = generator.standard_normal((num_nodes, width)).astype(np.float32)
    labels = generator.integers(0, classes, num_nodes).astype(np.int32)
    train_ids = np.sort(generator.permutation(num_nodes)[: max(1, num_nodes // 2)])
    made = MadeSteps(graph, generator.integers(0, num_parts * chunks, num_nodes), num_parts, chunks)
    return graph, x, labels, train_ids, made


def with_its_terms(name, names):
    """Returns the parameters whose gradients are as large as the terms of a gradient that is a small rest of them, with their rounding.

    What `right` of GAT adds is the same for all edges of a row, and the softmax takes it out again but for LeakyReLU's bend; `left` has
    terms of the same size. `eps` of GIN is one number, the sum over all nodes and columns; so do the layer's other parameters.
    """
    layer, _, last = name.rpartition(".")
    if last == "right":
        return [f"{layer}.left"]
    return [other for other in names if last == "eps" and other.startswith(f"{layer}.")]


def assert_near(found, expected, bound):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(
            value.norm().item(), *(expected[other].norm().item() for other in with_its_terms(name, expected)), 1e-30
        )
        error = (found[name] - value).norm().item() / scale
        assert error <= bound or error * scale <= bound * 1e-3, f"{name}: {error:.2e}"


@settings(max_examples=40, deadline=None)
@example(
    MODELS[7], 3, 1, 2, "p2p+reuse", True, "float32", 126
)  # the gradient of one `eps` is 0 but for a ten-thousandth of its terms
@given(
    st.sampled_from(MODELS), st.integers(2, 4), st.integers(1, 4), st.integers(1, 8), st.sampled_from(MODES), st.booleans(),
    st.sampled_from(["float32", "float64"]), st.integers(0, 999),
)  # fmt: skip
def test_gradients_are_those_of_a_dense_pass(options, layers, parts, chunks, mode, hybrid, dtype, seed):
    graph, x, labels, train_ids, made = problem(40, 160, parts, chunks, seed)
    model = made_model(6, 3, layers=layers, hidden=8, dropout=0.4, dtype=dtype, **options)
    loss, expected = uncut(graph, x, labels, train_ids, model)
    found_loss, found = cut(graph, x, labels, train_ids, model, made, mode, hybrid=hybrid)
    bound = 1e-10 if dtype == "float64" else 1e-4 if options["model"] == "gat" and layers == 4 else 1e-5
    assert found_loss == pytest.approx(loss, rel=bound)
    assert_near(found, expected, bound)


@pytest.mark.parametrize("options", MODELS)
@pytest.mark.parametrize("mode", MODES)
def test_aggregates_cached_or_computed_again_and_shared_devices_have_equal_bits(options, mode):
    from graphmill.trainers.devices.logical import LogicalDevice

    graph, x, labels, train_ids, made = problem(60, 300, 4, 3, 1)
    model = made_model(6, 3, layers=3, hidden=8, dropout=0.4, **options)
    first = cut(graph, x, labels, train_ids, model, made, mode)
    # A device with a link gets rows while it computes; without one everything is copied in turn.
    for hybrid, devices, link in ((False, 4, None), (True, 1, None), (True, 2, 1e3), (False, 4, 1e3), (True, 4, 1e3)):
        on = [LogicalDevice(i, link_gbps=link) for i in range(devices)]
        loss, found = cut(graph, x, labels, train_ids, model, made, mode, devices=on, hybrid=hybrid)
        assert loss == first[0]
        for name, value in first[1].items():
            assert torch.equal(found[name], value), (name, hybrid, devices, link)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [{"model": "sage"}, {"model": "gat"}])
@pytest.mark.parametrize(("parts", "chunks"), [(1, 5), (3, 4), (4, 1)])
def test_the_ledger_counts_what_the_formulas_say(mode, options, parts, chunks):
    graph, x, labels, train_ids, made = problem(70, 300, parts, chunks, 2)
    model = made_model(6, 3, layers=3, hidden=8, **options)
    for hybrid in (True, False):
        ledger = Ledger()
        cut(graph, x, labels, train_ids, model, made, mode, hybrid=hybrid, ledger=ledger)
        volume = {"vanilla": made.v_ori, "p2p": made.v_p2p, "p2p+reuse": made.v_ru}[mode]
        moved = {
            (row["link"], row["kind"], row["phase"], row["layer"]): row["moved_bytes"] for row in ledger.rows()["moves"]
        }
        # A layer that narrows maps first, where the rows are: the last one, and of attention each but the first, which widens.
        for layer, width in enumerate((6, 8, 3)):
            sent = layer > 0  # features need no gradient
            assert moved["h2d", "neighbour", "forward", layer] == volume * width * 4
            again = not hybrid or options["model"] == "gat"
            assert moved.get(("h2d", "neighbour", "backward", layer), 0) == again * volume * width * 4
            assert moved.get(("d2h", "gradient", "backward", layer), 0) == sent * volume * width * 4
            # Rows of other parts that a chunk reads; with reuse, those that the step before had not.
            fetched = {
                "vanilla": 0,
                "p2p": sum(len(foreign(made, i, j)) for i in range(parts) for j in range(chunks)),
                "p2p+reuse": sum(len(mine) for of in made.steps for step in of for _, _, mine in step.fetch),
            }[mode]
            assert moved.get(("d2d", "neighbour", "forward", layer), 0) == fetched * width * 4
            assert moved.get(("d2d", "neighbour", "backward", layer), 0) == again * fetched * width * 4
            assert moved.get(("d2d", "gradient", "backward", layer), 0) == sent * fetched * width * 4


def foreign(made, part, step):
    """Nodes of other parts that a chunk reads."""
    block = made.steps[part][step].block
    read = block.src_ids[np.union1d(block.indices, block.dst_pos)]
    return read[made.part_of[read] != part]


def test_transfers_and_the_hosts_additions_are_phases_of_their_own():
    from graphmill.trainers.devices.logical import LogicalDevice
    from graphmill.trainers.record.ledger import STEP, Timeline, hidden_share

    graph, x, labels, train_ids, made = problem(60, 300, 2, 4, 1)
    model = made_model(6, 3, layers=2, hidden=8, model="sage")
    for link, loaders in ((None, set()), (1e3, {"loader 0", "loader 1"})):
        timeline = Timeline()
        timeline.start(1)
        devices = [LogicalDevice(i, link_gbps=link) for i in range(2)]
        cut(graph, x, labels, train_ids, model, made, devices=devices, timeline=timeline)
        timeline.finish()
        busy = timeline.record["busy_seconds"]
        assert loaders == {lane for lane in busy if lane.startswith("loader")}
        assert busy[STEP]["accumulate"] > 0
        for device in ("device 0", "device 1"):
            assert {"compute", "d2d", "d2h"} <= set(busy[device])
        assert all(busy[lane]["h2d"] > 0 for lane in loaders)
        share = hidden_share(timeline.record)
        assert (share is None) if link is None else 0 <= share <= 1


def test_an_isolated_node_an_empty_chunk_and_a_hub():
    graph, x, labels, train_ids, _ = problem(30, 90, 1, 1, 3)
    chunk_of = np.zeros(30, int)
    chunk_of[3] = 5
    made = MadeSteps(graph, chunk_of, 2, 3)
    model = made_model(6, 3, layers=2, hidden=8, model="gcn")
    loss, expected = uncut(graph, x, labels, train_ids, model)
    found_loss, found = cut(graph, x, labels, train_ids, model, made)
    assert found_loss == pytest.approx(loss, rel=1e-5)
    assert_near(found, expected, 1e-5)
