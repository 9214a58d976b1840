"""What an attack is, and how one is carried out: in a child process, from a number that says everything about it.

An attack ends in one of four ways. Two are right: what was damaged is refused by one message (`InputError`), or the result is that of a
sound run. Two are not: a wrong result that is taken for a right one, and anything else than a message, such as a traceback, a signal or
no end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphmill.kernels.errors import InputError

REFUSED, SOUND, WRONG, TRACEBACK = "refused", "sound", "wrong", "traceback"
LONGEST_MESSAGE = 20_000
PATIENCE = 120.0
"""Seconds after which an attack counts as one that never ends."""


class WrongError(AssertionError):
    """A result that is neither refused nor right."""


def require_message(error: InputError) -> None:
    """Refuses an error that says nothing, or more than somebody could read."""
    if not error.problem or len(str(error)) > LONGEST_MESSAGE:
        raise WrongError(f"no message that somebody could read: {str(error)[:200]!r}")


Attack = Callable[[int, Path], str]
"""(seed, an empty folder) -> `REFUSED` or `SOUND`; raises `WrongError`, or whatever an attacked step raised."""


@dataclass
class Tally:
    """What became of the attacks of one kind.

    Attributes:
        counts: way -> number of attacks that ended so.
        failures: (seed, what was said) of those that ended in a way that is not right.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((REFUSED, SOUND, WRONG, TRACEBACK), 0))
    failures: list[tuple[int, str]] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """Number of attacks."""
        return sum(self.counts.values())

    def add(self, seed: int, way: str, said: str = "") -> None:
        """Counts one."""
        self.counts[way] += 1
        if way in (WRONG, TRACEBACK):
            self.failures.append((seed, said))


def carried_out(attack: Attack, seeds: Sequence[int], folder: Path) -> list[tuple[str, str]]:
    """Carries out attacks in a child process, one after the other; where it dies, each in one of its own.

    Returns:
        The way each ended, and what was said of one that did not end as it should.
    """
    found = in_child(lambda: [_named(attack, seed, folder) for seed in seeds])
    if isinstance(found, list):  # ("died", how) is a tuple
        return [(way, said) for way, said in found]
    return [(TRACEBACK, found[1])] if len(seeds) == 1 else [carried_out(attack, [seed], folder)[0] for seed in seeds]


def _named(attack: Attack, seed: int, folder: Path) -> tuple[str, str]:
    try:
        return attack(seed, folder), ""
    except WrongError as error:
        return WRONG, str(error)
    except InputError:
        return REFUSED, ""
    except Exception:
        return TRACEBACK, traceback.format_exc()


def in_child(work: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Returns what a function returns in a forked child, as JSON gives it back, or ("died", how) where the child ended otherwise."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setpgid(0, 0)
        with open(writer, "w", encoding="utf-8") as file:
            json.dump(work(), file)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        there, _, _ = select.select([file], [], [], patience)
        data = file.read() if there else b""
    if not there:
        kill_group(child)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if data and status == 0:
        return json.loads(data)
    return "died", "it never ends" if not there else f"the process ended with {status}"


def started(work: Callable[[], Any]) -> int:
    """Starts a function in a forked child that leads its process group; returns its id. Input errors end it with 2, others with 1."""
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    try:
        work()
        os._exit(0)
    except InputError:
        os._exit(2)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child: int, patience: float = PATIENCE) -> int:
    """Waits for a child of `started`, and kills its group when it takes too long; returns its exit status."""
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    kill_group(child)
    os.waitpid(child, 0)
    raise WrongError("a process never ends")


def kill_group(child: int) -> None:
    """Kills the process group of a child."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
