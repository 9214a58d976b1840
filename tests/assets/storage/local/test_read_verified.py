import os
import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from graphmill.assets.storage.local.read_verified import read_rows, read_table
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError


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


@pytest.mark.parametrize("width", [0, 1, 3, 500, 300_000, 600_000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8"])
def test_chosen_rows_are_read_into_their_places(tmp_path, width, dtype):
    """Rows smaller than a block, larger than one, straddling two, several lists in one pass."""
    draw = np.random.default_rng(width)
    num_rows = 4 if width > 1000 else 3000
    values = draw.integers(0, 100, (num_rows, width)).astype(dtype)
    table = make_table(tmp_path, values)
    order = draw.permutation(num_rows)
    for cuts in ((0, 0), (0, 1), (num_rows // 3, num_rows // 2), (num_rows - 1, num_rows), (num_rows, num_rows)):
        wanted = [(ids, np.full((len(ids), width), 77, dtype)) for ids in (order[: cuts[0]], order[cuts[0] : cuts[1]])]
        read_rows(table, wanted)
        for ids, out in wanted:
            assert out.tobytes() == values[ids].tobytes()


def test_blocks_with_chosen_rows_are_verified_and_others_not_read(tmp_path):
    table = make_table(tmp_path, np.zeros((70_000, 8), np.float32))
    out = np.empty((2, 8), np.float32)
    data = bytearray(table.path.read_bytes())
    data[1 << 20] ^= 1  # the first byte of the second block
    table.path.write_bytes(data)
    first_of_second = ((1 << 20) - table.offset) // 32
    read_rows(table, [(np.array([0, first_of_second - 1]), out)])
    with pytest.raises(InputError, match=r"is damaged: bytes 1048576 to .* do not match"):
        read_rows(table, [(np.array([0, first_of_second]), out)])
    os.truncate(table.path, 4100)
    with pytest.raises(InputError, match="it has 4100 bytes"):
        read_rows(table, [(np.array([0, 1]), out)])


def test_a_cache_is_filled_within_its_own_bytes_and_a_block(tmp_path):
    table = make_table(tmp_path, np.ones((1 << 18, 64), np.float32))  # 64 MiB
    ids = np.random.default_rng(0).permutation(1 << 18)[: 1 << 14]
    out = np.empty((len(ids), 64), np.float32)
    tracemalloc.start()
    try:
        read_rows(table, [(ids, out)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Two blocks: the one that is read, and the next before the first goes. NumPy's arrays are traced.
    assert (out == 1).all() and (1 << 20) < peak < (2 << 20) + 60 * len(ids)
