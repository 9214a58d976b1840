"""Ranks on the nodes of a Ray cluster, as their launcher sees them; their lines and ends arrive through one thread.

Its supervisor on the node is a Ray actor that runs the rank's process and hands on what it writes. The rank is a process of its own, as on
one machine, so that a crash of its native code, or its sudden end after an error, is an exit code and not the end of an actor. It dies with
its supervisor, which dies with the job of the launcher; a supervisor that is not asked any more ends by itself.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from graphmill.assets.building.child import await_child, how_ended
from graphmill.assets.cluster.connect import Cluster
from graphmill.assets.cluster.nodes import home_here
from graphmill.kernels import environment
from graphmill.kernels.cuda.driver import VISIBLE
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.cluster.placing import RankPlace, RankShare
from graphmill.trainers.ranks.launch import POLL_SECONDS, Rank, RankProcess, rank_variables

END = "end"
"""Name of the last event: [exit code, how it ended, the input error that it reported as JSON or ""]."""
UNASKED_SECONDS = 60
"""Seconds after which a supervisor that is not asked for events ends its rank and itself."""
GATHER_SECONDS = 0.02
"""Seconds for which events are gathered before they are handed on."""
INTERFACE = environment.INTERFACE
GET_ADDRESS = 0x8915
"""Linux's SIOCGIFADDR: the IPv4 address of an interface."""
SET_BY_RAY = "OMP_NUM_THREADS"
"""Ray sets it in a worker that has begun; a rank has threads by its recipe."""


class Supervisor:
    """Runs the process of one rank on this node; an actor with several threads.

    Args:
        home: path of the home on the machine of the launcher.
        mark: name of its mark (assets/cluster/nodes.py), "" if the nodes share an object store.
    """

    def __init__(self, home: str, mark: str):
        self._home, self._mark = home, mark
        # Events that are not known to have arrived, and the number of those before them.
        self._events: list[tuple[str, Any]] = []
        self._seen = 0
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None
        self._process: RankProcess | None = None
        self._unasked = 0

    def listen(self) -> tuple[str, int]:
        """Opens the socket at which the ranks meet, for the process that will be started here; returns address and port."""
        import ray

        address = ray.util.get_node_ip_address()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=socket.SOMAXCONN)
        return address, self._listener.getsockname()[1]

    def start(self, arguments: Sequence[str], order: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        """Starts the rank with an order in which this node's home replaces the other; raises InputError if the node does not see it."""
        import ray

        home = home_here(Path(self._home), self._mark)
        if home is None:
            raise InputError(f"node {socket.gethostname()} does not see {self._home}", "mount it on all nodes")
        interface = environment.read(INTERFACE) or interface_of(ray.util.get_node_ip_address())
        variables = {**variables, **({INTERFACE: interface} if interface else {})}
        text = json.dumps({**order, "home": str(home)})
        arguments = [sys.executable, *arguments]
        threading.Thread(target=self._run, args=(arguments, text, variables), name="rank", daemon=True).start()

    def events(self, seen: int, seconds: float) -> list[tuple[str, Any]]:
        """Returns new events, and waits for one if there is none: a line with its stream, or `END`.

        Args:
            seen: number of events that have arrived; others are returned again, since an answer may be lost on its way.
        """
        with self._changed:
            self._unasked = 0
            del self._events[: seen - self._seen]
            self._seen = seen
            if not self._events:
                self._changed.wait(seconds)
                self._changed.wait(GATHER_SECONDS)
            return list(self._events)

    def signal(self, number: int) -> None:
        """Sends a signal to the rank's process, if it runs."""
        if self._process is not None:
            self._process.signal(number)

    def _run(self, arguments: Sequence[str], order: str, variables: Mapping[str, str]) -> None:
        """Starts the process and waits for it, in one thread: the system kills a child with the thread that started it."""
        # A node's processes are started with interrupts blocked, which a child inherits.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        if SET_BY_RAY not in _first_environment():
            os.environ.pop(SET_BY_RAY, None)
        try:
            self._process = RankProcess(arguments, order, variables, self._listener, self._push)
            code = await_child(self._process.process, self._require_asked, 1)
            self._process.join()
            self._push(END, [code, how_ended(code) if code else "", self._process.said])
        except OSError as error:  # no memory or process number is left
            said = InputError(f"cannot start a rank on {socket.gethostname()}: {error}", "see the node's limits")
            self._push(END, [1, "", json.dumps({"problem": said.problem, "remedy": said.remedy})])

    def _require_asked(self) -> None:
        """Ends the rank and this process if nobody asks for events any more; called every second."""
        self._unasked += 1
        if self._unasked > UNASKED_SECONDS:
            self.signal(signal.SIGKILL)
            os._exit(1)

    def _push(self, name: str, value: Any) -> None:
        with self._changed:
            self._events.append((name, value))
            self._changed.notify_all()


def interface_of(address: str) -> str:
    """Returns the name of the network interface with an IPv4 address; "" if none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                found = fcntl.ioctl(asked.fileno(), GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""


def _first_environment() -> set[str]:
    """Returns the names of the variables with which this process was started."""
    return {
        entry.split(b"=")[0].decode(errors="replace") for entry in Path("/proc/self/environ").read_bytes().split(b"\0")
    }


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
