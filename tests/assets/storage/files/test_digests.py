import hashlib
import mmap
import os
from types import SimpleNamespace

import numpy as np
import pytest
import xxhash

from graphmill.assets.storage.files import digests
from graphmill.assets.storage.files.digests import BLOCK_BYTES, CACHE_NAME, block_digests, sha256_file, words_digest
from graphmill.kernels.errors import InputError


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 17])
def test_blocks_are_those_of_xxhash(tmp_path, size):
    data = np.random.default_rng(size).bytes(size)
    (tmp_path / "f").write_bytes(data)
    expected = [xxhash.xxh3_64_intdigest(data[at : at + BLOCK_BYTES]) for at in range(0, size, BLOCK_BYTES)]
    assert block_digests(tmp_path / "f").tolist() == expected


def test_digest_is_the_same_at_any_thread_count(tmp_path):
    (tmp_path / "f").write_bytes(np.random.default_rng(0).bytes((2 * digests.SPAN_BLOCKS + 1) * BLOCK_BYTES + 5))
    one, two, eight = (block_digests(tmp_path / "f", threads) for threads in (1, 2, 8))
    assert one.tobytes() == two.tobytes() == eight.tobytes()
    assert words_digest(one) == xxhash.xxh3_128_hexdigest(one.astype("<u8").tobytes())


@pytest.fixture
def raw_file(tmp_path, monkeypatch):
    """A large file that has not changed for an hour, as far as it is told: its change time cannot be set."""
    monkeypatch.setattr(digests, "SETTLED_NS", -1)
    monkeypatch.setattr(digests, "shows_changes", lambda path, status: True)  # also if this folder is one in memory
    path = tmp_path / "raw"
    path.write_bytes(os.urandom(digests.SMALL_BYTES + 3))
    _settle(path)
    return path


@pytest.fixture
def hashings(monkeypatch):
    real, seen = hashlib.file_digest, []
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: seen.append(file.name) or real(file, name))
    return seen


def _settle(path, seconds=3600):
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 10**9))


def test_a_raw_file_is_hashed_once(tmp_path, raw_file, hashings):
    first = sha256_file(raw_file, tmp_path)
    assert first == hashlib.sha256(raw_file.read_bytes()).hexdigest()
    assert sha256_file(raw_file, tmp_path) == first
    assert len(hashings) == 1


def test_a_changed_file_is_hashed_again(tmp_path, raw_file, hashings):
    first = sha256_file(raw_file, tmp_path)
    raw_file.write_bytes(raw_file.read_bytes()[::-1])
    _settle(raw_file, 60)
    assert sha256_file(raw_file, tmp_path) == hashlib.sha256(raw_file.read_bytes()).hexdigest() != first
    assert len(hashings) == 2


def replaced(path, content, how):
    """Gives a file another content of the same size and modification time, and returns whether its inode is the same."""
    before = path.stat()
    if how == "a new file":
        path.unlink()
    if how == "mapped":
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
            view[:] = content
    else:
        path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("how", ["written over", "a new file", "mapped"])
def test_a_file_that_was_replaced_with_its_old_times_is_hashed_again(tmp_path, raw_file, how):
    """As archives with normalised times do it."""
    first = sha256_file(raw_file, tmp_path)
    replaced(raw_file, raw_file.read_bytes()[::-1], how)
    assert sha256_file(raw_file, tmp_path) == hashlib.sha256(raw_file.read_bytes()).hexdigest() != first


@pytest.mark.parametrize("place", [0, 1, 5_000, 300_001, 700_000, digests.SMALL_BYTES, digests.SMALL_BYTES + 2])
def test_one_byte_at_any_place_is_seen(tmp_path, raw_file, place):
    first, before = sha256_file(raw_file, tmp_path), raw_file.stat()
    with raw_file.open("r+b") as file:
        (old,) = os.pread(file.fileno(), 1, place)
        os.pwrite(file.fileno(), bytes([old ^ 1]), place)
    os.utime(raw_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sha256_file(raw_file, tmp_path) == hashlib.sha256(raw_file.read_bytes()).hexdigest() != first


def test_a_store_to_a_page_that_waits_to_be_written_back_is_seen(tmp_path, raw_file, monkeypatch, forcing):
    """It changes no time, unless the page was written back when the file was read."""
    monkeypatch.setattr(os, "fsync", forcing)
    with raw_file.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[9_000] ^= 1
        first = sha256_file(raw_file, tmp_path)
        view[9_000] ^= 1
        assert sha256_file(raw_file, tmp_path) == hashlib.sha256(raw_file.read_bytes()).hexdigest() != first


def test_nothing_is_remembered_of_a_file_whose_changes_may_not_show(tmp_path, raw_file, hashings, monkeypatch):
    monkeypatch.setattr(digests, "shows_changes", lambda path, status: False)
    state = digests.file_state(raw_file)
    assert sha256_file(raw_file, tmp_path) == sha256_file(raw_file, tmp_path)
    assert len(hashings) == 2 and not (tmp_path / CACHE_NAME).exists() and digests.file_state(raw_file) != state


def test_a_sample_of_the_bytes_tells_what_a_file_system_without_change_times_does_not(tmp_path, raw_file, monkeypatch):
    class Still(type(raw_file)):
        def stat(self, **how):
            found = super().stat(**how)
            return SimpleNamespace(st_mode=found.st_mode, st_size=found.st_size, st_mtime_ns=1, st_ctime_ns=1, st_ino=1)

    monkeypatch.setattr(digests, "Path", Still)
    first = sha256_file(raw_file, tmp_path)
    assert sha256_file(raw_file, tmp_path) == first
    replaced(raw_file, raw_file.read_bytes()[::-1], "written over")
    assert sha256_file(raw_file, tmp_path) == hashlib.sha256(raw_file.read_bytes()).hexdigest() != first


def test_a_file_that_just_changed_is_not_remembered(tmp_path, raw_file, hashings, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED_NS", 3600 * 10**9)  # however long this test takes
    sha256_file(raw_file, tmp_path)
    sha256_file(raw_file, tmp_path)
    assert len(hashings) == 2


@pytest.mark.parametrize("memory", [b"", b"{", b"[]", b'{"%s": 3}', b"\xff"])
def test_a_broken_memory_is_done_without(tmp_path, raw_file, memory):
    (tmp_path / CACHE_NAME).write_bytes(memory)
    assert sha256_file(raw_file, tmp_path) == hashlib.sha256(raw_file.read_bytes()).hexdigest()


def test_a_flipped_bit_of_a_remembered_digest_is_no_other_digest(tmp_path, raw_file, hashings):
    """It would be another version of the same content."""
    right = sha256_file(raw_file, tmp_path)
    kept = (tmp_path / CACHE_NAME).read_bytes()
    begin = kept.index(right.encode())
    for place in range(begin, begin + len(right)):
        flipped = bytearray(kept)
        flipped[place] ^= 1
        (tmp_path / CACHE_NAME).write_bytes(flipped)
        assert sha256_file(raw_file, tmp_path) == right
    assert len(hashings) == 1 + len(right)


def test_a_home_that_cannot_be_written_is_done_without(tmp_path, raw_file):
    (tmp_path / "home").write_text("a file, not a folder")
    assert sha256_file(raw_file, tmp_path / "home") == hashlib.sha256(raw_file.read_bytes()).hexdigest()


def test_a_missing_file_is_one_error(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        sha256_file(tmp_path / "none")


def test_a_file_that_changes_meanwhile_is_refused(tmp_path, raw_file, monkeypatch):
    def touch(file, name):
        os.utime(raw_file)
        return hashlib.sha256()

    monkeypatch.setattr(hashlib, "file_digest", touch)
    with pytest.raises(InputError, match="changed while it was read"):
        sha256_file(raw_file, tmp_path)
