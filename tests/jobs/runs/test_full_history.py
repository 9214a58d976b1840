"""A full disk under the history of runs is one clear error, like one under the store."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from jobs.runs.instance import reporting_history
from kernels.errors import InputError


@pytest.mark.parametrize("text", ["disk I/O error", "database or disk is full"])
def test_a_full_disk_is_an_input_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=f"{text}.* bytes are free"), reporting_history(tmp_path):
        raise OperationalError("INSERT", {}, sqlite3.OperationalError(text))


def test_other_failures_of_the_history_keep_their_traceback(tmp_path: Path) -> None:
    with pytest.raises(OperationalError), reporting_history(tmp_path):
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("no such table: runs"))
