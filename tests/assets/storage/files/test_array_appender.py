"""Arrays whose length is known at the end, and pages that are let go."""

import numpy as np
import pytest

from graphmill.assets.storage.files.arrays import (
    DATA_OFFSET,
    ArrayAppender,
    create_array,
    forget_pages,
    open_array,
    write_array,
)
from graphmill.kernels.errors import InputError
from tests.assets.storage.limits import file_size_limit


@pytest.mark.parametrize("parts", [[], [0], [3], [5, 0, 7], [100_000, 1]])
@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8", "bool"])
def test_appended_parts_are_the_array(tmp_path, parts, dtype):
    pieces = [np.arange(number, number + count).astype(dtype) for number, count in enumerate(parts)]
    with ArrayAppender(tmp_path / "a.npy", dtype) as out:
        for piece in pieces:
            out.append(piece)
    whole = np.concatenate([np.zeros(0, dtype), *pieces])
    write_array(tmp_path / "b.npy", whole).flush()
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    assert np.array_equal(open_array(tmp_path / "a.npy"), whole)


def test_a_full_disk_is_an_input_error(tmp_path):
    with file_size_limit(DATA_OFFSET + 100), pytest.raises(InputError, match="larger than allowed"):  # noqa: SIM117
        with ArrayAppender(tmp_path / "a.npy", np.int64) as out:
            out.append(np.arange(100))


def test_pages_that_are_let_go_keep_their_content(tmp_path):
    table = create_array(tmp_path / "a.npy", (1000, 100), np.float32)
    table[:] = 7
    forget_pages(table)
    table[3] = 8
    forget_pages(table[5:9])
    assert table[4, 5] == 7 and table[3, 5] == 8
    forget_pages(np.zeros(3))
