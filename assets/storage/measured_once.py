"""Measurements that are made once and then stay in the home, so that results computed from them do not change from day to day."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from assets.storage.filesystem import beside, make_folder, replace_atomically, write_durably


def measured_once(path: Path, measure: Callable[[], bytes]) -> bytes:
    """Returns the content of a file, measured if the file does not exist yet; of processes that measure at the same time the first wins.

    Args:
        path: the file, in the folder `measured` of a home.
        measure: function that returns the content of the file.
    """
    if not path.exists():
        make_folder(path.parent)
        own = beside(path, "new")
        write_durably(own, measure())
        try:
            # Unlike a rename, a link never replaces.
            os.link(own, path)
        except FileExistsError:
            pass
        finally:
            own.unlink(missing_ok=True)
    return path.read_bytes()


def measured_again(path: Path, content: bytes) -> None:
    """Replaces the content of a file in one step."""
    make_folder(path.parent)
    replace_atomically(path, content)
