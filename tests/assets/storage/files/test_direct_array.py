"""Arrays written past the page cache: the bytes and digests of a plain file, whatever the regions are and in whatever order they come."""

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.assets.storage.files.digests import BLOCK_BYTES, block_digests
from graphmill.assets.storage.files.direct_array import DirectArray, RegionWriter
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes, page_digests_reference

VERSION = version_of("toy", 1, {}, {}, {})


def filled(rng: np.random.Generator, num_bytes: int) -> np.ndarray:
    content = aligned_empty(int(padded_bytes(num_bytes)))
    content[:num_bytes] = rng.integers(0, 256, num_bytes, np.uint8)
    return content


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    pages=st.lists(st.sampled_from([1, 3, 200, 256, 700]), max_size=5),
    odd=st.sampled_from([0, 1, 3000]),
    threads=st.sampled_from([1, 3]),
)
def test_any_regions_give_a_plain_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, pages: list[int], odd: int, threads: int
) -> None:
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("direct") / "array.npy"
    bounds = (DATA_OFFSET + np.cumsum([0, *pages]) * PAGE_BYTES).tolist()
    bounds[-1] = max(DATA_OFFSET, bounds[-1] - odd)  # a file may end inside a page
    contents = [filled(rng, end - start) for start, end in pairwise(bounds)]
    file = DirectArray(path, bounds[-1] - DATA_OFFSET, np.uint8)
    digests = [np.zeros(len(content) // PAGE_BYTES + 1, np.uint64) for content in contents]
    regions = [
        RegionWriter(file, start, end, page_words=each)
        for (start, end), each in zip(pairwise(bounds), digests, strict=True)
    ]
    at = [0] * len(regions)
    while left := [number for number, content in enumerate(contents) if at[number] < len(content)]:
        number = int(rng.choice(left))  # regions advance in any order
        step = int(rng.integers(1, 400)) * PAGE_BYTES
        regions[number].write(contents[number][at[number] : at[number] + step])
        at[number] = min(len(contents[number]), at[number] + step)
    words = file.finish(threads)
    expected = [content[: end - start] for content, (start, end) in zip(contents, pairwise(bounds), strict=True)]
    np.testing.assert_array_equal(np.load(path), np.concatenate([np.zeros(0, np.uint8), *expected]))
    np.testing.assert_array_equal(words, block_digests(path))
    for found, content in zip(digests, contents, strict=True):
        np.testing.assert_array_equal(found, [*page_digests_reference(content), 0])
    np.testing.assert_array_equal(file.finish(), words)


def test_most_blocks_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DirectArray(tmp_path / "array.npy", 10 * BLOCK_BYTES, np.uint8)
    region = RegionWriter(file, DATA_OFFSET, file.num_bytes)
    region.write(filled(np.random.default_rng(0), 10 * BLOCK_BYTES))
    read: list[int] = []
    monkeypatch.setattr(file, "read", lambda start, out: read.append(start))
    file.finish()
    assert read == [0]  # the header's block


def test_what_is_left_is_padded_with_zeros(tmp_path: Path) -> None:
    file = DirectArray(tmp_path / "array.npy", 3 * PAGE_BYTES, np.uint8)
    region = RegionWriter(file, DATA_OFFSET, DATA_OFFSET + 3 * PAGE_BYTES)
    buffer = filled(np.random.default_rng(0), 3 * PAGE_BYTES)
    expected = buffer.copy()
    expected[2 * PAGE_BYTES + 5 :] = 0
    region.write(buffer[:PAGE_BYTES])
    region.fill_up(buffer[PAGE_BYTES:], PAGE_BYTES + 5)
    file.finish()
    np.testing.assert_array_equal(np.load(tmp_path / "array.npy"), expected)


def test_a_region_that_is_too_long_or_too_short_is_a_defect(tmp_path: Path) -> None:
    file = DirectArray(tmp_path / "array.npy", 4 * PAGE_BYTES, np.uint8)
    buffer = filled(np.random.default_rng(0), 2 * PAGE_BYTES)
    with pytest.raises(AssertionError, match="more than"):
        RegionWriter(file, DATA_OFFSET, DATA_OFFSET + PAGE_BYTES).write(buffer)
    with pytest.raises(AssertionError, match="missing"):
        RegionWriter(file, DATA_OFFSET, DATA_OFFSET + 4 * PAGE_BYTES).fill_up(buffer, 7)
    with pytest.raises(AssertionError, match="no pages"):
        file.write(DATA_OFFSET, buffer[:100])
    file.close()


def test_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, preadv, calls = os.pwrite, os.preadv, []

    def short_write(descriptor: int, data: Any, start: int) -> int:
        calls.append(start)
        return pwrite(descriptor, data[: max(PAGE_BYTES, len(data) // 2 // PAGE_BYTES * PAGE_BYTES)], start)

    def short_read(descriptor: int, buffers: list[Any], start: int) -> int:
        return preadv(
            descriptor, [buffers[0][: max(PAGE_BYTES, len(buffers[0]) // 3 // PAGE_BYTES * PAGE_BYTES)]], start
        )

    file, content = DirectArray(tmp_path / "array.npy", 70_000, np.uint8), filled(np.random.default_rng(0), 70_000)
    monkeypatch.setattr(os, "pwrite", short_write)
    monkeypatch.setattr(os, "preadv", short_read)
    RegionWriter(file, DATA_OFFSET, file.num_bytes).write(content)
    assert len(calls) > 3
    again = aligned_empty(len(content))
    file.read(DATA_OFFSET, again)
    np.testing.assert_array_equal(again[:70_000], content[:70_000])
    words = file.finish()
    np.testing.assert_array_equal(np.load(file.path), content[:70_000])
    np.testing.assert_array_equal(words, block_digests(file.path))
    cut = DirectArray(tmp_path / "cut.npy", 70_000, np.uint8)
    os.truncate(cut.path, 8192)
    with pytest.raises(OSError, match="ends at byte 8192"):
        cut.read(DATA_OFFSET, again)
    cut.close()


def test_a_disk_that_fills_up_meanwhile_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space is reserved, but file systems that copy on write can run full later."""

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match="the file system is full"), Store(tmp_path).writer("toy", VERSION) as writer:
        file = writer.create_direct("array", 9000, np.uint8)
        monkeypatch.setattr(os, "pwrite", full)
        RegionWriter(file, DATA_OFFSET, file.num_bytes).write(filled(np.random.default_rng(0), 9000))
    assert os.listdir(Store(tmp_path).root / ".staging") == []


def test_the_store_publishes_the_digests_of_what_it_holds(tmp_path: Path) -> None:
    content = filled(np.random.default_rng(0), 5_000_000)
    with Store(tmp_path).writer("toy", VERSION) as writer:
        file = writer.create_direct("array", (1_250, 1_000), np.float32)
        RegionWriter(file, DATA_OFFSET, file.num_bytes).write(content)
        artifact = writer.publish({}, {}, {}, {})
    assert artifact.verify() == [] and artifact.array("array").shape == (1_250, 1_000)
    assert artifact.array("array").tobytes() == content[:5_000_000].tobytes()
