"""The header of a checkpoint, read without torch and without its tensors: what a run would go on from.

The text in it has a digest of its own, since the digest of the whole file is compared only when the tensors are read as well. With an
object store (assets/storage/remote/checkpoints.py) the checkpoint of another machine counts, too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from graphmill.assets.storage.remote.checkpoints import fetch_checkpoint, stored_head

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, struct.error)
"""Errors of a file that is missing, or has no such header; the rest of a file is compared when it is read whole."""


@dataclass(frozen=True)
class Waiting:
    """The position of a run that did not end.

    Attributes:
        epoch: number of epochs that are done.
        position: number of batches of the next epoch that are done.
    """

    epoch: int
    position: int

    def __str__(self) -> str:
        batches = f" and {self.position} batches" if self.position else ""
        return f"a checkpoint of epoch {self.epoch}{batches} waits for --resume"


def checkpoint_path(folder: Path, version: str) -> Path:
    """Returns the path of the checkpoint of a model version."""
    return folder / f"{version}.safetensors"


def head_digest(text: str) -> str:
    """Returns the digest of the text of a checkpoint, 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(text.encode())


def parse_head(text: bytes) -> dict[str, Any]:
    """Returns the text of a checkpoint from the header of its file.

    Raises:
        ValueError: it does not match its digest.
        KeyError, TypeError: it is not the header of a checkpoint.
    """
    facts = json.loads(text)["__metadata__"]
    # Checkpoints of older versions have none.
    if facts.get("head") not in (None, head_digest(facts["graphmill"])):
        raise ValueError("its header does not match its digest")
    return json.loads(facts["graphmill"])


def checkpoint_threads(path: Path) -> list[int]:
    """Returns the numbers of threads that the run of a checkpoint has had, oldest first, from the file's header.

    It is empty if there is no checkpoint, or one without such a header.
    """
    try:
        return [int(number) for number in _read_head(path).get("threads", ())]
    except UNREADABLE:
        return []


def waiting_run(path: Path, version: str) -> Waiting | None:
    """Returns the position from which a run would go on, None without a checkpoint of that model version here or in the object store."""
    found = [each for each in (_here(path, version), _stored(path, version)) if each is not None]
    return max(found, key=_progress, default=None)


def take_newer(path: Path, version: str) -> None:
    """Fetches the checkpoint of the object store into the home if the run has come further by it; does nothing without one.

    Raises:
        InputError: the object store cannot be used, or the disk is full.
    """
    here, stored = _here(path, version), _stored(path, version)
    if stored is not None and (here is None or _progress(stored) > _progress(here)):
        fetch_checkpoint(path)


def _progress(waiting: Waiting) -> tuple[int, int]:
    return waiting.epoch, waiting.position


def _here(path: Path, version: str) -> Waiting | None:
    try:
        return _waiting(_read_head(path), version)
    except UNREADABLE:
        return None


def _stored(path: Path, version: str) -> Waiting | None:
    data = stored_head(path)
    try:
        return None if data is None else _waiting(parse_head(data[8:]), version)
    except UNREADABLE:
        return None


def _waiting(head: Mapping[str, Any], version: str) -> Waiting | None:
    state = head["state"]
    return Waiting(int(state["epoch"]), int(state["position"])) if head["version"] == version else None


def finished_epochs(path: Path) -> int | None:
    """Returns the number of epochs of a training that ended, None if its checkpoint is one to resume from, or none."""
    try:
        state = _read_head(path)["state"]
        return int(state["epoch"]) if state["done"] else None
    except UNREADABLE:
        return None


def _read_head(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return parse_head(file.read(length))
