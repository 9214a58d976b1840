"""Files of others whose format has a checksum: one flipped bit anywhere is refused, or changes nothing that is read."""

import gzip
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.assets.sources.arrays.archive import Archive
from graphmill.assets.sources.arrays.torch_file import load_saved
from graphmill.assets.sources.readers.duck import Duck, path_literal
from graphmill.assets.sources.readers.packing import for_duck
from graphmill.kernels.errors import InputError
from tests.assets.storage.damage import flip

EDGES = np.random.default_rng(0).integers(0, 60, (2, 400))


def save_torch(path):
    torch.save({"edge_index": torch.from_numpy(EDGES)}, path)


def save_npz(path):
    with open(path, "wb") as file:
        np.savez(file, edge_index=EDGES)


def save_packed_npz(path):
    with open(path, "wb") as file:
        np.savez_compressed(file, edge_index=EDGES)


def save_gzip(path):
    path.write_bytes(gzip.compress("".join(f"{src},{dst}\n" for src, dst in EDGES.T).encode()))


def read_torch(path: Path):
    return np.asarray(load_saved(path, (), lambda named: "copy it again")["edge_index"])


def read_npz(path: Path):
    with Archive(path) as archive:
        return archive.read("edge_index")


def read_gzip(path: Path):
    with Duck(path.parent / "scratch", 1 << 28, 1) as duck:
        file, packed = for_duck(duck, path)
        sql = f"SELECT * FROM read_csv({path_literal(file)}, header=false, compression='{packed}')"
        return np.array(duck.rows(sql, str(path))).T


WAYS = {
    "torch": (save_torch, read_torch),
    "npz": (save_npz, read_npz),
    "packed npz": (save_packed_npz, read_npz),
    "gzip": (save_gzip, read_gzip),
}


@pytest.mark.parametrize(("save", "read"), WAYS.values(), ids=WAYS)
def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path, save, read):
    draw, path = random.Random(5), tmp_path / "file"
    (tmp_path / "scratch").mkdir()
    save(path)
    assert np.array_equal(read(path), EDGES)
    refused = 0
    for _ in range(60):
        bit = draw.randrange(8 * path.stat().st_size)
        flip(path, bit)
        try:
            assert np.array_equal(read(path), EDGES), bit
        except InputError:
            refused += 1
        flip(path, bit)
    assert refused > 20


def test_a_file_that_was_saved_without_checksums_is_read(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        save_torch(tmp_path / "file")
    finally:
        torch.serialization.set_crc32_options(True)
    assert np.array_equal(read_torch(tmp_path / "file"), EDGES)
