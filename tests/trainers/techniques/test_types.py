"""Every trainer on a graph whose node types have features of different widths and none, with a projection per type."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.errors import InputError
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers import graphs
from tests.trainers.runs import content, losses, train_fresh, train_packed, train_parts, train_small, train_whole

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
TYPED: list[dict[str, Any]] = [{"model": "rgcn", "bases": 2}, {"model": "sage", "norm": "layer", "input_dropout": 0.1}]


@pytest.fixture(autouse=True)
def _types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "RELATIONS", 3)
    monkeypatch.setattr(graphs, "TYPE_COLUMNS", (12, 5, 0))


@pytest.fixture(params=TYPED, ids=["rgcn", "sage"])
def typed(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"input": "typed", **request.param}


def test_batches_that_come_in_any_way_end_with_equal_bits(tmp_path: Path, typed: dict[str, Any]) -> None:
    packed = build_packed(tmp_path, epochs=2)
    names = ("minibatch", "disk")
    one, other = (train_packed(packed, tmp_path / name, name, **typed) for name in names)
    assert content(one)["weights.safetensors"] == content(other)["weights.safetensors"]
    assert losses(one) == losses(other) and losses(one)[-1] < losses(one)[0]
    online = [train_small(tmp_path / str(count), samplers=count, **typed) for count in (1, 3)]
    shared = train_small(tmp_path / "shared", trainer="factored", **typed)
    assert len({content(each)["weights.safetensors"] for each in (*online, shared)}) == 1


def test_a_whole_graph_in_chunks_has_the_losses_of_an_uncut_pass(tmp_path: Path, typed: dict[str, Any]) -> None:
    uncut = train_whole(tmp_path, mode="device", **typed)
    for mode, parts, chunks in (("vanilla", 2, 3), ("p2p", 3, 1), ("p2p+reuse", 1, 4)):
        cut = train_whole(tmp_path, parts, chunks, mode=mode, **typed)
        assert losses(cut) == pytest.approx(losses(uncut), rel=1e-4)


def test_products_from_bfloat16_train_like_others(tmp_path: Path, typed: dict[str, Any]) -> None:
    rough, exact = (train_small(tmp_path / dtype, dtype=dtype, **typed) for dtype in ("bf16", "float64"))
    assert losses(rough) == pytest.approx(losses(exact), rel=0.05)
    for mode in ("device", "p2p"):
        whole = train_whole(tmp_path / mode, mode=mode, dtype="bf16", **typed)
        assert losses(whole)[-1] < losses(whole)[0]


def test_embeddings_of_earlier_steps_train_like_plain_batches(tmp_path: Path, typed: dict[str, Any]) -> None:
    plain = train_small(tmp_path / "plain", **typed)
    none = train_fresh(tmp_path / "none", fresh={"t_stale": 0}, **typed)
    np.testing.assert_allclose(losses(none), losses(plain), rtol=1e-5)
    kept = train_fresh(tmp_path / "kept", **typed)
    assert losses(kept)[-1] < losses(kept)[0]
    packed = build_packed(tmp_path / "packed", epochs=2)
    disk = train_fresh(tmp_path / "from disk", packed=packed, fresh={"t_stale": 0}, **typed)
    online = train_packed(packed, tmp_path / "online", "minibatch", **typed)
    np.testing.assert_allclose(losses(disk), losses(online), rtol=1e-5)


def test_parts_train_with_types(tmp_path: Path, typed: dict[str, Any]) -> None:
    one = train_parts(tmp_path / "one", 1, **typed)
    assert one is not None and losses(one) == losses(train_small(tmp_path / "plain", **typed))
    two = train_parts(tmp_path / "two", 2, **typed)
    assert two is not None and losses(two)[-1] < losses(two)[0]
    fresh = train_parts(tmp_path / "fresh", 2, fresh={}, **typed)
    assert fresh is not None and losses(fresh)[-1] < losses(fresh)[0]


def test_a_device_with_memory_of_its_own_trains_with_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: dict[str, Any]
) -> None:
    on_cpu = train_small(tmp_path / "cpu", **typed)
    whole_on_cpu = train_whole(tmp_path / "whole cpu", mode="device", **typed)
    stand_in(monkeypatch)
    found = [
        train_small(tmp_path / str(i), device="cuda", topology=topology, **typed)
        for i, topology in enumerate(("host", "device"))
    ]
    assert content(found[0])["weights.safetensors"] == content(found[1])["weights.safetensors"]
    np.testing.assert_allclose(losses(found[0]), losses(on_cpu), rtol=1e-4)
    for mode in ("device", "p2p"):
        whole = train_whole(tmp_path / f"whole {mode}", mode=mode, device="cuda", **typed)
        np.testing.assert_allclose(losses(whole), losses(whole_on_cpu), rtol=1e-4)


def test_rows_of_different_widths_need_a_projection_per_type(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="the node types have features of 12, 5, 0 columns, and input = 'linear'"
    ) as error:
        train_small(tmp_path, input="linear")
    assert 'set input = "typed"' in error.value.remedy


def test_a_projection_per_type_needs_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "TYPE_COLUMNS", ())
    with pytest.raises(InputError, match='input = "typed" has a projection per node type, and the nodes'):
        train_small(tmp_path, input="typed")
