"""Histories of runs that begin with the empty databases of an earlier one, which Dagster takes 0.2 seconds to make, hundreds of times."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDERS = ("history", "schedules")
"""Folders of a home that hold the databases."""


def begin_with_copies(folder: str) -> None:
    """Lets this process copy the first history that is made, which is kept in a folder, for each later one.

    Tests of what Dagster makes itself begin with other settings than a home's (tests/jobs/runs/test_history_server.py).
    """
    from dagster._core.storage.sqlite_storage import DagsterSqliteStorage

    make, kept = DagsterSqliteStorage.__init__, Path(folder) / "histories"

    def begin(self: DagsterSqliteStorage, base_dir: str, *more: Any, **named: Any) -> None:
        empty = not any(os.path.exists(os.path.join(base_dir, name)) for name in FOLDERS)
        with suppress(OSError):
            if empty and kept.is_dir():
                shutil.copytree(kept, base_dir, dirs_exist_ok=True)
        make(self, base_dir, *more, **named)
        if empty and not kept.is_dir():
            copy = tempfile.mkdtemp(dir=folder)
            for name in FOLDERS:
                shutil.copytree(os.path.join(base_dir, name), os.path.join(copy, name))
            with suppress(OSError):  # another process was faster
                os.rename(copy, kept)

    DagsterSqliteStorage.__init__ = begin
