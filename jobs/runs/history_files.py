"""The SQLite files of Dagster's history: how they are opened, and held open during a run.

On import it sets three things for every SQLite file that SQLAlchemy opens in this process.

- A process waits a minute for another that writes. A write of one process locks the file until it is on the disk, which takes many seconds
  while the disk is busy with artifacts. Dagster waits half a minute for its events and five seconds, Python's default, for runs and ticks;
  then a run or a tick fails with "database is locked".
- A commit does not wait for the disk (`synchronous = NORMAL`). The files are in write-ahead mode, in which this loses no consistency: a
  process that is killed loses nothing, and a power cut loses the last moments of the history. Artifacts have syncs of their own.
- Inside `held_open`, a file that was opened stays open. Dagster opens and closes a connection for each of the thousand writes of a run,
  and whenever the last connection of a file closes, SQLite writes its log back into the file and deletes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine

PATIENCE_SECONDS = 60.0

_holding: list[Held] = []
"""For each `held_open` that is active, its connections."""


class Held:
    """A connection to each file that was opened, of which none is the file's last as long as this one lives."""

    def __init__(self):
        self.connections: dict[str, sqlite3.Connection] = {}
        self._logged: set[str] = set()

    def keep(self, path: str) -> None:
        """Holds a file that is about to be opened, from the first time on that it is in write-ahead mode."""
        if path in self._logged:
            return
        if path not in self.connections:
            self.connections[path] = sqlite3.connect(path, timeout=PATIENCE_SECONDS, check_same_thread=False)
        # A connection counts as one of the file's from its first read in that mode on, and learns of the mode when it reads.
        self.connections[path].execute("SELECT count(*) FROM sqlite_master").fetchall()
        if self.connections[path].execute("PRAGMA journal_mode").fetchall() == [("wal",)]:
            self._logged.add(path)

    def close(self) -> None:
        """Closes the connections."""
        for connection in self.connections.values():
            connection.close()


@contextmanager
def held_open() -> Iterator[None]:
    """Keeps a connection to each file that is opened while this is active, until it ends; for one run, which opens a handful of files."""
    held = Held()
    _holding.append(held)
    try:
        yield
    finally:
        _holding.remove(held)
        held.close()


@event.listens_for(Engine, "do_connect")
def _opening(dialect: Dialect, record: Any, arguments: list[Any], named: dict[str, Any]) -> None:
    if dialect.name != "sqlite":
        return
    named["timeout"] = PATIENCE_SECONDS
    for held in _holding:
        if Path(arguments[0]).is_file():
            held.keep(arguments[0])


@event.listens_for(Engine, "connect")
def _opened(connection: Any, record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = NORMAL")
