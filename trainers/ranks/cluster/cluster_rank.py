"""Ranks on the nodes of a Ray cluster, as their launcher sees them; their lines and ends arrive through one thread."""

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from graphmill.assets.cluster.connect import Cluster
from graphmill.kernels.cuda.driver import VISIBLE
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.cluster.placing import RankPlace, RankShare
from graphmill.trainers.ranks.cluster.supervisor import END, Supervisor
from graphmill.trainers.ranks.launch import POLL_SECONDS, Rank, rank_variables

MARK = "\x1e"
"""Begins every line of the launcher that is not Ray's."""
ASK_SECONDS = 10.0
"""Seconds for which a supervisor keeps a question for events while there is none."""
THREADS = 4
"""Threads of a supervisor: one waits for events, one takes signals."""
LOOK_SECONDS, HEAD_SECONDS = 1.0, 10.0
"""Seconds between two looks at the cluster's nodes, and seconds without an answer after which the head is lost."""
START_SECONDS = 120.0
"""Seconds for which a node may take to start a supervisor."""


class HeadLostError(InputError):
    """The head of the cluster does not answer any more."""


class ClusterRank(Rank):
    """A rank beside its supervisor on a node; `gone` is Ray's message about the end of that, "" before."""

    mark = MARK

    def __init__(self, cluster: Cluster, number: int, place: RankPlace, bundle: RankShare, home: str, mark: str):
        super().__init__(number, lambda line: None)
        self.place, self.bundle, self.gone = place, bundle, ""
        self._ray, self._code, self._how, self._seen = cluster.ray, None, "", 0
        resources = {"num_cpus": bundle.cpus, "num_gpus": bundle.gpus, "memory": bundle.memory_bytes or None}
        actor = cluster.ray.remote(Supervisor).options(
            **resources, scheduling_strategy=place.strategy, max_restarts=0, max_concurrency=THREADS
        )
        self.actor = actor.remote(home, mark)

    @property
    def code(self) -> int | None:
        """Its exit code as its supervisor told it; SIGKILL's for one that went with its supervisor."""
        return self._code

    def signal(self, number: int) -> None:
        """Sends a signal to its process, without waiting until it has arrived."""
        self.actor.signal.remote(int(number))

    def join(self) -> None:
        """Its last event comes after all of its lines."""

    def how(self) -> str:
        """Returns the way in which it failed, with its node."""
        if self.gone:
            return f"ended with its supervisor on node {self.place.node.host}: {self.gone}"
        return f"on node {self.place.node.host} {self._how or super().how()}"

    def ask(self) -> Any:
        """Asks for events; returns Ray's reference to them."""
        return self.actor.events.remote(self._seen, ASK_SECONDS)

    def take(self, answer: Any) -> bool:
        """Passes on the events of an answer; returns whether there may be more."""
        try:
            events = self._ray.get(answer)
        except self._ray.exceptions.ActorUnavailableError:
            # The connection is interrupted. It comes back, or Ray finds out that the node is lost.
            time.sleep(POLL_SECONDS)
            return True
        except self._ray.exceptions.RayError as error:
            self.lose(error)
            return False
        for name, value in events:
            self._seen += 1
            if name == END:
                self._code, self._how, self.said = value
                return False
            self.hear(name, value)
        return True

    def lose(self, error: Exception) -> None:
        """Notes the end of its supervisor."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self.gone = next(iter(lines), type(error).__name__)
        self._code = -signal.SIGKILL


class Pulse:
    """Looks, from a thread, whether the head of a cluster answers, and which `nodes` are alive."""

    def __init__(self, cluster: Cluster):
        self.nodes, self._cluster = cluster.nodes(), cluster
        self._looks, self._seen, self._silent, self._checked = 0, 0, 0.0, time.monotonic()
        threading.Thread(target=self._look, name="pulse", daemon=True).start()

    def check(self) -> None:
        """Raises HeadLostError if the head has not answered for HEAD_SECONDS; called again and again."""
        now = time.monotonic()
        # If this process itself stood still, that time does not count.
        passed, self._checked = min(now - self._checked, LOOK_SECONDS), now
        self._silent = self._silent + passed if self._looks == self._seen else 0.0
        self._seen = self._looks
        if self._silent > HEAD_SECONDS:
            self._cluster.lost = True
            raise head_lost(self._cluster.address.text)

    def has(self, place: RankPlace) -> bool:
        """Returns whether the node of a place is alive."""
        return any(node.id == place.node.id for node in self.nodes)

    def _look(self) -> None:
        while not self._cluster.lost:
            try:
                self.nodes = self._cluster.nodes()
            except Exception:  # whatever Ray raises: no answer is what counts
                time.sleep(LOOK_SECONDS)
                continue
            self._looks += 1
            time.sleep(LOOK_SECONDS)


def head_lost(address: str) -> HeadLostError:
    """Returns the error about a cluster that does not answer any more."""
    remedy = "start it again; --resume goes on from the last checkpoint, with or without a cluster"
    return HeadLostError(f"the Ray cluster at {address} does not answer any more", remedy)


class Events:
    """Passes on the events of ranks, in a thread."""

    def __init__(self, ray: Any, ranks: Sequence[ClusterRank]):
        self._ray, self._ranks, self._error, self._ended = ray, ranks, None, False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises the error that ended the thread, if one did: this process cannot write, for example."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Takes no more events."""
        self._ended = True
        self._thread.join(2 * LOOK_SECONDS)

    def _run(self) -> None:
        try:
            waiting = {rank.ask(): rank for rank in self._ranks}
            while waiting and not self._ended:
                ready, _ = self._ray.wait(list(waiting), timeout=LOOK_SECONDS)
                for answer in ready:
                    rank = waiting.pop(answer)
                    if rank.take(answer):
                        waiting[rank.ask()] = rank
        except Exception as error:  # it belongs to the thread that waits for the ranks
            self._error = error


@contextmanager
def supervised(cluster: Cluster, ranks: Sequence[ClusterRank]) -> Iterator[None]:
    """Removes the supervisors of ranks, and what is left of these, when the block ends; raises HeadLostError if Ray's client gave up."""
    try:
        yield
    except ConnectionError as error:
        if isinstance(error, BrokenPipeError):  # this process cannot write
            raise
        cluster.lost = True
        raise head_lost(cluster.address.text) from error
    finally:
        if not cluster.lost:
            for rank in ranks:
                cluster.ray.kill(rank.actor)


def start_ranks(
    cluster: Cluster, ranks: Sequence[ClusterRank], arguments: Sequence[str], order: Mapping[str, Any]
) -> None:
    """Starts the processes of ranks, notes lost nodes, and raises InputError if a node does not see the home, or starts no process."""
    world, where = len(ranks), {}
    if world > 1:
        found = _answers(cluster, ranks[:1], [ranks[0].actor.listen.remote()])
        if not found:
            return
        where = {"MASTER_ADDR": found[0][0], "MASTER_PORT": str(found[0][1])}
    asked = []
    for rank in ranks:
        place = rank.place
        more = rank_variables(rank.number, place.local_rank, world) | {"LOCAL_WORLD_SIZE": str(place.local_world)}
        if not rank.bundle.gpus:
            more[VISIBLE] = ""  # device = "auto" was the CPU where the run was started
        asked.append(rank.actor.start.remote(list(arguments), dict(order), where | more))
    _answers(cluster, ranks, asked)


def _answers(cluster: Cluster, ranks: Sequence[ClusterRank], asked: Sequence[Any]) -> list[Any]:
    """Returns the answers of supervisors; without those that are gone."""
    ray, found, limit = cluster.ray, [], time.monotonic() + START_SECONDS
    for rank, question in zip(ranks, asked, strict=True):
        try:
            found.append(ray.get(question, timeout=max(POLL_SECONDS, limit - time.monotonic())))
        except ray.exceptions.GetTimeoutError as error:
            problem = f"node {rank.place.node.host} started no process for rank {rank.number} in {START_SECONDS:g} s"
            raise InputError(problem, "see `ray status`, or take the node out") from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, InputError) else error from error
        except ray.exceptions.RayError as error:
            rank.lose(error)
    return found
