"""Every trainer with `edge_weight = true` on a graph whose edges have weights: models of equal bits, or the same losses within rounding."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers import graphs
from tests.trainers.runs import (
    SAMPLING,
    WALKS,
    content,
    train_fresh,
    train_packed,
    train_parts,
    train_small,
    train_whole,
)

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
ON: dict[str, Any] = {"edge_weight": True, "norm": "layer", "epochs": 2}
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "mean": {"model": "sage"},
    "sum": {"model": "sage", "aggregator": "sum"},
    "mean with self": {"model": "sage", "aggregator": "gcn"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat", "heads": 2, "attention_dropout": 0.2},
    "rgcn": {"model": "rgcn"},
}
ELSEWHERE = {"gat", "rgcn"}
"""Models whose trainers are compared by tests/laws/test_typed_trainers.py."""

WHOLE = SamplingConfig(fanouts=(-1, -1), batch_size=1000)


@pytest.fixture(autouse=True)
def _weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "WEIGHTS", True)
    monkeypatch.setattr(graphs, "RELATIONS", 2)


def losses(model: Artifact) -> list[float]:
    return [json.loads(line)["loss"] for line in model.file("metrics.jsonl").read_text().splitlines()]


def bits(model: Artifact | None) -> str:
    assert model is not None
    return content(model)["weights.safetensors"]


@pytest.fixture(params=MODELS.values(), ids=list(MODELS))
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return ON | request.param


@pytest.fixture(params=[name for name in MODELS if name not in ELSEWHERE])
def other(request: pytest.FixtureRequest) -> dict[str, Any]:
    return ON | MODELS[request.param]


def test_batches_that_come_in_any_way_end_with_equal_bits(tmp_path: Path, other: dict[str, Any]) -> None:
    online, plain = (train_small(tmp_path / str(on), **(other | {"edge_weight": on})) for on in (True, False))
    shared = train_small(tmp_path / "shared", trainer="factored", **other)
    part = train_parts(tmp_path / "part", 1, **other)
    assert bits(online) == bits(shared) != bits(plain) and losses(online)[-1] < losses(online)[0]
    assert part is not None and losses(part) == losses(shared)


def test_stored_batches_and_rows_from_disk_train_like_drawn_ones(tmp_path: Path) -> None:
    packed = build_packed(tmp_path, epochs=2)
    options = ON | MODELS["mean"]
    one, stored = (train_packed(packed, tmp_path / each, each, **options) for each in ("minibatch", "disk"))
    assert bits(one) == bits(stored) and losses(one)[-1] < losses(one)[0]


def test_a_whole_graph_in_chunks_has_the_losses_of_an_uncut_pass(tmp_path: Path, other: dict[str, Any]) -> None:
    uncut = train_whole(tmp_path, mode="device", **other)
    for mode, parts, chunks in (("vanilla", 2, 3), ("p2p+reuse", 1, 4)):
        cut = train_whole(tmp_path, parts, chunks, mode=mode, **other)
        assert losses(cut) == pytest.approx(losses(uncut), rel=1e-4)
    one_batch = {"accumulate": 1, "dropout": 0.0, "attention_dropout": 0.0, "dtype": "float64"}
    batch = train_small(tmp_path / "batch", sampling=WHOLE, **(other | one_batch))
    whole = train_whole(tmp_path / "whole", mode="device", **(other | one_batch))
    assert losses(batch) == pytest.approx(losses(whole), rel=1e-9)


def test_embeddings_of_earlier_steps_train_like_plain_batches(tmp_path: Path, other: dict[str, Any]) -> None:
    plain = train_small(tmp_path / "plain", **other)
    none = train_fresh(tmp_path / "none", fresh={"p_grad": 0.0}, **other)
    np.testing.assert_allclose(losses(none), losses(plain), rtol=1e-5)
    kept = train_fresh(tmp_path / "kept", **other)
    assert losses(kept)[-1] < losses(kept)[0]


def test_a_device_with_memory_of_its_own_trains_with_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    on_cpu = train_small(tmp_path / "cpu", **options)
    stand_in(monkeypatch)
    found = [train_small(tmp_path / each, device="cuda", topology=each, **options) for each in ("host", "device")]
    assert bits(found[0]) == bits(found[1])
    np.testing.assert_allclose(losses(found[0]), losses(on_cpu), rtol=1e-4)


def test_products_from_bfloat16_train_like_others(tmp_path: Path, options: dict[str, Any]) -> None:
    rough, exact = (train_small(tmp_path / dtype, dtype=dtype, **options) for dtype in ("bf16", "float64"))
    assert losses(rough) == pytest.approx(losses(exact), rel=0.05)


@pytest.mark.parametrize("name", ["mean", "gat"])
def test_parts_and_feed_forward_layers_train_with_weights(tmp_path: Path, name: str) -> None:
    options = ON | MODELS[name]
    two = train_parts(tmp_path / "two", 2, eval="sampled", **options)
    assert two is not None and losses(two)[-1] < losses(two)[0]
    fresh = train_parts(tmp_path / "fresh", 2, fresh={}, **options)
    assert fresh is not None and losses(fresh)[-1] < losses(fresh)[0]
    wide = options | {"feed_forward": 1.0, "input": "linear", "head": "linear"}
    counted, plain = (train_small(tmp_path / str(on), **(wide | {"edge_weight": on})) for on in (True, False))
    assert bits(counted) != bits(plain) and losses(counted)[-1] < losses(counted)[0]


def test_what_draws_by_weights_or_without_edges_is_refused_beside_it(tmp_path: Path) -> None:
    by_weight = SamplingConfig(fanouts=(4, 3), batch_size=32, method="weighted", empty_rows="none")
    for sampling, why in ((by_weight, "would count twice"), (WALKS, "draws nodes that walks visit")):
        with pytest.raises(InputError, match=why):
            train_small(tmp_path, sampling=sampling, model="gcn", edge_weight=True)
    others = replace(by_weight, weights="node:out_degree")
    counted, plain = (
        train_small(tmp_path / str(on), sampling=others, model="sage", edge_weight=on) for on in (True, False)
    )
    assert bits(counted) != bits(plain) and losses(counted)[-1] < losses(counted)[0]


def test_a_graph_without_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "WEIGHTS", False)
    with pytest.raises(InputError, match="give the source a column of weights"):
        train_small(tmp_path, model="gcn", edge_weight=True)
    with pytest.raises(InputError, match="give the source a column of weights"):
        train_whole(tmp_path, model="gat", edge_weight=True)
    assert SAMPLING.without_weights() == ""
