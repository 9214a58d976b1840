"""A projection per node type in bfloat16, and what is refused; what each trainer promises of types: tests/laws/test_typed_trainers.py."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.kernels.errors import InputError
from tests import accelerator
from tests.trainers import graphs
from tests.trainers.runs import losses, train_small, train_whole

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
TYPED: list[dict[str, Any]] = [{"model": "rgcn", "bases": 2}, {"model": "sage", "norm": "layer", "input_dropout": 0.1}]


@pytest.fixture(autouse=True)
def _types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "RELATIONS", 3)
    monkeypatch.setattr(graphs, "TYPE_COLUMNS", (12, 5, 0))


@pytest.fixture(params=TYPED, ids=["rgcn", "sage"])
def typed(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"input": "typed", **request.param}


def test_products_from_bfloat16_train_like_others(tmp_path: Path, typed: dict[str, Any]) -> None:
    rough, exact = (train_small(tmp_path / dtype, dtype=dtype, **typed) for dtype in ("bf16", "float64"))
    assert losses(rough) == pytest.approx(losses(exact), rel=0.05)
    for mode in ("device", "p2p"):
        whole = train_whole(tmp_path / mode, mode=mode, dtype="bf16", **typed)
        assert losses(whole)[-1] < losses(whole)[0]


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
