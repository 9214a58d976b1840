"""The peaks of stages are those that were promised, seen from outside."""

import pytest

from benchmarks.needs import measured

MIB = 1 << 20


@pytest.mark.slow("formulas of memory against the processes of a build")
def test_no_stage_takes_more_than_it_said(tmp_path) -> None:
    rows = {row["step"]: row for row in measured(tmp_path, 1 / 128)}
    assert {"graph", "hotness", "samples", "cache_plan", "packed_chunks", "command"} <= set(rows)
    for step, row in rows.items():
        said, peak = row["exact_bytes"], row["peak_bytes"]
        assert 0.8 * said - 32 * MIB <= peak <= 1.2 * said + 32 * MIB, (step, said / MIB, peak / MIB)
        assert said <= row["before_bytes"] * 1.01, step
