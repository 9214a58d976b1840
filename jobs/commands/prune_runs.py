"""`graphmill prune-runs`: shows the runs that the history may forget, asks, and removes them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from assets.sizes import format_bytes
from assets.storage.home import home_folder
from jobs.commands.gc import confirmed
from jobs.runs.history_errors import reporting_history
from jobs.runs.instance import open_instance
from jobs.runs.prune import find_old_runs, remove_runs
from kernels.errors import InputError

AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(min|h|d|w)")
SECONDS = {"min": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_age(text: str) -> float:
    """Returns the seconds that an age names: "30d", "12h", "2w", "90min".

    Raises:
        InputError: `text` is not an age.
    """
    match = AGE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no age", "write a number with min, h, d or w, such as 30d")
    return float(match[1]) * SECONDS[match[2]]


def prune_runs(
    home: Path | None, older: str, report: Callable[[str], None], *, yes: bool = False, dry_run: bool = False
) -> int:
    """Removes old runs from the history after showing them and asking. Returns the number of removed runs.

    Args:
        home: home of the history, None for the default.
        older: age from which finished runs are removed, as in "30d".
        report: function that gets lines.
        yes: do not ask.
        dry_run: only show.

    Raises:
        InputError: `older` is not an age, or no terminal is there to answer.
    """
    before, folder = time.time() - parse_age(older), home_folder(home)
    with reporting_history(folder), open_instance(folder) as instance:
        old = find_old_runs(instance, folder, before)
        for run in old:
            ended = datetime.fromtimestamp(run.ended).astimezone().strftime("%Y-%m-%d %H:%M")
            report(f"remove  {run.run_id[:8]}  {ended}  {run.status:8}  {format_bytes(run.num_bytes):>10}  {run.job}")
        report(
            f"{len(old)} runs to remove, {format_bytes(sum(run.num_bytes for run in old))} in {folder}; artifacts stay"
        )
        if not old or dry_run:
            return 0
        if not yes and not confirmed():
            report("nothing was removed")
            return 0
        remove_runs(instance, folder, old)
    report(f"removed {len(old)} runs")
    return len(old)
