"""A full disk under the history of runs is one clear error, like one under the store; so is a history that was damaged."""

import re
import sqlite3
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from graphmill.jobs.runs.instance import open_instance, reporting_history
from graphmill.kernels.errors import InputError


@pytest.mark.parametrize("text", ["disk I/O error", "database or disk is full"])
def test_a_full_disk_is_an_input_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=f"{text}.* bytes are free"), reporting_history(tmp_path):
        raise OperationalError("INSERT", {}, sqlite3.OperationalError(text))


def test_other_failures_of_the_history_keep_their_traceback(tmp_path: Path) -> None:
    with pytest.raises(OperationalError), reporting_history(tmp_path):
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("UNIQUE constraint failed: runs.id"))
    with pytest.raises(KeyError), reporting_history(tmp_path):
        raise KeyError("a defect")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET run_body = substr(run_body, 2)",
        "UPDATE runs SET run_body = replace(run_body, 'PipelineRun', 'PipelineRum')",
        "UPDATE runs SET run_body = replace(run_body, 'PipelineRunStatus.', 'PipelineRunStatus,')",
        "UPDATE runs SET run_body = replace(run_body, 'NOT_STARTED', 'NOT_STARTEE')",
        "UPDATE runs SET run_body = CAST(x'7bff' || run_body AS TEXT)",
        "ALTER TABLE runs RENAME COLUMN run_body TO rum_body",
    ],
)
def test_a_damaged_row_is_an_input_error(tmp_path: Path, damage: str) -> None:
    """SQLite has no digests, so a flipped bit is first seen by Dagster, which takes it for a defect."""
    with open_instance(tmp_path) as instance:
        run_id = instance.create_run_for_job(_nothing).run_id
    with sqlite3.connect(tmp_path / "history" / "runs.db") as history:
        history.execute(damage)
    said = rf"the history of runs in {re.escape(str(tmp_path))} cannot be used: (.|\n)*move the folder history/ away"
    with pytest.raises(InputError, match=said), reporting_history(tmp_path), open_instance(tmp_path) as instance:
        instance.get_run_records()
    (tmp_path / "history").rename(tmp_path / "aside")
    with open_instance(tmp_path) as instance:
        assert instance.get_run_by_id(run_id) is None


@dg.job
def _nothing() -> None:
    """A job without steps."""
