"""Checkpoints in the object store: `checkpoints/VERSION.safetensors`, so that a training whose machine is lost goes on on another one.

One thread sends the file after each save, and the training does not wait for it: a file is replaced by a rename, so what the thread has
opened stays whole, and if several saves come meanwhile, only the newest is sent. A checkpoint that cannot be sent does not end a training:
the next one is tried, and the end of the training says what is missing.
"""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from graphmill.assets.storage.names.home import store_url
from graphmill.assets.storage.names.manifest import CHECKPOINTED, CHECKPOINTS, Address
from graphmill.assets.storage.remote.objects import Objects, Stored, require_objects
from graphmill.assets.storage.system.filesystem import beside, make_folder, reporting_full_disk, write_durably
from graphmill.kernels.errors import InputError

ROWS = ".rows-"
"""What stands behind the name of a checkpoint in those of the files with its rows of nodes (trainers/models/rows/), which stay here."""
NAME = re.compile(rf"{CHECKPOINTS}/([0-9a-f]{{64}})\.safetensors")


class CheckpointCopies:
    """Sends the checkpoint of a training to the object store after each save, and reports a failure; does nothing without one."""

    def __init__(self, path: Path, report: Callable[[str], object]):
        self.path, self._report = path, report
        self._wake, self._thread, self._ends = threading.Event(), None, False
        self._error: InputError | None = None

    def send(self) -> None:
        """Sends the file as it is now, or a newer one; returns at once."""
        if not store_url():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
            self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Waits until the newest file is sent, and reports if it could not be."""
        if self._thread is None:
            return
        self._ends = True
        self._wake.set()
        self._thread.join()
        self._thread, self._ends = None, False
        if self._error is not None:
            self._report(f"the checkpoint is on this machine alone: {self._error.problem}")

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()  # first: a save or an end that comes later wakes this thread again
            ends = self._ends
            try:
                if self.path.exists():
                    require_objects().send(checkpoint_key(self.path), self.path)
                self._error = None
            except FileNotFoundError:
                pass  # it was removed meanwhile
            except InputError as error:
                self._error = error
            if ends:
                return


def checkpoint_key(path: Path) -> str:
    """Returns the key of a checkpoint, by the name of its file."""
    return f"{CHECKPOINTS}/{path.name}"


def stored_head(path: Path) -> bytes | None:
    """Returns the header of the stored checkpoint, as it begins the file; of one that is cut inside it only what stands before the header.

    Returns:
        The bytes, None if there is no such checkpoint.
    """
    if not store_url():
        return None
    objects, key = require_objects(), checkpoint_key(path)
    found = objects.find(key)
    if found is None:
        return None
    first = objects.read_range(key, 0, 8)
    whole = 8 + int.from_bytes(first or b"", "little")
    return first if first is None or whole > found.num_bytes else objects.read_range(key, 0, whole)


def is_stored(path: Path) -> bool:
    """Returns whether the object store has a checkpoint; False without one."""
    return bool(store_url()) and require_objects().find(checkpoint_key(path)) is not None


def fetch_checkpoint(path: Path, require_whole: Callable[[bytes], None]) -> None:
    """Replaces the checkpoint of this home by the stored one, with the time at which that was written; does nothing if there is none.

    Args:
        require_whole: function that raises ValueError for the bytes of a damaged checkpoint, which then replaces nothing.

    Raises:
        InputError: the object store cannot be used, or the disk is full.
        ValueError: the stored checkpoint is damaged.
    """
    objects = require_objects()
    found, data = objects.find(checkpoint_key(path)), objects.read(checkpoint_key(path))
    if found is None or data is None:
        return
    require_whole(data)
    make_folder(path.parent)
    part = beside(path, "part")
    with reporting_full_disk(path, len(data)):
        try:
            write_durably(part, data)
            os.utime(part, (found.written.timestamp(), found.written.timestamp()))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def remove_checkpoint(path: Path) -> None:
    """Removes the checkpoint with its rows of nodes from this home and from the object store; missing ones are not an error."""
    path.unlink(missing_ok=True)
    for rows in path.parent.glob(f"{path.name}{ROWS}*"):
        rows.unlink(missing_ok=True)
    if store_url():
        require_objects().remove([checkpoint_key(path)])


def stored_checkpoints(objects: Objects) -> dict[Address, Stored]:
    """Returns the address of the model -> object, of every stored checkpoint."""
    matches = ((NAME.fullmatch(each.key), each) for each in objects.listed(CHECKPOINTS))
    return {(CHECKPOINTED, match[1]): each for match, each in matches if match is not None}
