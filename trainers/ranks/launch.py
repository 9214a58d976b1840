"""Starts the ranks of a training on this machine, passes on their output, and ends all of them when one fails.

Ranks stay in the process group of their launcher: an interrupt reaches all of them, and the guard of a run (jobs/runs/guard.py) ends
launcher and ranks together. Each rank also asks the system to be killed with its launcher, so a launcher that is killed leaves nothing.
(torchrun starts each worker in its own session, which a group kill does not reach; its workers end with it in the same way.)

Time that a failure takes to end the run:

    a rank ends, by a signal, an error or a lack of memory   at once its peers lose the connection; the rest is ended after SETTLE_SECONDS
    a rank hangs                                             its peers wait for `timeout` (45 s) and end; then the same
    a rank stands still before the training begins           its peers wait for 40 s (trainers/ranks/meeting.py) and end; then the same

Ranks that do not end when they are told add at most GRACE_SECONDS. The error names the rank at fault: the first that ended by a signal or
an error of its own, or those that still ran when all others had waited for them in vain.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from assets.building.child import child_environment, note_kills, why_aborted, why_killed
from assets.storage.home import ROOT
from kernels.cuda.driver import VISIBLE, gpu_of_rank
from kernels.errors import InputError

EXIT_PEER = 75
"""Exit code of a rank that lost another one."""
SETTLE_SECONDS, GRACE_SECONDS, POLL_SECONDS = 3.0, 3.0, 0.05
JOIN_SECONDS = 10.0
LAST_LINES = 8
LISTENER, ERRORS, PARENT = "GRAPHMILL_RANKS_LISTENER", "GRAPHMILL_RANK_ERRORS", "GRAPHMILL_RANKS_PARENT"
"""Environment of a rank: descriptor of the socket at which the ranks meet ("" except at the first), descriptor for its input error, id of
its launcher."""


MOST_RANKS = 1 << 20


def launcher_number(name: str, otherwise: str, least: int, most: int) -> int:
    """Returns a whole number that a launcher has set in the environment.

    Args:
        name: the variable.
        otherwise: its text where it is not set.
        least, most: range of the number.

    Raises:
        InputError: the text is something else than a whole number in the range.
    """
    text = os.environ.get(name, otherwise)
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or not least <= int(text) <= most:
        problem = f"the environment says {name} = {text!r}, where a whole number from {least} to {most} is needed"
        raise InputError(problem, "start ranks by graphmill train --ranks or by torchrun, which set it; or unset it")
    return int(text)


def asked_ranks() -> tuple[int, int]:
    """Returns (rank, world) from the environment that a launcher has set, (0, 1) without a launcher.

    Raises:
        InputError: they are not numbers, or no rank of such a world.
    """
    world = launcher_number("WORLD_SIZE", "1", 1, MOST_RANKS)
    return launcher_number("RANK", "0", 0, world - 1), world


def launcher_id() -> int:
    """Returns the process id of the launcher of this rank.

    Raises:
        InputError: the variable does not say one.
    """
    return launcher_number(PARENT, "", 1, 1 << 22)


class RankError(InputError):
    """A rank failed, and the run ended with it."""


def run_ranks(
    command: Sequence[str],
    order: Mapping[str, Any],
    world: int,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Runs a command once per rank until all have ended.

    Args:
        command: program and arguments of a rank.
        order: the order that each rank reads from its standard input as JSON.
        world: number of ranks.
        tell: receives every line that the first rank writes to its standard error.

    Raises:
        InputError: a rank raised it.
        RankError: a rank failed otherwise; the message names it and contains its last lines.
        KeyboardInterrupt: an interrupt came; the ranks are gone.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ranks: list[_Rank] = []
        try:
            note_kills()
            for number in range(world):
                ranks.append(_Rank(number, world, command, json.dumps(order), listener, tell))
            while any(rank.process.poll() is None for rank in ranks) and not any(rank.failed for rank in ranks):
                time.sleep(POLL_SECONDS)
            if any(rank.failed for rank in ranks):
                _settle(ranks)
                raise _error(ranks)
        finally:
            _end(ranks)


class _Rank:
    """A running rank."""

    def __init__(
        self,
        number: int,
        world: int,
        command: Sequence[str],
        order: str,
        listener: socket.socket,
        tell: Callable[[str], None],
    ):
        self.number, self.last = number, deque[str](maxlen=LAST_LINES)
        errors, self._errors = os.pipe()
        passed = [self._errors, *([listener.fileno()] if number == 0 else [])]
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}
        more = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(world), PARENT: str(os.getpid())}
        if gpu := gpu_of_rank(number, os.environ):
            more[VISIBLE] = gpu
        more |= {ERRORS: str(self._errors), LISTENER: str(listener.fileno()) if number == 0 else ""}
        environment = {
            name: value for name, value in child_environment(where | more).items() if not name.startswith("DAGSTER_")
        }
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # In the process group of its launcher: a kill of the group ends the ranks, too.
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=passed, text=True, errors="replace", **streams
        )
        os.close(self._errors)
        assert self.process.stdin and self.process.stdout and self.process.stderr
        with suppress(BrokenPipeError):
            self.process.stdin.write(order)
            self.process.stdin.close()
        self.said = ""
        copies = [(self._copy_out, self.process.stdout), (self._copy_errors, self.process.stderr)]
        self.threads = [threading.Thread(target=copy, args=(stream,), daemon=True) for copy, stream in copies]
        self.threads.append(threading.Thread(target=self._read_problem, args=(errors,), daemon=True))
        self.tell = tell if number == 0 else lambda line: None
        for thread in self.threads:
            thread.start()

    @property
    def failed(self) -> bool:
        """Whether it ended with a failure."""
        return self.process.poll() not in (None, 0)

    @property
    def at_fault(self) -> bool:
        """Whether it ended by an error of its own, or a signal."""
        return self.failed and self.process.returncode != EXIT_PEER

    def _copy_out(self, stream: IO[str]) -> None:
        for line in stream:
            self._print(line.rstrip("\n") if self.number == 0 else line.rstrip(), sys.stdout)

    def _copy_errors(self, stream: IO[str]) -> None:
        for line in stream:
            text = line.rstrip("\n")
            self.last.append(text)
            self._print(text, sys.stderr)
            self.tell(text)

    def _print(self, text: str, stream: IO[str]) -> None:
        # In one write: threads that write a line and its end separately would mix their lines.
        stream.write(f"{text}\n" if self.number == 0 else f"[rank {self.number}] {text}\n")
        stream.flush()

    def _read_problem(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as pipe:
            self.said = pipe.read()

    def join(self) -> None:
        """Waits for the rest of its output, until its streams end; a process that it left behind may keep them open."""
        for thread in self.threads:
            thread.join(JOIN_SECONDS)


def _settle(ranks: Sequence[_Rank]) -> None:
    """Gives the other ranks time to notice by themselves; their exit codes then show which rank was at fault."""
    limit = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < limit and any(rank.process.poll() is None for rank in ranks):
        time.sleep(POLL_SECONDS)
    for rank in ranks:
        if rank.process.returncode is not None:
            rank.join()


def _error(ranks: Sequence[_Rank]) -> InputError:
    """Returns the error with which the run ends."""
    for rank in ranks:
        if rank.said:
            said = json.loads(rank.said)
            return InputError(said["problem"], said["remedy"])
    if all(rank.process.returncode in (None, 0, -signal.SIGINT, 130) for rank in ranks):
        raise KeyboardInterrupt
    wrong = [rank for rank in ranks if rank.at_fault]
    killed = [rank for rank in wrong if rank.process.returncode < 0]
    late = [rank for rank in ranks if rank.process.returncode is None]
    chosen = killed or wrong or late or [rank for rank in ranks if rank.failed]
    names = ", ".join(str(rank.number) for rank in chosen)
    what = f"rank {names} of {len(ranks)} {_how(chosen[0])}"
    lines = "".join(f"\n  {line}" for line in chosen[0].last)
    said = f"; its last lines:{lines}" if lines else "; it wrote no line"
    return RankError(f"{what}{said}", "--resume goes on from the last checkpoint, on any number of ranks")


def _how(rank: _Rank) -> str:
    code = rank.process.returncode
    if code is None:
        return "did not answer: the others waited for it until their timeout"
    if code == -signal.SIGKILL:
        return f"was killed (SIGKILL, {why_killed()})"
    if code == -signal.SIGABRT and (why := why_aborted()):
        return f"gave up, {why}"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _end(ranks: Sequence[_Rank]) -> None:
    """Ends the ranks that still run."""
    for stop in (subprocess.Popen.terminate, subprocess.Popen.kill):
        for rank in ranks:
            if rank.process.poll() is None:
                stop(rank.process)
        limit = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < limit and any(rank.process.poll() is None for rank in ranks):
            time.sleep(POLL_SECONDS)
    for rank in ranks:
        rank.join()
