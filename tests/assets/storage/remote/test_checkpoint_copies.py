import os
import threading
from datetime import UTC, datetime

import pytest

from graphmill.assets.storage.remote.checkpoints import (
    CheckpointCopies,
    checkpoint_key,
    fetch_checkpoint,
    is_stored,
    remove_checkpoint,
    stored_head,
)
from graphmill.assets.storage.remote.objects import Objects
from graphmill.kernels.errors import InputError

NAME = f"{'a' * 64}.safetensors"


def sound(data):
    """Lets every checkpoint pass."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a" / NAME


def write(path, number):
    """Writes a file with a header, as a checkpoint is written: beside its place, then renamed."""
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes((2).to_bytes(8, "little") + b"{}" + bytes([number]) * 1000)
    part.replace(path)
    return path.read_bytes()


def test_another_home_gets_what_was_saved_last(objects, path, tmp_path):
    copies = CheckpointCopies(path, pytest.fail)
    for number in range(5):
        written = write(path, number)
        copies.send()
    copies.close()
    other = tmp_path / "b" / NAME
    assert is_stored(other) and stored_head(other) == written[:10]
    fetch_checkpoint(other, sound)
    assert other.read_bytes() == written
    stored = objects.find(checkpoint_key(path)).written
    assert datetime.fromtimestamp(other.stat().st_mtime, UTC) == stored
    assert os.listdir(other.parent) == [NAME]
    remove_checkpoint(other)
    assert not other.exists() and not is_stored(path) and stored_head(path) is None and path.exists()
    remove_checkpoint(path)
    fetch_checkpoint(path, sound)
    assert not path.exists()


@pytest.mark.usefixtures("objects")
def test_a_training_does_not_wait_and_the_newest_is_sent(path, monkeypatch):
    begun, go, sent = threading.Event(), threading.Event(), []

    def send(self, key, file, whole=Objects.send):
        sent.append(file.read_bytes())
        begun.set()
        assert go.wait(10)

    monkeypatch.setattr(Objects, "send", send)
    copies = CheckpointCopies(path, pytest.fail)
    first = write(path, 0)
    copies.send()
    assert begun.wait(10)
    for number in range(1, 5):
        last = write(path, number)
        copies.send()
    go.set()
    copies.close()
    assert sent[0] == first and sent[-1] == last and len(sent) <= 3


@pytest.mark.usefixtures("objects")
def test_a_copy_that_fails_is_reported_at_the_end_unless_a_later_one_works(path, monkeypatch):
    def fail(self, key, file):
        raise InputError("the object store s3://a cannot be used: its endpoint does not answer")

    said = []
    copies = CheckpointCopies(path, said.append)
    with monkeypatch.context() as patch:
        patch.setattr(Objects, "send", fail)
        write(path, 0)
        copies.send()
        copies.close()
    assert len(said) == 1 and "on this machine alone: the object store s3://a" in said[0]
    copies.send()
    copies.close()
    assert len(said) == 1 and is_stored(path)


def test_without_an_object_store_nothing_begins(path, monkeypatch):
    monkeypatch.delenv("GRAPHMILL_STORE", raising=False)
    copies = CheckpointCopies(path, pytest.fail)
    write(path, 0)
    before = threading.active_count()
    copies.send()
    copies.close()
    assert threading.active_count() == before and not is_stored(path) and stored_head(path) is None
    remove_checkpoint(path)
    assert not path.exists()
