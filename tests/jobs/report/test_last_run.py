"""The newest run of a pipeline in the history."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from graphmill.jobs.operations.difference import PIPELINE_TAG
from graphmill.jobs.report.facts import find_last_run
from graphmill.jobs.runs.instance import SETTINGS, open_instance


def test_the_newest_run_of_the_pipeline_counts(tmp_path: Path) -> None:
    assert find_last_run(tmp_path, "tiny") is None and not any(tmp_path.iterdir())
    with open_instance(tmp_path) as instance:
        for name, status in (
            ("tiny", dg.DagsterRunStatus.SUCCESS),
            ("tiny", dg.DagsterRunStatus.STARTED),
            ("other", dg.DagsterRunStatus.FAILURE),
        ):
            instance.add_run(dg.DagsterRun(job_name=f"{name}__all", tags={PIPELINE_TAG: name}, status=status))
    found, other = find_last_run(tmp_path, "tiny"), find_last_run(tmp_path, "other")
    assert found is not None and (found.status, found.over) == ("STARTED", False)
    assert other is not None and (other.status, other.over, other.failures) == ("FAILURE", True, ())
    assert find_last_run(tmp_path, "third") is None


def test_a_history_that_cannot_be_read_hides_no_models(tmp_path: Path) -> None:
    (tmp_path / SETTINGS).write_text("storage: [1, 2")
    assert find_last_run(tmp_path, "tiny") is None
