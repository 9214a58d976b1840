"""The meeting of a training's ranks: each shows its progress until all have arrived, and one that stands still ends the wait.

Before it trains, a rank imports its libraries, finds its artifacts and may take digests of raw files: seconds on one machine, minutes on
another. So no fixed time separates a slow rank from one that hangs. Work does: a thread of each rank writes to the store at which they meet
the CPU time that its process has used and the bytes that it has read from disks. A rank that has arrived waits as long as one of the two
grows at every missing rank, and blames a rank at which both stand still for SILENCE_SECONDS, or which has never written them in that time.

Known limit: a rank that hangs while it computes, in a loop without end, looks like one that works; it ends the wait after MEETING_SECONDS.
"""

import datetime
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from graphmill.kernels import environment
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.launch import LISTENER, MOST_RANKS, launcher_number

MEETING_SECONDS = 3600.0
"""Seconds for which a rank waits for others that are at work."""
SILENCE_SECONDS = 40.0
"""Seconds for which a rank may do nothing before all have arrived."""
BEAT_SECONDS = 1.0
CPU_STEP, BYTES_STEP = 0.05, 1 << 16
"""The least work that counts, in seconds and bytes: more than the writing thread and the store use themselves."""
ARRIVED, WORKING = "graphmill/arrived/{}", "graphmill/working/{}"
"""Keys of a rank in the store."""


class LateRank(RuntimeError):
    """A rank did not come to the meeting."""


class Meeting:
    """A rank on its way to the meeting; one may be silent for `silence` seconds, and this one gives a sign every `beat` seconds."""

    def __init__(
        self, store: Store, rank: int, world: int, silence: float = SILENCE_SECONDS, beat: float = BEAT_SECONDS
    ):
        self.store, self.rank, self.world, self.silence, self.beat = store, rank, world, silence, beat
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="meeting", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits until all ranks have arrived; raises LateRank if one stands still, or has not come in MEETING_SECONDS."""
        self.store.set(ARRIVED.format(self.rank), "1")
        missing, began = [rank for rank in range(self.world) if rank != self.rank], time.monotonic()
        # Rank -> its last sign, and the seconds without another one.
        signs: dict[int, tuple[bytes, float]] = {rank: (b"", 0.0) for rank in missing}
        looked = began
        while missing := [rank for rank in missing if not self.store.check([ARRIVED.format(rank)])]:
            now = time.monotonic()
            # If this process itself stood still (on a suspended machine), that time does not count: the other's sign may be on its way.
            passed, looked = min(now - looked, 5 * self.beat), now
            for rank in missing:
                key = WORKING.format(rank)
                sign = self.store.get(key) if self.store.check([key]) else b""
                signs[rank] = sign, signs[rank][1] + passed if sign == signs[rank][0] else 0.0
            still = [rank for rank in missing if signs[rank][1] > self.silence]
            if still:
                raise LateRank(_standing(still[0], self.world, self.silence, never=not signs[still[0]][0]))
            if now - began > MEETING_SECONDS:
                raise LateRank(
                    f"rank {missing[0]} of {self.world} was at work for {MEETING_SECONDS:g} s and did not come"
                )
            time.sleep(self.beat / 5)

    def close(self) -> None:
        """Stops the signs of this rank."""
        self._ended.set()
        self._thread.join()

    def _tell(self) -> None:
        told = (-1, -1)
        while not self._ended.is_set():
            if (now := _work_done()) != told:
                # The store ends with a rank that failed; this rank notices that in `wait`.
                with suppress(RuntimeError):
                    self.store.set(WORKING.format(self.rank), f"{now[0]} {now[1]}")
                told = now
            self._ended.wait(self.beat)


def open_store(rank: int, world: int) -> Store:
    """Returns the store at which the ranks meet, at MASTER_ADDR and MASTER_PORT: the launcher's socket, or torchrun's.

    Raises:
        InputError: the two are not set.
        LateRank: the store does not answer: the first rank stands still before it has opened it.
    """
    missing = [name for name in (environment.MASTER_ADDR, environment.MASTER_PORT) if not environment.is_set(name)]
    if missing:
        problem = f"WORLD_SIZE = {world}, but {' and '.join(missing)} are not set"
        raise InputError(problem, "start ranks by graphmill train --ranks or by torchrun, which set them")
    port = launcher_number("MASTER_PORT", "", 1, 65535)
    limit = datetime.timedelta(seconds=SILENCE_SECONDS)
    listener = environment.read(LISTENER) if environment.is_set(LISTENER) else None
    if listener is None:
        _await_address(rank, world, port)
        try:
            found = dist.rendezvous("env://", rank, world, timeout=limit)  # pyright: ignore[reportPrivateImportUsage]
            store, _, _ = next(iter(found))
        except RuntimeError as error:  # with C++ frames in its text
            raise _no_meeting(rank, world) from error
        return store
    more: dict[str, Any] = {"timeout": limit, "wait_for_workers": False}
    if listener:
        more["master_listen_fd"] = launcher_number(LISTENER, "", 0, MOST_RANKS)
    address = environment.read(environment.MASTER_ADDR)
    # The launcher's socket accepts connections before the first rank answers them, and torch then waits without a limit.
    return _within(
        SILENCE_SECONDS,
        lambda: dist.TCPStore(address, port, world, rank == 0, **more),  # pyright: ignore[reportPrivateImportUsage]
        _standing(0, world, SILENCE_SECONDS, never=True),
    )


def _await_address(rank: int, world: int, port: int) -> None:
    """Waits until the first rank answers, which itself only needs the address: torch would try for minutes and log its C++ frames.

    Raises:
        InputError: nobody answers within SILENCE_SECONDS.
    """
    address, limit = environment.read(environment.MASTER_ADDR), time.monotonic() + SILENCE_SECONDS
    while time.monotonic() < limit:
        if rank == 0:
            with suppress(OSError, UnicodeError):
                socket.getaddrinfo(address, port)
                return
        elif environment.answers(address, str(port)):
            return
        time.sleep(BEAT_SECONDS / 5)
    raise _no_meeting(rank, world)


def _no_meeting(rank: int, world: int) -> InputError:
    """Returns the error of a rank whose launcher's address does not answer."""
    where = f"{environment.read(environment.MASTER_ADDR)}:{environment.read(environment.MASTER_PORT)}"
    problem = (
        f"this process is rank {rank} of {world}, and the ranks cannot meet at {where} (tried for {SILENCE_SECONDS:g} s): nobody answers "
        f"there, or another program has the port{_told()}"
    )
    return InputError(problem, "start all ranks by one launcher, such as torchrun, or unset the variables")


def _told() -> str:
    """Returns words about the variables by which a launcher numbered this rank; "" for a rank that graphmill started."""
    if environment.is_set(LISTENER):
        return ""
    told = (f"{name}={environment.read(name)}" for name in environment.MEETING if environment.is_set(name))
    return f"; the environment says {', '.join(told)}, which a launcher that is gone may have left"


def _within(seconds: float, call: Callable[[], Store], problem: str) -> Store:
    """Returns the result of a call; after `seconds` seconds it leaves the thread that makes it behind, and raises LateRank."""
    found: Future[Store] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:  # it belongs to the thread that waits
            found.set_exception(error)

    threading.Thread(target=run, name="store", daemon=True).start()
    if not wait([found], seconds).done:
        raise LateRank(problem)
    return found.result()


def _work_done() -> tuple[int, int]:
    """Returns the steps of CPU time that this process has used, without the calling thread, and of bytes that it has read from disks."""
    counters = Path("/proc/self/io")
    lines = counters.read_text().splitlines() if counters.exists() else []
    read = next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), 0)
    return int((time.process_time() - time.thread_time()) / CPU_STEP), read // BYTES_STEP


def _standing(rank: int, world: int, silence: float, *, never: bool) -> str:
    what = "gave no sign" if never else "used no CPU time and read nothing"
    return f"rank {rank} of {world} {what} for {silence:g} s before the training began{_told()}"
