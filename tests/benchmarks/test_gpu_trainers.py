"""The script for a lent GPU runs on the simulated accelerator, without what such a machine lacks, and reads traces as they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_home import toml_text
from benchmarks.gpu_trace import counted, covered
from benchmarks.gpu_trainers import CASES, check
from graphmill.assets.building.child import child_environment
from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.recipe.techniques import TECHNIQUES

LACKING = (
    "dagster",
    "dagster_pipes",
    "dagster_webserver",
    "dgl",
    "duckdb",
    "polars",
    "pymetis",
    "starlette",
    "tomlkit",
)
"""Packages that a lent machine does not have."""
BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LACKING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
PROGRAM = """
import json, sys, time
from pathlib import Path
from benchmarks.gpu import Size
from benchmarks.gpu_trainers import CASES, Run, check

names = sys.argv[2:]
size = Size(nodes=3000, edges=20_000, seeds=600, epochs=2)
run = Run(Path(sys.argv[1]), size, "simulated", time.monotonic(), [case for case in CASES if case.name in names])
rows = list(run.rows())
check(rows, simulated=True)
print(json.dumps(rows))
"""


def rows_of(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Trains tables in processes that cannot import what a lent machine lacks; returns their rows."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BLOCKED)
    environment = child_environment({"PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))})
    command = [sys.executable, "-c", PROGRAM, str(folder / "run"), *names]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{found.stdout[-3000:]}\n{found.stderr[-3000:]}"
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "names",
    [
        ["minibatch-cached", "fresh-cached", "disk-disk"],
        pytest.param([case.name for case in CASES], marks=pytest.mark.slow("every table of the script")),
    ],
    ids=["three", "all"],
)
def test_tables_are_trained_without_dagster_and_dgl(tmp_path: Path, names: list[str]) -> None:
    rows = rows_of(tmp_path, names)
    assert [row["table"] for row in rows] == [case.name for case in CASES if case.name in names]
    for row in rows:
        assert row["ended"] == "well" and row["copied"]["h2d"] > 0 and row["peak_bytes"] <= row["planned_bytes"]


def test_the_tables_are_of_every_technique() -> None:
    assert {case.trainer for case in CASES} == {*TECHNIQUES}
    assert {case.rows for case in CASES} == {"device", "cached", "pinned", "disk"}


@pytest.mark.parametrize("fault", ["weights", "copied", "waits", "peak_bytes", "ended"])
def test_a_row_that_is_wrong_is_refused(fault: str) -> None:
    row: dict[str, Any] = {
        "table": "one", "trainer": "minibatch", "alike": "batches", "ended": "well", "weights": "a",
        "waits": 1.25, "most_waits": 1, "launches": 9, "batches": 4, "copied": {"h2d": 5, "d2h": 2, "d2d": 0},
        "booked": {"h2d": 5, "d2h": 2}, "peak_bytes": 3, "planned_bytes": 4,
    }  # fmt: skip
    check([row, row | {"table": "two"}], simulated=True)
    wrong = {"weights": "b", "copied": {"h2d": 6, "d2h": 2}, "waits": 1.5, "peak_bytes": 5, "ended": "no"}
    with pytest.raises(AssertionError):
        check([row, row | {"table": "two", fault: wrong[fault]}], simulated=True)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9))))
def test_busy_time_is_the_union_of_spans(spans: list[tuple[int, int]]) -> None:
    busy = {tick for begin, length in spans for tick in range(begin, begin + length)}
    assert covered((begin, begin + length) for begin, length in spans) == len(busy)


def test_a_trace_is_read_by_category_and_name() -> None:
    def event(category: str, name: str, begin: float = 0, length: float = 0, **arguments: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": length, "args": arguments}

    found = counted([
        {"ph": "M", "name": "process_name", "args": {}},
        event("kernel", "gather_tiered", 10, 5),
        event("kernel", "sgemm", 12, 6),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 30, 2, bytes=100),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 31, 2, bytes=1),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 40, 1, bytes=7),
        event("gpu_memcpy", "Memcpy HtoH (Pinned -> Pinned)", 50, 1, bytes=9),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 50, 1, bytes=9),
        event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 50, 1, bytes=3),
        event("gpu_memset", "Memset (Device)", 60, 1),
        event("cuda_runtime", "cudaLaunchKernel"),
        event("cuda_driver", "cuLaunchKernel"),
        event("cuda_runtime", "cudaGraphLaunch"),
        event("cuda_runtime", "cudaMemcpyAsync"),
        event("cuda_runtime", "cudaStreamSynchronize"),
        event("cuda_runtime", "cudaEventSynchronize"),
        event("cuda_runtime", "cudaEventRecord"),
        event("cuda_runtime", "cudaStreamWaitEvent"),
        event("cpu_op", "aten::add"),
    ])  # fmt: skip
    assert found.copied == {"h2d": 101, "d2h": 7, "d2d": 3} and (found.waits, found.launches) == (2, 4)
    assert found.kernels == 2 and found.busy_seconds == pytest.approx((8 + 3 + 1 + 1 + 1) / 1e6)


def test_a_pipeline_file_is_written_as_it_is_read() -> None:
    tables = {"name": "a", "seed": 0, "graph": {"source": "rmat", "edges": 5}, "samples": {}}
    trains = [{"name": "x", "dropout": 0.5, "fresh-factored": {"samplers": 1}}, {"name": "y", "device": "cuda"}]
    assert tomllib.loads(toml_text(tables, trains)) == tables | {"train": trains}
