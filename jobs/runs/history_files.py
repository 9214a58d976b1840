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
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine

PATIENCE_SECONDS = 60.0

_holding: list[dict[str, sqlite3.Connection]] = []
"""For each `held_open` that is active, path of a file -> the connection that holds it."""


@contextmanager
def held_open() -> Iterator[None]:
    """Keeps a connection to each file that is opened while this is active, until it ends; for one run, which opens a handful of files."""
    held: dict[str, sqlite3.Connection] = {}
    _holding.append(held)
    try:
        yield
    finally:
        _holding.remove(held)
        for connection in held.values():
            connection.close()


@event.listens_for(Engine, "do_connect")
def _wait(dialect: Dialect, record: Any, arguments: list[Any], named: dict[str, Any]) -> None:
    if dialect.name == "sqlite":
        named["timeout"] = PATIENCE_SECONDS


@event.listens_for(Engine, "connect")
def _opened(connection: Any, record: Any) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.execute("PRAGMA synchronous = NORMAL")
    for held in _holding:
        path = next(row[2] for row in connection.execute("PRAGMA database_list"))
        if path and path not in held:
            held[path] = sqlite3.connect(path, timeout=PATIENCE_SECONDS, check_same_thread=False)
            # A connection counts as one of the file's from its first read on.
            held[path].execute("SELECT count(*) FROM sqlite_master").fetchone()
