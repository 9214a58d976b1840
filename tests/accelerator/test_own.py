"""Users' own models and sampling functions on an accelerator: the CPU's weights within rounding, the same bits every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.storage.names.user_code import Reference
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.accelerator.places import Place
from tests.accelerator.test_training import assert_booked, assert_close, moves
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.models.test_own import written
from tests.trainers.runs import (
    SAMPLING,
    Stops,
    content,
    train_fresh,
    train_packed,
    train_parts,
    train_small,
    train_whole,
)

CODE = """
import torch
from torch import nn
import graphmill

class Attending(nn.Module):
    # A layer of the public functions: a sum, attention and keyed dropout.
    cacheable, reads_own, edge_weight = False, True, None
    def __init__(self, in_width, out_width, last):
        super().__init__()
        self.own, self.map = nn.Linear(in_width, out_width), nn.Linear(in_width, out_width)
        self.left, self.right, self.last = nn.Linear(in_width, 1), nn.Linear(in_width, 1), last
    def aggregate(self, block, h_src, rng):
        own = h_src[: block.num_dst] if block.dst_pos is None else h_src[torch.as_tensor(block.dst_pos).long()]
        rows = self.map(h_src)
        return graphmill.attend(block, rows, self.left(h_src), self.right(own)) + graphmill.aggregate(block, rows, "mean")
    def update(self, agg, h_dst, rng):
        h = self.own(h_dst) + agg
        return h if self.last else rng.dropout(h.relu(), 0.3)

def layers(in_width, num_classes, config):
    return [Attending(in_width, 8, False), Attending(8, num_classes, True)]

class Graph(nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.first, self.last = nn.Linear(in_width, 8), nn.Linear(8, num_classes)
    def step(self, x, edge_index):
        source, destination = edge_index
        counts = x.new_zeros(len(x)).index_add(0, destination, x.new_ones(len(source))).clamp(min=1)
        return x + torch.zeros_like(x).index_add(0, destination, x[source]) / counts[:, None]
    def forward(self, x, edge_index):
        return self.step(self.last(self.step(self.first(x), edge_index).relu()), edge_index)

class Normed(Graph):
    # With a buffer, the running mean of hidden rows. (A simulated device does not write the statistics of nn.BatchNorm1d.)
    def __init__(self, in_width, num_classes, config):
        super().__init__(in_width, num_classes, config)
        self.register_buffer("mean", torch.zeros(8))
    def forward(self, x, edge_index):
        h = self.step(self.first(x), edge_index)
        if self.training:
            self.mean.lerp_(h.detach().mean(0), 0.1)
        return self.step(self.last((h - self.mean).relu()), edge_index)

class Blocks(Graph):
    def forward(self, blocks, x):
        for block, layer in zip(blocks, (self.first, self.last)):
            source, destination = block.edge_index
            h = layer(x)
            x = h[: block.size[1]] + h.new_zeros(block.size[1], h.shape[1]).index_add(0, destination, h[source])
        return x

def first_ones(topology, node_ids, fanout, random):
    import numpy as np
    rows = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]][:fanout] for v in node_ids]
    return np.array([len(row) for row in rows], int), np.concatenate([*rows, topology.indices[:0]])
"""
WEIGHTS = "weights.safetensors"
MODELS: dict[str, dict[str, Any]] = {"layers": {}, "Graph": {}, "Normed": {}, "Blocks": {"blocks": "pyg"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `CODE`, in a module that Python loads once."""
    return written(tmp_path_factory.mktemp("on_device"), "on_device", CODE)


def options(folder: Path, name: str) -> dict[str, Any]:
    return {"model": Reference(f"on_device:{name}", folder), "epochs": 2, **MODELS[name]}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("evaluated", ["exact", "sampled"])
def test_minibatch_ends_with_the_weights_of_the_cpu(
    tmp_path: Path, place: Place, folder: Path, name: str, evaluated: str
) -> None:
    more = options(folder, name) | {"eval": evaluated}
    on_cpu = train_small(tmp_path / "cpu", **more)
    place.begin()
    found = train_small(tmp_path / "one", device="cuda", **more)
    crossed = place.crossed()
    assert_close(found, on_cpu)
    assert content(found) == content(train_small(tmp_path / "two", device="cuda", **more))
    # A kernel reads the rows of batches over the bus; layers are evaluated range by range, with copies of rows.
    besides = moves(found.run_record()["traffic_besides_batches"], "h2d")
    by_batches = name != "layers" or evaluated == "sampled"
    assert_booked(found, crossed, pulled=besides["feature"] if by_batches else 0)


def test_stored_batches_and_packed_rows_train_them(tmp_path: Path, place: Place, folder: Path) -> None:
    packed = build_packed(tmp_path / "packed", epochs=2)
    for name in MODELS:
        more = options(folder, name) | {"device": "cuda"}
        ways = {"disk": {"trainer": "disk"}, "stored": {"samples": "stored"}, "online": {}}
        found = {
            content(train_packed(packed, tmp_path / f"{name} {way}", **({"trainer": "minibatch"} | keys | more)))[
                WEIGHTS
            ]
            for way, keys in ways.items()
        }
        assert len(found) == 1, name


@pytest.mark.parametrize("name", MODELS)
def test_who_samples_changes_no_bit(tmp_path: Path, place: Place, folder: Path, name: str) -> None:
    more = options(folder, name) | {"device": "cuda", "features": "memory"}
    found = [train_small(tmp_path / where, topology=where, **more) for where in ("host", "uva", "device")]
    assert len({content(each)[WEIGHTS] for each in found}) == 1


@pytest.mark.parametrize("name", ["layers", "Graph", "Blocks"])
@pytest.mark.parametrize("trainer", ["factored", "distributed"])
def test_other_trainers_of_mini_batches_have_the_weights_of_minibatch(
    tmp_path: Path, place: Place, folder: Path, name: str, trainer: str
) -> None:
    """On several devices, and in one part."""
    more = options(folder, name) | {"device": "cuda"}
    by_one = train_small(tmp_path / "one", **more)
    if trainer == "factored":
        with place.devices(2):
            found = train_small(tmp_path / "two", trainer=trainer, settings=FactoredSettings(trainers=2), **more)
    else:
        found = train_parts(tmp_path / "two", 1, **more)
    assert content(found)[WEIGHTS] == content(by_one)[WEIGHTS]


@pytest.mark.parametrize("name", ["layers", "Graph", "Blocks", "Normed"])
def test_the_whole_graph_trains_them(tmp_path: Path, place: Place, folder: Path, name: str) -> None:
    """Uncut, and in chunks, cut between layers; but for one that changes a buffer."""
    more = options(folder, name) | {"eval_every": 0}  # the weights of the last epoch
    for mode in ("device", "p2p+reuse") if name != "Normed" else ("device",):
        on_cpu = train_whole(tmp_path / f"cpu {mode}", mode=mode, **more)
        found = train_whole(tmp_path / f"device {mode}", mode=mode, device="cuda", **more)
        assert_close(found, on_cpu)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("trainer", ["fresh", "fresh-factored"])
def test_trainers_with_a_history_train_them(
    tmp_path: Path, place: Place, folder: Path, trainer: str, name: str
) -> None:
    if (trainer, name) == ("fresh-factored", "Normed"):
        pytest.skip("its replicas share no buffer")
    more = options(folder, name) | {"trainer": trainer, "hidden": 8}
    assert_close(train_fresh(tmp_path / "device", device="cuda", **more), train_fresh(tmp_path / "cpu", **more))


def test_a_sampling_function_draws_for_a_device(tmp_path: Path, place: Place, folder: Path) -> None:
    sampling = replace(SAMPLING, method=Reference("on_device:first_ones", folder))
    for model in ({"model": "sage"}, options(folder, "Graph")):
        more = {"sampling": sampling, **model}
        on_cpu = train_small(tmp_path / f"cpu {model['model']}", **more)
        assert_close(train_small(tmp_path / f"device {model['model']}", device="cuda", **more), on_cpu)


@pytest.mark.parametrize("name", ["layers", "Normed"])
def test_a_training_that_was_stopped_goes_on_to_the_same_bits(
    tmp_path: Path, place: Place, folder: Path, name: str
) -> None:
    """Buffers are part of a checkpoint."""
    more = options(folder, name) | {"device": "cuda", "checkpoint_steps": 1}
    straight = train_small(tmp_path / "straight", **more)
    with pytest.raises(ConnectionAbortedError):
        train_small(tmp_path / "stopped", progress=Stops(5), **more)
    assert content(train_small(tmp_path / "stopped", resume=True, **more)) == content(straight)


PYG = """
from torch_geometric.nn import GATConv, SAGEConv

def whole(in_width, num_classes, config):
    return [SAGEConv(in_width, 8), GATConv((8, 8), num_classes, add_self_loops=False)]
"""


@pytest.mark.parametrize("name", ["torch_geometric.nn:GCN", "torch_geometric.nn:GAT", "pyg_on_device:whole"])
def test_models_of_pyg_train_on_a_device(tmp_path: Path, place: Place, name: str) -> None:
    pytest.importorskip("torch_geometric")
    written(tmp_path, "pyg_on_device", PYG)
    more: dict[str, Any] = {"model": Reference(name, tmp_path), "hidden": 8, "dropout": 0.0, "eval_every": 0}
    assert_close(train_small(tmp_path / "device", device="cuda", **more), train_small(tmp_path / "cpu", **more))


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GAT", "GIN"])
def test_models_of_pyg_train_on_a_device_in_chunks(tmp_path: Path, place: Place, name: str) -> None:
    pytest.importorskip("torch_geometric")
    model = Reference(f"torch_geometric.nn:{name}", tmp_path)
    more: dict[str, Any] = {"model": model, "hidden": 8, "dropout": 0.0, "eval_every": 0}
    assert_close(train_whole(tmp_path / "device", device="cuda", **more), train_whole(tmp_path / "cpu", **more))
