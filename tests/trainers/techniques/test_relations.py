"""Models of relations in bfloat16 and on a device; what each trainer promises of them: tests/laws/test_typed_trainers.py."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from graphmill.kernels.errors import InputError
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.trainers import graphs
from tests.trainers.runs import (
    SAMPLING,
    WALKS,
    WEIGHTED,
    content,
    losses,
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
    with pytest.raises(InputError, match=r"reads relations, but .* draws nodes that walks visit, which have none"):
        train_small(tmp_path, sampling=WALKS, model="rgcn")


def test_the_mean_of_a_relation_is_weighted_where_neighbours_are(tmp_path: Path) -> None:
    weighted, plain = (
        train_small(tmp_path / name, sampling=each, model="rgcn") for name, each in (("w", WEIGHTED), ("p", SAMPLING))
    )
    assert losses(weighted)[-1] < losses(weighted)[0] and losses(weighted) != losses(plain)


def test_a_device_with_memory_of_its_own_trains_with_relations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TABLES[-1]  # a sum of bases: tests/laws/test_typed_trainers.py
    on_cpu = train_small(tmp_path / "cpu", **table)
    stand_in(monkeypatch)
    found = [
        train_small(tmp_path / str(i), device="cuda", topology=topology, **table)
        for i, topology in enumerate(("host", "device"))
    ]
    assert content(found[0])["weights.safetensors"] == content(found[1])["weights.safetensors"]
    np.testing.assert_allclose(losses(found[0]), losses(on_cpu), rtol=1e-4)
