"""Every trainer on a graph whose edges have relations, by matrices and attention: equal weights, or losses within rounding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from kernels.errors import InputError
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers import graphs
from tests.trainers.runs import (
    SAMPLING,
    WALKS,
    WEIGHTED,
    content,
    losses,
    train_fresh,
    train_packed,
    train_parts,
    train_small,
    train_whole,
)

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
TABLES: list[dict[str, Any]] = [
    {"model": "rgcn", "norm": "layer"},
    {"model": "rgcn", "bases": 2, "residual": True},
    {"model": "rgat", "heads": 2, "attention_dropout": 0.25},
]


@pytest.fixture(autouse=True)
def _relations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "RELATIONS", 3)


@pytest.fixture(params=TABLES, ids=["matrices", "bases", "attention"])
def table(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


def test_batches_that_come_in_any_way_end_with_equal_bits(tmp_path: Path, table: dict[str, Any]) -> None:
    packed = build_packed(tmp_path, epochs=2)
    names = ("minibatch", "disk")
    one, other = (train_packed(packed, tmp_path / name, name, **table) for name in names)
    assert content(one)["weights.safetensors"] == content(other)["weights.safetensors"]
    assert losses(one) == losses(other) and losses(one)[-1] < losses(one)[0]
    online = [train_small(tmp_path / str(count), samplers=count, **table) for count in (1, 3)]
    shared = train_small(tmp_path / "shared", trainer="factored", **table)
    assert len({content(each)["weights.safetensors"] for each in (*online, shared)}) == 1


def test_a_whole_graph_in_chunks_has_the_losses_of_an_uncut_pass(tmp_path: Path, table: dict[str, Any]) -> None:
    uncut = train_whole(tmp_path, mode="device", **table)
    for mode, parts, chunks in (("vanilla", 2, 3), ("p2p", 3, 1), ("p2p+reuse", 1, 4)):
        cut = train_whole(tmp_path, parts, chunks, mode=mode, **table)
        assert losses(cut) == pytest.approx(losses(uncut), rel=1e-4)


def test_relations_decide_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all edges of one relation, or those of three, the weights differ: types reach the model in every trainer."""
    three = train_small(tmp_path / "three", model="rgcn")
    monkeypatch.setattr(graphs, "RELATIONS", 1)
    one = train_small(tmp_path / "one", model="rgcn")
    first, second = (load(each.file("weights.safetensors").read_bytes()) for each in (three, one))
    assert sum("matrices" in name for name in first) == 6 and sum("matrices" in name for name in second) == 2


def test_products_from_bfloat16_train_like_others(tmp_path: Path, table: dict[str, Any]) -> None:
    rough, exact = (train_small(tmp_path / dtype, dtype=dtype, **table) for dtype in ("bf16", "float64"))
    assert losses(rough) == pytest.approx(losses(exact), rel=0.05)
    whole = train_whole(tmp_path / "whole", mode="device", dtype="bf16", **table)
    assert losses(whole)[-1] < losses(whole)[0]


def test_what_walks_visit_has_no_relation(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the model reads relations, and nodes that random walks visit have none"):
        train_small(tmp_path, sampling=WALKS, model="rgcn")


def test_the_mean_of_a_relation_is_weighted_where_neighbours_are(tmp_path: Path) -> None:
    weighted, plain = (
        train_small(tmp_path / name, sampling=each, model="rgcn") for name, each in (("w", WEIGHTED), ("p", SAMPLING))
    )
    assert losses(weighted)[-1] < losses(weighted)[0] and losses(weighted) != losses(plain)


def test_embeddings_of_earlier_steps_train_like_plain_batches(tmp_path: Path, table: dict[str, Any]) -> None:
    plain = train_small(tmp_path / "plain", **table)
    none = train_fresh(tmp_path / "none", fresh={"t_stale": 0}, **table)
    np.testing.assert_allclose(losses(none), losses(plain), rtol=1e-5)
    kept = train_fresh(tmp_path / "kept", **table)
    assert losses(kept)[-1] < losses(kept)[0]
    packed = build_packed(tmp_path / "packed", epochs=2)
    disk = train_fresh(tmp_path / "from disk", packed=packed, fresh={"t_stale": 0}, **table)
    online = train_packed(packed, tmp_path / "online", "minibatch", **table)
    np.testing.assert_allclose(losses(disk), losses(online), rtol=1e-5)


def test_parts_train_with_relations(tmp_path: Path, table: dict[str, Any]) -> None:
    one = train_parts(tmp_path / "one", 1, **table)
    assert one is not None and losses(one) == losses(train_small(tmp_path / "plain", **table))
    two = train_parts(tmp_path / "two", 2, **table)
    assert two is not None and losses(two)[-1] < losses(two)[0]
    fresh = train_parts(tmp_path / "fresh", 2, fresh={}, **table)
    assert fresh is not None and losses(fresh)[-1] < losses(fresh)[0]


def test_a_device_with_memory_of_its_own_trains_with_relations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any]
) -> None:
    on_cpu = train_small(tmp_path / "cpu", **table)
    stand_in(monkeypatch)
    found = [
        train_small(tmp_path / str(i), device="cuda", topology=topology, **table)
        for i, topology in enumerate(("host", "device"))
    ]
    assert content(found[0])["weights.safetensors"] == content(found[1])["weights.safetensors"]
    np.testing.assert_allclose(losses(found[0]), losses(on_cpu), rtol=1e-4)
