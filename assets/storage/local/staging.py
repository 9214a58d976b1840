"""The folders in which artifacts are built: private ones under `.staging/`, each held by the lock of a living process.

An owner holds a `flock` on `.staging/<id>.lock` for as long as it works in `.staging/<id>`. No process holds the lock of a dead owner's
folder, and the next owner sweeps it.
"""

import os
import re
import shutil
import uuid
from pathlib import Path

from graphmill.assets.storage.system.filesystem import READ_ONLY, make_folder, release_lock, take_lock
from graphmill.kernels.errors import InputError

STAGING = ".staging"
OWNER = re.compile("[0-9a-f]{32}")
"""Names of owners; anything else in the folder is not ours, and stays."""


class Staging:
    """A private folder `.staging/<id>` whose owner is known to be alive by its lock."""

    def __init__(self, root: Path):
        self.area = root / STAGING
        self.folder = self.area / "closed"
        self._lock: int | None = None
        self._owner = 0
        self._num_extra = 0

    def open(self) -> None:
        """Sweeps the folders of dead owners, then makes a new locked folder.

        Raises:
            InputError: `.staging` is a symbolic link: its target belongs to somebody else, and a rename may not reach from there.
        """
        self._owner = os.getpid()
        if self.area.is_symlink():
            raise InputError(f"{self.area} is a symbolic link", "remove the link; to move a store, move the whole home")
        make_folder(self.area)
        sweep(self.area)
        while self._lock is None:  # a sweeper may take a lock file between its creation and its locking
            self.folder = self.area / uuid.uuid4().hex
            self._lock = take_lock(self.folder.with_suffix(".lock"), create=True)
        try:
            self.folder.mkdir()
        except BaseException:
            self.close()
            raise

    def second_folder(self) -> Path:
        """Returns the name of another folder, not yet made, that lives and dies with this one."""
        self._num_extra += 1
        return self.folder.with_suffix(f".{self._num_extra}")

    def close(self) -> None:
        """Removes everything that was not renamed away; the lock goes last. In a forked child it does nothing."""
        if self._lock is not None and self._owner == os.getpid():
            _remove_owned(self.area, self.folder.name)
            release_lock(self._lock)
            self._lock = None


def sweep(area: Path) -> list[str]:
    """Removes the staging folders whose owner process is gone. Returns their ids.

    Args:
        area: the folder `.staging`; it may be missing. A symbolic link is not followed, and a folder that cannot be written is left.
    """
    if area.is_symlink() or not area.is_dir() or not os.access(area, os.W_OK):
        return []
    owners = sorted({owner for path in area.iterdir() if OWNER.fullmatch(owner := path.name.partition(".")[0])})
    swept = []
    for owner in owners:
        # Its lock file comes before a folder and goes after it: a folder without one was never live, so the lock is
        # made anew.
        has_folder = any(area.glob(f"{owner}*/"))
        try:
            lock = take_lock(area / f"{owner}.lock", create=has_folder)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            continue  # another user's, whose umask does not share it
        if lock is not None:
            _remove_owned(area, owner)
            release_lock(lock)
            swept.append(owner)
    return swept


def _remove_owned(area: Path, owner: str) -> None:
    lock_path = area / f"{owner}.lock"
    for path in area.glob(f"{owner}*"):
        if path.is_symlink():
            path.unlink(missing_ok=True)  # its target is not ours
        elif path != lock_path:
            shutil.rmtree(path, ignore_errors=True)
    lock_path.unlink(missing_ok=True)
