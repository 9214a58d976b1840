"""Sets, on import, how long a process waits for another that writes to the history, for every SQLite file that SQLAlchemy opens.

A write of one process locks the file until it is on the disk, which takes many seconds while the disk is busy with artifacts. Dagster waits
half a minute for its events and five seconds, Python's default, for runs and ticks; then a run or a tick fails with "database is locked".
"""

from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine

PATIENCE_SECONDS = 60.0


@event.listens_for(Engine, "do_connect")
def _wait(dialect: Dialect, record: Any, arguments: list[Any], named: dict[str, Any]) -> None:
    if dialect.name == "sqlite":
        named["timeout"] = PATIENCE_SECONDS
