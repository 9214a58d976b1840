"""Commands in a control group with a memory limit: what they hold, what they read, and whether they end.

The limit bounds everything that the command and its children hold, the page cache included. So the files of the home are dropped from the
page cache before each command: pages that another group holds would cost this one nothing. Where no group can be made, commands run
without a limit, and the memory of their processes is summed from outside.

Bytes read are those that the kernel counted for the command and its children (`ru_inblock`): reads past the page cache and page faults,
whatever else uses the device meanwhile. Those of a command that was stopped are lost with it; then it is what the device has read.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.elsewhere import counters
from graphmill.assets.sizes import format_bytes

SECTOR_BYTES = 512
LOOKS_SECONDS = 0.05
SAID_AT_MOST = 1 << 16


class Group:
    """A control group with a memory limit, version 1 or 2, watched while it is open.

    Attributes:
        limited: whether the group could be made.
        anonymous_bytes: the largest memory that the kernel cannot take back.
        peak_bytes: the largest memory with the page cache; without a group 0.
    """

    def __init__(self, limit_bytes: int):
        memory = Path("/sys/fs/cgroup/memory")
        self.old = memory.is_dir()
        self.folder = (memory if self.old else Path("/sys/fs/cgroup")) / f"graphmill-{os.getpid()}"
        self.limit, self.anonymous_bytes, self.peak_bytes = limit_bytes, 0, 0
        self.session: int | None = None
        self._done = threading.Event()

    def __enter__(self) -> Group:
        try:
            self.folder.mkdir()
            (self.folder / ("memory.limit_in_bytes" if self.old else "memory.max")).write_text(str(self.limit))
            self.limited = True
        except OSError as error:
            print(f"no control group can be made ({error}): nothing is limited")
            self.limited = False
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watch.join()
        if self.limited:
            peak = self.folder / ("memory.max_usage_in_bytes" if self.old else "memory.peak")
            self.peak_bytes = int(peak.read_text()) if peak.exists() else 0
        for _ in range(100 if self.limited else 0):
            try:
                self.folder.rmdir()
                break
            except OSError:  # its last process is not gone yet
                time.sleep(0.1)

    def inside(self, command: list[str]) -> list[str]:
        """Returns the command that runs another one in the group."""
        enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]
        return enter + command if self.limited else command

    def stop(self) -> None:
        """Ends every process of the group at once."""
        processes = (self.folder / "cgroup.procs").read_text().split() if self.limited else ()
        for process in processes:
            try:
                os.kill(int(process), signal.SIGKILL)
            except ProcessLookupError:  # it has ended meanwhile
                continue

    def _look(self) -> None:
        name = "total_rss" if self.old else "anon"
        while not self._done.wait(LOOKS_SECONDS):
            if self.limited:
                words = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
                now = int(words[name])
            else:
                now = _anonymous_of(self.session)
            self.anonymous_bytes = max(self.anonymous_bytes, now)


def run_limited(
    command: list[str],
    folder: Path,
    limit_bytes: int,
    seconds: float,
    environment: dict[str, str] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Runs a command in a group of its own, with the files of `folder` dropped from the page cache.

    Args:
        command: what to run, in `folder`.
        folder: holds the files that it reads.
        limit_bytes: memory of the group.
        seconds: time after which it is stopped.
        environment: variables beside those of this process.
        stopped: asked again and again; once it is true, the command is killed as if its time were over.

    Returns:
        {"ended", "seconds", "cores_of_others", "anonymous_bytes", "peak_bytes", "read_bytes", "said"}: "ended" is "well", "badly" or
        "by time"; of the last, the command's own work counts as that of others.
    """
    drop_pages(folder)
    before, started, work = _device_bytes(folder), time.perf_counter(), counters()
    with tempfile.TemporaryFile("w+") as said, Group(limit_bytes) as group:
        process = subprocess.Popen(
            group.inside(command),
            cwd=folder,
            env=os.environ | (environment or {}),
            start_new_session=True,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        group.session = process.pid
        try:
            ended, read_bytes = _waited(process, started + seconds, stopped)
        finally:
            if process.returncode is None:
                read_bytes = _device_bytes(folder) - before
                os.killpg(process.pid, signal.SIGKILL)
                group.stop()
                process.wait()
        took, busy, own = (after - was for after, was in zip(counters(), work, strict=True))
        said.seek(0)
        text = said.read()
    row = {"ended": ended, "seconds": round(took, 2), "cores_of_others": round(max(0.0, busy - own) / took, 2)}
    row["anonymous_bytes"] = group.anonymous_bytes
    return row | {"peak_bytes": group.peak_bytes, "read_bytes": read_bytes, "said": text[-SAID_AT_MOST:]}


def _waited(process: subprocess.Popen[bytes], until: float, stopped: Callable[[], bool]) -> tuple[str, int]:
    """Returns how a process has ended, and the bytes that it and its children read from devices."""
    while time.perf_counter() < until and not stopped():
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            process.returncode = os.waitstatus_to_exitcode(status)
            return "badly" if process.returncode else "well", usage.ru_inblock * SECTOR_BYTES
        time.sleep(0.01)
    return "by time", 0


def told(name: str, row: dict[str, Any]) -> str:
    """Returns a line about a command that was run."""
    held = f"{format_bytes(row['anonymous_bytes'])} held, {format_bytes(row['peak_bytes'])} with the page cache"
    beside = f"{row['cores_of_others']:.1f} cores worked for others"
    return f"{name}: ended {row['ended']} after {row['seconds']:.1f} s, {held}, {format_bytes(row['read_bytes'])} read; {beside}"


def drop_pages(folder: Path) -> None:
    """Drops all files of a folder from the page cache."""
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _device_bytes(folder: Path) -> int:
    """Returns the bytes that the folder's device has read since it was started; others that read from it count, too."""
    device = os.stat(folder).st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(place.read_text().split()[2]) * SECTOR_BYTES if place.exists() else 0


def _anonymous_of(session: int | None) -> int:
    """Returns the anonymous bytes of all processes that descend from one."""
    if session is None:
        return 0
    family, total = {session}, 0
    for folder in sorted((each for each in Path("/proc").iterdir() if each.name.isdigit()), key=lambda p: int(p.name)):
        try:
            words = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
            )  # the process may end between the two
        except OSError:
            continue
        if int(folder.name) in family or int(words["PPid"]) in family:
            family.add(int(folder.name))
            total += int(words.get("RssAnon", "0 kB").split()[0]) * 1024
    return total
