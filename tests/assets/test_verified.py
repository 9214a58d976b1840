import os
import random
from dataclasses import replace

import numpy as np
import pytest

from assets.store import Store
from assets.verified import read_table
from kernels.errors import InputError


def make_table(tmp_path, values):
    with Store(tmp_path).writer("toy", "0" * 64) as writer:
        writer.save("rows", values)
        return writer.publish({}, {}, {}, {}).table("rows")


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (700, 500), (3, 0)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_a_table_is_read_as_it_was_stored(tmp_path, shape, dtype):
    values = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    read = read_table(make_table(tmp_path, values))
    assert read.dtype == values.dtype and read.shape == shape and read.tobytes() == values.tobytes()


def test_any_thread_count_reads_the_same(tmp_path):
    table = make_table(tmp_path, np.random.default_rng(0).random((300_000, 32)))  # 73 MiB: two spans
    assert read_table(table, 1).tobytes() == read_table(table, 4).tobytes() == table.open().tobytes()


def test_every_flipped_bit_stops_the_reader(tmp_path):
    table = make_table(tmp_path, np.zeros((70_000, 8), np.float32))
    draw, num_bytes = random.Random(0), table.path.stat().st_size
    for bit in {0, 8 * num_bytes - 1, *(draw.randrange(8 * num_bytes) for _ in range(30))}:
        data = bytearray(table.path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        table.path.write_bytes(data)
        start = bit // 8 >> 20 << 20
        with pytest.raises(InputError, match=f"is damaged: bytes {start} to .* do not match their digest"):
            read_table(table)
        data[bit // 8] ^= 1 << bit % 8
        table.path.write_bytes(data)
    assert not read_table(table).any()


def test_a_missing_or_short_file_is_one_error(tmp_path):
    table = make_table(tmp_path, np.zeros((10, 8), np.float32))
    with pytest.raises(InputError, match="the file is missing"):
        read_table(replace(table, path=tmp_path / "none"))
    os.truncate(table.path, 4100)
    with pytest.raises(InputError, match="it has 4100 bytes instead of 4416"):
        read_table(table)
