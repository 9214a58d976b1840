import errno
import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.storage.files.arrays import (
    DATA_OFFSET,
    READING,
    create_array,
    open_array,
    read_header,
    write_array,
)
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.errors import InputError
from tests.assets.storage.limits import file_size_limit

DTYPES = st.sampled_from(["i1", "u1", "i4", "i8", "u8", "f2", "f4", "f8", "?"])


@given(data=st.data(), dtype=DTYPES, shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
def test_round_trip(tmp_path_factory, data, dtype, shape):
    path = tmp_path_factory.mktemp("arrays") / "a.npy"
    values = data.draw(hnp.arrays(dtype, shape))
    write_array(path, values)
    stored = open_array(path)
    assert stored.dtype == values.dtype and stored.shape == values.shape
    assert stored.tobytes() == values.tobytes()
    assert not stored.flags.writeable
    assert path.stat().st_size == DATA_OFFSET + values.nbytes
    assert path.read_bytes()[DATA_OFFSET:] == values.tobytes()


def test_other_layouts_are_stored_in_c_order(tmp_path):
    values = np.arange(12, dtype=">i4").reshape(3, 4)
    write_array(tmp_path / "a.npy", np.asfortranarray(values))
    write_array(tmp_path / "b.npy", values[:, ::2])
    assert read_header(tmp_path / "a.npy") == ((3, 4), np.dtype("<i4"), DATA_OFFSET)
    assert np.array_equal(np.load(tmp_path / "a.npy"), values)
    assert np.array_equal(np.load(tmp_path / "b.npy"), values[:, ::2])


def test_created_array_is_zeros_and_keeps_what_is_written(tmp_path):
    mapped = create_array(tmp_path / "a.npy", (4, 2), np.int64)
    assert not mapped.any()
    mapped[2] = 7
    assert np.load(tmp_path / "a.npy")[2].tolist() == [7, 7]


def test_an_existing_file_is_never_overwritten(tmp_path):
    write_array(tmp_path / "a.npy", [1, 2])
    with pytest.raises(FileExistsError):
        create_array(tmp_path / "a.npy", 2, np.int64)
    assert np.load(tmp_path / "a.npy").tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["O", "S3", "U2", "M8[s]", "V4", "c8"])
def test_types_that_the_kernels_do_not_read_are_refused(tmp_path, dtype):
    with pytest.raises(AssertionError, match="cannot be stored"):
        create_array(tmp_path / "a.npy", 2, dtype)


def test_no_room_is_one_error_and_leaves_no_file(tmp_path):
    with file_size_limit(1 << 20), pytest.raises(InputError) as caught:
        create_array(tmp_path / "a.npy", (1 << 20, 4), np.float32)
    assert str(tmp_path / "a.npy") in str(caught.value)
    assert f"{DATA_OFFSET + (1 << 24)} bytes" in str(caught.value) and "are free" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [0, 5, 100, 4096, 4100])
def test_a_short_file_is_reported(tmp_path, keep):
    write_array(tmp_path / "a.npy", np.arange(100))
    os.truncate(tmp_path / "a.npy", keep)
    with pytest.raises(InputError, match=r"a\.npy cannot be mapped"):
        open_array(tmp_path / "a.npy")


def test_direct_reads_find_the_rows(tmp_path):
    values = np.arange(5000, dtype=np.int64)
    write_array(tmp_path / "a.npy", values).flush()
    try:
        descriptor = os.open(tmp_path / "a.npy", os.O_RDONLY | os.O_DIRECT)
    except OSError:
        pytest.skip("this file system has no O_DIRECT")
    import mmap

    page = mmap.mmap(-1, 4096)  # anonymous maps are page-aligned, as O_DIRECT wants
    assert os.preadv(descriptor, [page], DATA_OFFSET) == 4096
    os.close(descriptor)
    assert np.array_equal(np.frombuffer(page, np.int64), values[:512])


def test_a_wrong_bit_in_a_header_is_one_error(tmp_path):
    """The header is Python text that NumPy gives to Python's parser, which has errors of its own."""
    path = tmp_path / "values.npy"
    write_array(path, np.arange(7)).flush()
    content, found = path.read_bytes(), 0
    for bit in range(8 * 80):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found += 1
        with suppress(InputError):
            open_array(path)
            found -= 1
        with suppress(ValueError):
            read_header(path)
    assert found > 300  # the others are spaces, or shapes and types that are possible as well


def test_threads_open_arrays_at_once(tmp_path):
    """Where Python code runs while garbage is collected, as that of this callback does, other threads parse headers meanwhile."""
    np.save(tmp_path / "a.npy", np.arange(10))
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()

    def collecting(phase, info):
        sum(range(20))

    def work(depth):
        # A depth of its own for each thread: what CPython mixes up is the depth of the others.
        return work(depth - 1) if depth else [len(open_array(tmp_path / "a.npy")) for _ in range(300)]

    gc.callbacks.append(collecting)
    try:
        sys.setswitchinterval(1e-6)
        gc.set_threshold(5)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(work, (0, 7, 14, 21)))
    finally:
        gc.callbacks.remove(collecting)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    assert found == [[10] * 300] * 4


def test_a_lock_that_an_interrupt_left_is_free_again_after_a_second(tmp_path):
    path = tmp_path / "a.npy"
    write_array(path, np.arange(3)).flush()
    READING.__enter__()  # and never left
    assert open_array(path).tolist() == [0, 1, 2]
    assert READING._lock.acquire(blocking=False), "the reader released it"
    READING._lock.release()


def test_too_many_open_files_are_no_damage(tmp_path, monkeypatch):
    write_array(tmp_path / "a.npy", np.arange(3))

    def full(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files", str(tmp_path / "a.npy"))

    monkeypatch.setattr("numpy.load", full)
    with pytest.raises(OSError, match="Too many open files") as raised:
        open_array(tmp_path / "a.npy")
    said = refusal(raised.value)
    assert said is not None and "ulimit -n" in said.remedy
    monkeypatch.undo()
    with pytest.raises(InputError, match="cannot be mapped"):
        open_array(tmp_path / "b.npy")
