"""Encoders of large tables keep to their memory, and give the same bytes at one thread and at two."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.groups import run_limited
from tests.assets.sources.encoders.large import CASES, write_table

ROOT = Path(__file__).parents[4]
LIMIT_BYTES = 1 << 30
MOST_SECONDS = 7200


def digests(folder: Path, cases: Sequence[str], threads: int) -> dict[str, str]:
    """Fits and encodes each table in one process that may hold 1 GiB; returns the digest of each."""
    command = [sys.executable, "-m", "tests.assets.sources.encoders.large", str(folder), str(threads), *cases]
    found = run_limited(command, folder, LIMIT_BYTES, MOST_SECONDS, {"PYTHONPATH": str(ROOT)})
    assert found["ended"] == "well", found["said"]
    assert found["anonymous_bytes"] <= LIMIT_BYTES
    lines = [line.split(maxsplit=1) for line in found["said"].splitlines()]
    assert [name for name, _ in lines] == [*cases]
    return dict(lines)


def check(folder: Path, cases: Sequence[str], rows: int) -> None:
    for case in cases:
        write_table(folder / f"{case}.parquet", case, rows)
    one, two = (digests(folder, cases, threads) for threads in (1, 2))
    for case in cases:
        (folder / f"{case}.parquet").unlink()
    assert one == two


def test_all_encoders_give_the_same_bytes_at_one_thread_and_two(tmp_path: Path) -> None:
    check(tmp_path, [*CASES], 200_000)


@pytest.mark.slow(
    "encoders of 50 million rows in a control group of 1 GiB, with the same bytes at one thread and at two"
)
@pytest.mark.parametrize("case", CASES)
def test_fifty_million_rows_are_encoded_in_one_gib(tmp_path: Path, case: str) -> None:
    faulthandler.cancel_dump_traceback_later()  # `run_limited` ends what hangs, later than the limit of other tests
    check(tmp_path, [case], 50_000_000)
