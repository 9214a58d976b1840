import os
import random

import numpy as np
import pytest

from graphmill.assets.storage.files.digests import BLOCK_BYTES
from graphmill.assets.storage.files.verified import VerifiedRows
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.storage.damage import flip


@pytest.fixture
def artifact(tmp_path):
    with Store(tmp_path).writer("toy", "0" * 64) as writer:
        writer.save("values", np.arange(400_000))
        writer.path("notes.txt").write_text("three words only")
        return writer.publish({}, {}, {}, {})


def test_any_flipped_bit_of_a_file_stops_who_opens_it(artifact):
    draw = random.Random(0)
    for name, opened in (
        ("values.npy", lambda: artifact.array("values")),
        ("notes.txt", lambda: artifact.file("notes.txt")),
    ):
        path = artifact.path / name
        num_bits = 8 * path.stat().st_size
        for bit in {0, num_bits - 1, *(draw.randrange(num_bits) for _ in range(20))}:
            opened()
            flip(path, bit)
            with pytest.raises(InputError, match=r"is damaged: bytes .* do not match") as caught:
                opened()
            assert str(path) in caught.value.problem and "graphmill repair toy/000000000000" in caught.value.remedy
            flip(path, bit)
    assert (artifact.array("values") == np.arange(400_000)).all()


def test_a_file_is_read_once_and_again_after_a_change(artifact, monkeypatch):
    reads = []
    import graphmill.assets.storage.files.verified as verified

    digests = verified.block_digests
    monkeypatch.setattr(verified, "block_digests", lambda path, threads: reads.append(path) or digests(path, threads))
    artifact.array("values")
    artifact.array("values")
    assert reads == []  # the writer digested it in this process
    os.utime(artifact.path / "values.npy")
    artifact.array("values")
    artifact.array("values")
    assert len(reads) == 1
    flip(artifact.path / "values.npy", 99_999)
    artifact.array("values", verified=False)
    assert len(reads) == 1
    with pytest.raises(InputError, match="is damaged"):
        artifact.require_unchanged()


def test_what_was_never_read_is_not_compared_before_publishing(artifact):
    flip(artifact.path / "notes.txt", 3)
    artifact.array("values")
    artifact.require_unchanged()


@pytest.mark.parametrize("width", [1, 3, 500, 300_000, 600_000])
def test_rows_are_compared_when_their_block_is_read_first(tmp_path, width):
    """Rows smaller than a block, larger than one, straddling two: exactly those that touch a damaged block are refused."""
    draw = np.random.default_rng(width)
    num_rows = 5 if width > 1000 else 3000
    with Store(tmp_path).writer("toy", "0" * 64) as writer:
        writer.save("rows", draw.random((num_rows, width), np.float32))
        table = writer.publish({}, {}, {}, {}).table("rows")
    size, num_blocks = table.row_bytes, len(table.block_digest)
    for block in sorted({0, num_blocks // 2, num_blocks - 1}):
        place = min(block * BLOCK_BYTES + int(draw.integers(BLOCK_BYTES)), table.path.stat().st_size - 1)
        flip(table.path, 8 * place)
        for row in {0, num_rows - 1, *draw.integers(0, num_rows, 20).tolist()}:
            first, last = ((table.offset + edge) // BLOCK_BYTES for edge in (row * size, (row + 1) * size - 1))
            rows, wanted = VerifiedRows(table), np.array([row, -1, row])
            if first <= block <= last or (block == 0 and -1 in wanted and table.offset // BLOCK_BYTES == 0):
                with pytest.raises(InputError, match="do not match their digest"):
                    rows.require(wanted)
            else:
                rows.require(wanted)
        flip(table.path, 8 * place)
    sound = VerifiedRows(table)
    sound.require(np.arange(num_rows))
    flip(table.path, 8 * table.offset)
    sound.require(np.arange(num_rows))  # every block was compared: nothing is read again
    assert not sound.pending
