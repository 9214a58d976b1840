"""Starts the ranks of a training on this machine, passes on their output, and ends all of them when one fails.

The ranks of a training on a cluster (trainers/ranks/cluster/) are watched and ended by the same functions; their processes run beside a
supervisor on their node.

Ranks stay in the process group of their launcher: an interrupt reaches all of them, and the guard of a run (assets/building/guard.py) ends
launcher and ranks together. Each rank also asks the system to be killed with its launcher, so a launcher that is killed leaves nothing.
(torchrun starts each worker in its own session, which a group kill does not reach; its workers end with it in the same way.)

Time that a failure takes to end the run:

    a rank ends, by a signal, an error or a lack of memory   at once its peers lose the connection; the rest is ended after SETTLE_SECONDS
    a rank hangs                                             its peers wait for `timeout` (45 s) and end; then the same
    a rank stands still before the training begins           its peers wait for 40 s (trainers/ranks/meeting.py) and end; then the same

Ranks that do not end when they are told add at most GRACE_SECONDS. The error names the rank at fault: the first that ended by a signal or
an error of its own, or those that still ran when all others had waited for them in vain.
"""

import json
import os
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphmill.assets.building.child import ERR, Child, child_environment, how_ended
from graphmill.assets.storage.names.home import IMPORTED_FROM
from graphmill.kernels import environment
from graphmill.kernels.cuda.driver import VISIBLE, gpu_of_rank, require_gpus
from graphmill.kernels.errors import InputError

EXIT_PEER = 75
"""Exit code of a rank that lost another one."""
SETTLE_SECONDS, GRACE_SECONDS, POLL_SECONDS = 3.0, 3.0, 0.05
LAST_LINES = 8
LISTENER, ERRORS, PARENT = environment.RANKS_LISTENER, environment.RANK_ERRORS, environment.RANKS_PARENT
"""Environment of a rank: descriptor of the socket at which the ranks meet ("" except at the first), descriptor for its input error, id of
its launcher."""


MOST_RANKS = 1 << 20


def launcher_number(name: str, otherwise: str, least: int, most: int) -> int:
    """Returns a whole number that a launcher has set, `otherwise` without one; raises InputError for anything else."""
    remedy = "start ranks by graphmill train --ranks or by torchrun, which set it; or unset it"
    return environment.whole_number(name, otherwise, least, most, remedy)


def asked_ranks() -> tuple[int, int]:
    """Returns (rank, world) as a launcher has set them, (0, 1) without one; raises InputError if there is no such rank in it."""
    world = launcher_number("WORLD_SIZE", "1", 1, MOST_RANKS)
    return launcher_number("RANK", "0", 0, world - 1), world


def launcher_id() -> int:
    """Returns the process id of the launcher of this rank; raises InputError if the variable does not say one."""
    return launcher_number(PARENT, "", 1, 1 << 22)


class RankError(InputError):
    """A rank failed, and the run ended with it."""


def run_ranks(
    command: Sequence[str],
    order: Mapping[str, Any],
    world: int,
    tell: Callable[[str], None] = lambda line: None,
    gpus: int = 1,
) -> None:
    """Runs a command once per rank until all have ended.

    Args:
        tell: receives every line that the first rank writes to its standard error.
        gpus: number of GPUs that each rank sees, if there are as many.

    Raises:
        InputError: a rank raised it, or there are too few GPUs.
        RankError: a rank failed otherwise; the message names it and contains its last lines.
        KeyboardInterrupt: an interrupt came; the ranks are gone.
    """
    require_gpus(world, gpus, environment.all_variables())
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}
        ranks: list[LocalRank] = []
        try:
            for number in range(world):
                more = where | rank_variables(number, number, world)
                if gpu := gpu_of_rank(number, environment.all_variables(), gpus):
                    more[VISIBLE] = gpu
                ranks.append(LocalRank(number, command, json.dumps(order), more, listener, tell))
            await_ranks(ranks)
            if any(rank.failed for rank in ranks):
                settle(ranks)
                raise rank_error(ranks)
        finally:
            end_ranks(ranks)


def rank_variables(rank: int, local_rank: int, world: int) -> dict[str, str]:
    """Returns the environment variables that number a rank, also among those of its machine."""
    return {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(world)}


class RankProcess(Child):
    """The process of a rank on this machine, in the process group of its launcher: a kill of the group ends the ranks, too.

    Args:
        listener: the socket at which the ranks meet, for the first of several; None for others.
        hear: receives each line that it writes, with `OUT` or `ERR`; two threads call it.

    Attributes:
        said: the input error that it reported, as JSON; "" without one.
    """

    said = ""

    def __init__(
        self,
        command: Sequence[str],
        order: str,
        variables: Mapping[str, str],
        listener: socket.socket | None,
        hear: Callable[[str, str], None],
    ):
        errors, reported = os.pipe()
        meeting = [] if listener is None else [listener.fileno()]
        more = {PARENT: str(os.getpid()), ERRORS: str(reported), LISTENER: "".join(map(str, meeting))}
        given = child_environment({**variables, **more})
        given = {name: value for name, value in given.items() if not name.startswith("DAGSTER_")}
        options: dict[str, Any] = {"start_new_session": False, "cwd": IMPORTED_FROM, "pass_fds": [reported, *meeting]}
        super().__init__(command, given, hear, order, **options)
        os.close(reported)
        self.on_thread(self._read_problem, errors)

    def _read_problem(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as pipe:
            self.said = pipe.read()


class Rank(ABC):
    """A rank that was started, here or on another machine.

    Args:
        tell: receives every line that the first rank writes to its standard error.

    Attributes:
        last: the last lines of its standard error.
        said: the input error that it reported, as JSON; "" without one.
        mark: what stands before each of its lines, for a reader that tells them from others.
    """

    said, mark = "", ""

    def __init__(self, number: int, tell: Callable[[str], None]):
        self.number, self.last = number, deque[str](maxlen=LAST_LINES)
        self.tell = tell if number == 0 else lambda line: None

    @property
    @abstractmethod
    def code(self) -> int | None:
        """Its exit code, the negative number of the signal that ended it, or None while it runs."""

    @abstractmethod
    def signal(self, number: int) -> None:
        """Sends a signal to its process if it still runs."""

    @abstractmethod
    def join(self) -> None:
        """Waits for the rest of its output, once its process has ended."""

    def how(self) -> str:
        """Returns the way in which it failed, as the end of a sentence."""
        if self.code is None:
            return "did not answer: the others waited for it until their timeout"
        return how_ended(self.code)

    @property
    def failed(self) -> bool:
        """Whether it ended with a failure."""
        return self.code not in (None, 0)

    @property
    def at_fault(self) -> bool:
        """Whether it ended by an error of its own, or a signal."""
        return self.failed and self.code != EXIT_PEER

    def hear(self, stream: str, text: str) -> None:
        """Passes on a line that it wrote to `OUT` or `ERR`."""
        if stream == ERR:
            self.last.append(text)
        target = sys.stderr if stream == ERR else sys.stdout
        # In one write: threads that write a line and its end separately would mix their lines.
        whose = "" if self.number == 0 else f"[rank {self.number}] "
        target.write(f"{self.mark}{whose}{text}\n")
        target.flush()
        if stream == ERR:
            self.tell(text)


class LocalRank(RankProcess, Rank):
    """A rank whose process is a child of this one; `listener` is the socket at which several ranks meet, or None."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        order: str,
        variables: Mapping[str, str],
        listener: socket.socket | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ):
        Rank.__init__(self, number, tell)
        super().__init__(command, order, variables, listener if number == 0 else None, self.hear)


def await_ranks(ranks: Sequence[Rank], checks: Sequence[Callable[[], None]] = ()) -> None:
    """Waits until all ranks have ended, or one has failed; `checks`, called again and again, may end the wait by an exception."""
    while any(rank.code is None for rank in ranks) and not any(rank.failed for rank in ranks):
        for check in checks:
            check()
        time.sleep(POLL_SECONDS)


def settle(ranks: Sequence[Rank]) -> None:
    """Gives the other ranks time to notice by themselves; their exit codes then show which rank was at fault."""
    limit = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < limit and any(rank.code is None for rank in ranks):
        time.sleep(POLL_SECONDS)
    for rank in ranks:
        if rank.code is not None:
            rank.join()


def rank_error(ranks: Sequence[Rank]) -> InputError:
    """Returns the error with which the run ends; raises KeyboardInterrupt if an interrupt ended the ranks."""
    for rank in ranks:
        if rank.said:
            said = json.loads(rank.said)
            return InputError(said["problem"], said["remedy"])
    if all(rank.code in (None, 0, -signal.SIGINT, 130) for rank in ranks):
        raise KeyboardInterrupt
    wrong = [rank for rank in ranks if rank.at_fault]
    killed = [rank for rank in wrong if rank.code is not None and rank.code < 0]
    late = [rank for rank in ranks if rank.code is None]
    chosen = killed or wrong or late or [rank for rank in ranks if rank.failed]
    names = ", ".join(str(rank.number) for rank in chosen)
    what = f"rank {names} of {len(ranks)} {chosen[0].how()}"
    lines = "".join(f"\n  {line}" for line in chosen[0].last)
    said = f"; its last lines:{lines}" if lines else "; it wrote no line"
    return RankError(f"{what}{said}", "--resume goes on from the last checkpoint, on any number of ranks")


def end_ranks(
    ranks: Sequence[Rank], signals: Sequence[int] = (signal.SIGTERM, signal.SIGKILL), grace: float | None = None
) -> None:
    """Ends the ranks that still run, with `grace` seconds after each signal; None for GRACE_SECONDS."""
    for number in signals:
        for rank in ranks:
            if rank.code is None:
                rank.signal(number)
        limit = time.monotonic() + (GRACE_SECONDS if grace is None else grace)
        while time.monotonic() < limit and any(rank.code is None for rank in ranks):
            time.sleep(POLL_SECONDS)
    for rank in ranks:
        rank.join()
