"""A stored checkpoint is read as that of a home is: one that is damaged is refused, and never taken for none."""

import json
import struct
from pathlib import Path

import pytest
import torch

from graphmill.assets.storage.remote.checkpoints import checkpoint_key
from graphmill.assets.storage.remote.objects import require_objects
from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.checkpoint import Checkpoint, RunState, parse_checkpoint, write_checkpoint
from graphmill.trainers.record.checkpoint_head import (
    Waiting,
    checkpoint_path,
    head_digest,
    take_newer,
    waiting_run,
    waiting_stored,
)
from tests.assets.storage.damage import flip

VERSION = "a" * 64


def written(folder: Path, epoch: int = 2, version: str = VERSION, *, done: bool = False) -> Path:
    path = checkpoint_path(folder, VERSION)
    parts = {"model": {"weight": torch.arange(500.0)}}
    write_checkpoint(path, Checkpoint(version, RunState(epoch=epoch, done=done), {}, parts, (1,)))
    return path


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The file of a stored checkpoint, in an object store that is a folder, and the place of it in another home."""
    monkeypatch.setenv("GRAPHMILL_STORE", (tmp_path / "shared").as_uri())
    path = written(tmp_path / "a")
    require_objects().send(checkpoint_key(path), path)
    return tmp_path / "shared" / "checkpoints" / path.name, checkpoint_path(tmp_path / "b", VERSION)


def test_a_sound_one_is_fetched(stored):
    file, path = stored
    assert waiting_run(path, VERSION) == Waiting(2, 0)
    take_newer(path, VERSION)
    assert path.read_bytes() == file.read_bytes()


def test_that_of_a_training_that_ended_counts_unless_its_model_is_there(stored, tmp_path):
    _, path = stored
    assert waiting_stored(path, VERSION, ended=False) == Waiting(2, 0) and waiting_stored(path, "b" * 64) is None
    require_objects().send(checkpoint_key(path), written(tmp_path / "c", done=True))
    assert waiting_run(path, VERSION) == Waiting(2, 0) and waiting_run(path, VERSION, ended=False) is None
    written(tmp_path / "b", epoch=1)
    assert waiting_run(path, VERSION) == Waiting(2, 0) and waiting_run(path, VERSION, ended=False) == Waiting(1, 0)


def forge_head(file: Path, **fields: object) -> None:
    """Gives the text in the header other fields, under a new digest of the text."""
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    facts = header["__metadata__"]
    text = json.loads(facts["graphmill"])
    text["state"] |= fields
    facts["graphmill"] = json.dumps(text)
    facts["head"] = head_digest(facts["graphmill"])
    made = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(made)) + made + data[8 + length :])


DAMAGE = {
    "empty": lambda file: file.write_bytes(b""),
    "cut in its length": lambda file: file.write_bytes(file.read_bytes()[:5]),
    "cut in its header": lambda file: file.write_bytes(file.read_bytes()[:100]),
    "cut in its tensors": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "flipped in its length": lambda file: flip(file, 60),
    "flipped in its header": lambda file: flip(file, 8 * 60),
    "flipped in its tensors": lambda file: flip(file, 8 * (file.stat().st_size - 100)),
    "another's": lambda file: file.write_bytes(written(file.parent / "other", version="b" * 64).read_bytes()),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "nonsense": lambda file: forge_head(file, epoch=-3),
    "a text for a number": lambda file: forge_head(file, epoch="2"),
    "beyond all numbers": lambda file: forge_head(file, position=1 << 70),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_one_is_refused_and_replaces_nothing(stored, tmp_path, damage):
    file, path = stored
    damage(file)
    waiting_run(path, VERSION)
    with pytest.raises(InputError, match=rf"checkpoint {VERSION}\.safetensors in file://.* is damaged: ") as error:
        take_newer(path, VERSION)
    assert "train without --resume" in error.value.remedy and not path.exists()
    own = written(tmp_path / "b", epoch=1).read_bytes()
    take_newer(path, VERSION)
    assert path.read_bytes() == own and waiting_run(path, VERSION) is not None


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_one_of_the_home_is_refused_likewise(stored, tmp_path, damage):
    file, _ = stored
    damage(file)
    with pytest.raises(InputError, match=r"is damaged: |is of model"):
        parse_checkpoint(file.read_bytes(), file, VERSION)
