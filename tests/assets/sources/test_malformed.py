"""Malformed input of every form: one clear error with the place and a remedy, and nothing left behind."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from graphmill.assets.sources.arrays.archive import Archive
from graphmill.assets.sources.arrays.mapped_arrays import open_plain, open_tensor
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError, each_mistake
from tests.assets.sources.malformed import CASES
from tests.assets.sources.own_data import FORMS, Drawn, build, staging

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Every form of one sound graph; edges also have a weight v and a text t."""
    folder, graph, keys = tmp_path_factory.mktemp("sound"), Drawn(), {}
    graph.part[0], graph.y[0] = 3, -1
    for form, (_, write) in FORMS.items():
        keys[form] = write(folder, graph)
    for number in range(2):
        path = folder / f"edges-{number}.parquet"
        table = pl.read_parquet(path)
        extra = [pl.Series("v", np.arange(len(table)) * 0.5), pl.Series("t", ["follows"] * len(table))]
        table.with_columns(extra).write_parquet(path)
    (folder / "edges.bak").write_text("src,dst\n")
    return folder, keys


def moved(value, sound, folder):
    """Returns a key's value with its paths in the copy of the folder."""
    if isinstance(value, Path):
        return folder / value.relative_to(sound) if value.is_relative_to(sound) else value
    return value


def located(keys, folder):
    for key in ("edges", "nodes", "path"):
        value = keys.get(key)
        if isinstance(value, str):
            keys[key] = folder / value
        if isinstance(value, tuple):
            keys[key] = tuple(folder / part for part in value)
    return keys


def test_a_hundred_cases():
    assert len(CASES) >= 100


@pytest.mark.parametrize("case", CASES)
def test_malformed_input_is_one_clear_error(sound, tmp_path, case):
    form, damage, pattern = CASES[case]
    folder = tmp_path / "data"
    shutil.copytree(sound[0], folder)
    keys = {name: moved(value, sound[0], folder) for name, value in sound[1][form].items()}
    if form == "Parquet" and ("weight" in case or "type is" in case):
        keys |= {"weight_column": "v", "type_column": "t"}
    damage(folder, keys)
    with pytest.raises(InputError, match=f"(?s){pattern}") as caught:
        build(tmp_path, FORMS[form][0], **located(keys, folder))
    assert all(each.remedy and len(each.problem) < 700 for each in each_mistake(caught.value))
    # Features that were whole before the graph turned out not to be are sound, and stay.
    assert not [each for each in Store(tmp_path).artifacts() if each.stage == "graph"] and staging(tmp_path) == []


def headers():
    """Yields headers of NumPy's format that no program writes; wrong bits in each make Python's parser raise something else."""
    sound = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 50000), }"
    yield sound.replace(b")", b"\x09")
    yield sound.replace(b"(", b"[(")
    yield sound.replace(b"'descr'", b"\x00descr'")
    yield sound.replace(b"50000", b"0" + b"7" * 5)
    yield sound.replace(b"2,", b"9" * 30 + b",")
    yield b"-" * 9000 + b"1"


@pytest.mark.parametrize("header", headers())
def test_a_header_with_wrong_bits_is_one_clear_error_in_each_form(tmp_path, header):
    body = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n" + bytes(800_000)
    plain, packed = tmp_path / "e.npy", tmp_path / "e.npz"
    plain.write_bytes(body)
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("edge_index.npy", body)
    with pytest.raises(InputError, match=r"e\.npy: is no array of plain numbers"):
        open_plain(plain)
    with Archive(packed) as archive:
        for read in (archive.read, archive.header, archive.dtype):
            if read in (archive.read, archive.header) or b"9" * 30 not in header:
                with pytest.raises(InputError, match=r"e\.npz: array 'edge_index' is damaged"):
                    read("edge_index")
    with pytest.raises(InputError, match=r"e\.npz: array 'edge_index' is damaged"):
        build(tmp_path, "npz", path=packed)
    assert staging(tmp_path) == []


def test_an_archive_with_the_ending_of_an_array_is_none(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(InputError, match=r"x\.npy: is no array of plain numbers"):
        open_plain(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":' * 100_000,
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [-99999999999999999999, -99999999999999999983]}}',
        b'{"a": {"dtype": "F32", "shape": [0, 99999999999999999999], "data_offsets": [0, 0]}}',
    ],
)
def test_a_safetensors_header_that_no_program_writes_is_one_clear_error(tmp_path, header):
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(InputError, match=r"x\.safetensors: is no whole safetensors file"):
        open_tensor(path, None)


@pytest.mark.parametrize(
    ("source", "keys", "message"),
    [
        ("edges", {"features": "x"}, "features = 'x' needs node tables"),
        ("edges", {"nodes": Path("n.csv"), "num_nodes": 3}, "num_nodes = 3 beside node tables"),
        ("edges", {"num_nodes": 0}, "num_nodes = 0"),
        ("edges", {"memory_limit": "1MiB"}, "memory_limit = 1MiB is less than 128.0 MiB"),
        ("edges", {"memory_limit": "much"}, "'much' is not a size"),
        ("edges", {"memory_limit": "99999999999PB"}, "'99999999999PB' is more than"),
        ("edges", {"delimiter": "tab"}, "is not a separator"),
        ("edges", {"labels": "text"}, "labels = 'text' is not one of"),
        ("edges", {"merge_weights": "max"}, "merge_weights = 'max'"),
        ("dgl", {"index": -1}, "index = -1 is below 0"),
    ],
)
def test_impossible_keys(source, keys, message):
    from graphmill.assets.sources.registry import config_class

    place = {"edges": Path("e.csv")} if source == "edges" else {"path": Path("g.bin")}
    with pytest.raises(InputError, match=message.replace("||", r"\|\|")):
        config_class(source)(**place, **keys)
