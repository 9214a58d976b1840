"""A pass holds no more on a device than the prediction that the chunks' counts give, and less the more chunks there are."""

import gc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.chunks.counts import StepCounts, count_step
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import TableSource
from graphmill.trainers.techniques.fullgraph.memory import Way, device_bytes, largest
from graphmill.trainers.techniques.fullgraph.passes import row_passes
from graphmill.trainers.techniques.fullgraph.passes.replicas import Replicas
from graphmill.trainers.techniques.fullgraph.rows.host_rows import Place
from tests.trainers.techniques.fullgraph.passed import cut, made_model
from tests.trainers.techniques.fullgraph.passes.test_whole_pass import MODES, problem

FORWARD = {"feed_forward": 1.5, "input": "linear", "head": "linear", "norm": "layer"}
NEWER = [
    {"aggregator": "max"}, {"aggregator": "gcn", "residual": "linear"}, {"aggregator": "sum", "activation": "tanh"},
    FORWARD, FORWARD | {"model": "gcn"}, FORWARD | {"model": "gat", "heads": 2}, FORWARD | {"aggregator": "max"},
]  # fmt: skip
NORMED = [
    {"norm": "batch"},
    {"model": "gcn", "norm": "batch", "residual": "linear"},
    {"model": "gat", "heads": 2, "norm": "batch"},
]
"""Models whose norms are passes of their own."""
MODELS = [
    {"model": "gcn"}, {"model": "sage", "norm": "layer"}, {"model": "gin", "residual": True},
    {"model": "gat", "heads": 2, "attention_dropout": 0.3}, {"model": "gat", "heads": 4, "residual": True},
    {"model": "sage", "input": "linear", "head": "linear", "jk": "cat"}, {"model": "gcn", "input_dropout": 0.2},
    {"model": "gcn", "dtype": "float64"}, {"model": "gcn", "head": "linear"}, {"model": "pinsage"},
    {"model": "pinsage", "norm": "layer", "residual": True}, *NORMED, *NEWER,
]  # fmt: skip
BOUND = 1.05


def measured(options, parts, chunks, devices, *, mode="p2p+reuse", hybrid=True, link=None, width=20):
    """Returns the peak bytes of a pass, and what was predicted."""
    graph, x, labels, train_ids, made = problem(600, 2400, parts, chunks, 1, width=width)
    counts = [[count_step(made.step(i, j)) for i in range(parts)] for j in range(chunks)]
    chosen = {"layers": 3, "hidden": 32, "dropout": 0.3} | options
    model = made_model(width, 3, **chosen)
    on = [LogicalDevice(i, link_gbps=link) for i in range(devices)]
    gc.collect()
    cut(graph, x, labels, train_ids, model, made, mode, devices=on, hybrid=hybrid, booked=True)
    way = Way(hybrid=hybrid, parts=parts // devices, overlap=link is not None)
    config = TrainConfig(trainer="fullgraph", threads=1, **chosen)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    predicted = device_bytes(config, width, 3, num_parameters, largest(StepCounts.of(np.array(counts)), mode), way)
    return max(device.peak["total"] for device in on), predicted


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from([(1, 1, 1), (1, 6, 1), (4, 2, 4), (4, 3, 1), (2, 4, 2)]),
    st.sampled_from(MODES), st.booleans(), st.sampled_from([None, 1e3]), st.sampled_from([20, 100]),
)  # fmt: skip
def test_the_peak_is_within_the_prediction(options, shape, mode, hybrid, link, width):
    peak, predicted = measured(options, *shape, mode=mode, hybrid=hybrid, link=link, width=width)
    assert peak <= BOUND * predicted


@pytest.mark.parametrize("options", [*NEWER, *NORMED], ids=str)
@pytest.mark.parametrize("link", [None, 1e3])
def test_a_layer_that_is_computed_again_is_predicted_so(options, link):
    for hybrid in (True, False):
        peak, predicted = measured(options, 2, 3, 1, hybrid=hybrid, link=link)
        assert peak <= BOUND * predicted <= 4 * peak


@pytest.mark.parametrize("model", ["gcn", "gat"])
@pytest.mark.parametrize("link", [None, 1e3])
def test_more_chunks_take_less(model, link):
    found = [measured({"model": model}, 1, chunks, 1, link=link) for chunks in (1, 2, 4, 8, 16)]
    for peaks in zip(*found, strict=True):
        assert list(peaks) == sorted(peaks, reverse=True) and len(set(peaks)) == len(peaks)
    # Figure 10: four times the chunks take 51 to 65 % less where neighbours are near; here they are drawn, and a buffer shrinks less.
    assert found[-1][0] < found[0][0] / 2


class Noted(LogicalDevice):
    """Notes the bytes of all that is taken of it."""

    def __init__(self):
        super().__init__()
        self.taken = []

    def alloc(self, shape, dtype, purpose):
        found = super().alloc(shape, dtype, purpose)
        self.taken.append(found.nbytes)
        return found


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 200), st.integers(1, 9), st.integers(1, 3000), st.booleans(), st.booleans())
def test_features_enter_a_buffer_without_a_second_copy_of_them_all(data, count, width, window, mapped, placed):
    """Rows of a table that is read as it lies go to their places at once, others through a window."""
    x = np.random.default_rng(count).standard_normal((count + 5, width)).astype(np.float32)
    ids = np.sort(np.array(data.draw(st.permutations(range(len(x))))[:count]))
    places = np.array(data.draw(st.permutations(range(count))), np.int32) if placed else None
    device = Noted()
    replicas = Replicas(made_model(width, 3, hidden=4), [Place(part=0, device=device, several=False)])
    out = torch.zeros(count, width)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_passes, "FILL_BYTES", window)
        rows = row_passes.InputRows(TableSource(x, mapped, 1), replicas, "float32")
    assert rows.loads_to(device)
    device.taken.clear()
    found, crossed = rows.load(ids, device, Ledger(), out, places)
    assert found is out and crossed == count * width * 4
    np.testing.assert_array_equal(out.numpy()[slice(None) if places is None else places], x[ids])
    assert sum(device.taken) <= (max(window, 4 * width) if mapped else 0)
