"""Messages for a database of Dagster's history that is full, damaged or read-only."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernels.errors import InputError

FREE = "free space there, or point GRAPHMILL_HOME at a larger file system; artifacts that were finished are kept"
SAID = {
    "disk is full": FREE,
    "disk I/O error": FREE,
    "readonly database": "correct the permissions of its files, or point GRAPHMILL_HOME at a folder that can be written",
    "unable to open": "correct the permissions of its files, or point GRAPHMILL_HOME at a folder that can be written",
    "not a database": "move the folder history/ away: the history begins anew, and artifacts stay",
    "malformed": "move the folder history/ away: the history begins anew, and artifacts stay",
    "locked": "end the other program that holds it, and run the same command again",
}
"""Words of SQLite's messages, and the remedy for each."""
IN_A_URL = re.compile(r"\?|%[0-9A-Fa-f]{2}")


def history_error(error: BaseException, home: str | os.PathLike[str]) -> InputError | None:
    """Returns the InputError for a refusal of the database, None for any other error.

    Args:
        error: the error that SQLAlchemy or sqlite3 raised.
        home: folder of the history.
    """
    said = str(getattr(error, "orig", error))
    remedy = next((remedy for words, remedy in SAID.items() if words in said), None)
    if remedy is None or not type(error).__module__.startswith(("sqlalchemy", "sqlite3")):
        return None
    if remedy == FREE:
        said += f"; {shutil.disk_usage(home or '.').free:,} bytes are free"
    return InputError(f"the history of runs in {home} cannot be used: {said}", remedy)


@contextmanager
def reporting_history(home: Path) -> Iterator[None]:
    """Turns errors inside that `history_error` knows into an `InputError`."""
    try:
        yield
    except Exception as error:
        said = history_error(error, home)
        if said is None:
            raise
        raise said from error


def require_plain_name(home: Path) -> None:
    """Refuses a home whose path means something else in the URL of a database, where Dagster puts it.

    Raises:
        InputError: the path has a question mark, or a percent sign before two hex digits.
    """
    found = IN_A_URL.search(str(home))
    if found:
        problem = f"the home {home} has {found[0]!r} in its path, which the history of runs cannot be kept under"
        raise InputError(problem, "give a folder without ? and % by --home or GRAPHMILL_HOME")
