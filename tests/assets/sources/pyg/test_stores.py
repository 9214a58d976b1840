"""No code of a file is run, and a file that cannot be read so is one clear error."""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest
import torch

from graphmill.assets.sources.arrays.torch_file import looks_saved
from graphmill.assets.sources.pyg.source import load_stores
from graphmill.kernels.errors import InputError

data = pytest.importorskip("torch_geometric.data")


def program(path):
    """The bytes of a plain pickle, by hand, that make a file when they are loaded: GLOBAL os.system, its argument, REDUCE, STOP."""
    return f"\x80\x02cposix\nsystem\n(Vtouch {path}\ntR.".encode("latin-1")


class Runs:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class Evaluates(Runs):
    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w')",)


class Loads(Runs):
    """Asks torch for a second loader, which would run code."""

    def __reduce__(self):
        return torch.storage._load_from_bytes, (program(self.path),)


class Mine(data.Data):
    """A class of the user's."""


def edges():
    return torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kind", [Runs, Evaluates, Loads])
def test_code_in_a_file_is_not_run(tmp_path, kind, zipped):
    made = data.Data(edge_index=edges(), note=kind(tmp_path / "ran"))
    torch.save(made, tmp_path / "graph.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match="cannot be read without running code from it") as raised:
        load_stores(tmp_path / "graph.pt")
    assert {Runs: "system", Evaluates: "eval", Loads: "_load_from_bytes"}[kind] in raised.value.problem
    assert "torch.save(data.to_dict(), PATH)" in raised.value.remedy and not (tmp_path / "ran").exists()


def test_a_plain_pickle_is_not_run(tmp_path):
    (tmp_path / "graph.pt").write_bytes(program(tmp_path / "ran"))
    with pytest.raises(InputError, match="cannot be read without running code"):
        load_stores(tmp_path / "graph.pt")
    assert not (tmp_path / "ran").exists()


def test_classes_that_the_process_lets_torch_make_stay_out_and_are_kept(tmp_path):
    torch.serialization.add_safe_globals([Mine])
    before = set(torch.serialization.get_safe_globals())
    torch.save(Mine(edge_index=edges()), tmp_path / "graph.pt")
    with pytest.raises(InputError, match=r"holds an object of tests\..*test_stores\.Mine"):
        load_stores(tmp_path / "graph.pt")
    assert set(torch.serialization.get_safe_globals()) == before


def test_a_sparse_tensor_of_torch_sparse_is_refused_with_what_to_save(tmp_path, monkeypatch):
    module = ModuleType("torch_sparse.tensor")
    module.SparseTensor = type("SparseTensor", (), {"__module__": "torch_sparse.tensor"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_sparse", ModuleType("torch_sparse"))
    monkeypatch.setitem(sys.modules, "torch_sparse.tensor", module)
    torch.save({"adj_t": module.SparseTensor()}, tmp_path / "graph.pt")
    with pytest.raises(InputError, match=r"torch_sparse\.tensor\.SparseTensor") as raised:
        load_stores(tmp_path / "graph.pt")
    assert "data.edge_index = torch.stack([row, col])" in raised.value.remedy


@pytest.mark.parametrize("cut", [0, 3, 40, 400, -30, -1])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_damaged_file_is_one_clear_error(tmp_path, cut, zipped):
    path = tmp_path / "graph.pt"
    torch.save(data.Data(x=torch.rand(50, 8), edge_index=edges()), path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match="or is damaged") as raised:
        load_stores(path)
    assert "save it again" in raised.value.remedy


def test_a_stand_in_without_state_is_damage(tmp_path):
    class Empty:
        def __reduce__(self):
            return data.Data, ()

    torch.save(data.Data(), tmp_path / "graph.pt")
    assert looks_saved(tmp_path / "graph.pt")
    with pytest.raises(InputError, match="no such file"):
        load_stores(tmp_path / "none.pt")
    torch.save(Empty(), tmp_path / "graph.pt")
    with pytest.raises(InputError, match="holds an object of NoneType where the data of a graph belong"):
        load_stores(tmp_path / "graph.pt")


def test_other_files_do_not_look_saved(tmp_path):
    for number, content in enumerate((b"", b"PK\x03\x04", b"src,dst\n0,1\n")):
        (tmp_path / str(number)).write_bytes(content)
        assert not looks_saved(tmp_path / str(number))
    torch.save(edges(), tmp_path / "old", _use_new_zipfile_serialization=False)
    assert looks_saved(tmp_path / "old")
