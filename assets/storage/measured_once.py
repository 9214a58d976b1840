"""What is measured once into the home and then stays, so that nothing that is computed from it changes from one day to the next."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from assets.storage.filesystem import beside, make_folder, replace_atomically, write_durably


def measured_once(path: Path, measure: Callable[[], bytes]) -> bytes:
    """Returns what a file says, measuring where there is no file yet; whoever measures first at the same time, all keep the same.

    Args:
        path: the file, in the folder `measured` of a home.
        measure: returns what the file is to say.
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
    """Replaces what a file says, in one step."""
    make_folder(path.parent)
    replace_atomically(path, content)
