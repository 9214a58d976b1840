"""Arrays whose length is known at the end, and pages that are let go."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.storage.files.arrays import (
    DATA_OFFSET,
    ArrayAppender,
    create_array,
    forget_pages,
    open_array,
    write_array,
)
from graphmill.assets.storage.files.digests import block_digests
from graphmill.assets.storage.local import writer as local_writer
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
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


@settings(max_examples=30, deadline=None)
@given(parts=st.lists(st.sampled_from([0, 1, 1000, 130_561, 261_120, 262_144, 700_000]), max_size=5))
def test_digests_of_blocks_are_those_of_the_file(tmp_path_factory, parts):
    """However the bytes of blocks are cut into pieces, a file that ends with a block included."""
    draw, path = np.random.default_rng(sum(parts)), tmp_path_factory.mktemp("appended") / "a.npy"
    with ArrayAppender(path, np.int32) as out:
        for count in parts:
            out.append(draw.integers(0, 1 << 31, count, np.int32))
    assert out.words is not None
    np.testing.assert_array_equal(out.words, block_digests(path))


def test_an_appended_array_is_not_read_again_when_it_is_published(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(local_writer, "block_digests", lambda path, threads: read.append(path) or block_digests(path))
    with Store(tmp_path).writer("toy", version_of("toy", 1, {}, {}, {})) as writer:
        with writer.append("long", np.int64) as out:
            out.append(np.arange(300_000))
        writer.save("short", np.arange(3))
        made = writer.publish({}, {}, {"numbers": {}}, {})
    assert [path.name for path in read] == ["short.npy"]
    assert made.verify() == []
    np.testing.assert_array_equal(made.array("long"), np.arange(300_000))


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
