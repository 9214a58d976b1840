"""The file of a model's weights has the bytes that safetensors writes, whether tensors are whole or come in pieces."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from graphmill.trainers.record import weights_file
from graphmill.trainers.record.weights_file import TYPES, RowPieces, pieces_of, write_weights


@pytest.mark.parametrize("seed", range(20))
def test_bytes_are_those_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(weights_file, "ROWS_AT_ONCE", 4)
    rng, whole = np.random.default_rng(seed), {}
    for number in range(rng.integers(0, 12)):
        name = f"{rng.choice(['layers', 'a', 'é', 'B'])}.{number}"
        kind = getattr(torch, str(rng.choice([name for name, _ in TYPES])))
        shape = [int(each) for each in rng.integers(0, 6, rng.integers(0, 4))]
        whole[name] = torch.from_numpy(rng.integers(0, 2, shape)).to(kind)
    given = {
        name: RowPieces(tuple(tensor.shape), tensor.dtype, lambda rows, tensor=tensor: tensor[rows])
        if tensor.dim() and rng.integers(0, 2)
        else tensor
        for name, tensor in whole.items()
    }
    assert write_weights(tmp_path / "w.safetensors", given) == (sum(each.numel() for each in whole.values()), 0)
    assert (tmp_path / "w.safetensors").read_bytes() == save(whole)
    found = load_file(tmp_path / "w.safetensors")
    for name, tensor in whole.items():
        pieces = [*pieces_of(given[name])]
        assert torch.equal(found[name], tensor)
        assert not pieces or torch.equal(torch.cat(pieces) if tensor.dim() else pieces[0], tensor)


def test_values_that_are_not_finite_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_file, "ROWS_AT_ONCE", 4)
    rows = torch.arange(18.0).reshape(9, 2)
    rows[8, 1], rows[0, 0] = float("nan"), float("-inf")
    given = {"a": torch.tensor([1.0, float("inf")]), "steps": torch.tensor(3)}
    given["rows"] = RowPieces((9, 2), rows.dtype, lambda each: rows[each])
    assert write_weights(tmp_path / "w.safetensors", given) == (21, 3)
