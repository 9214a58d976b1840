"""Connects this process to a Ray cluster, and checks that all of its nodes can do the work."""

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.assets.building.child import runtime_environment
from graphmill.assets.cluster.address import ClusterAddress, parse_address, require_ray
from graphmill.assets.cluster.local import local_nodes
from graphmill.assets.cluster.nodes import about_this_node, code_digest
from graphmill.assets.storage.names.home import ROOT, STORE_VARIABLE, store_url
from graphmill.kernels.errors import InputError

NAMESPACE = "graphmill"
ANSWER_SECONDS = 120.0
"""Seconds for which a node may take to start a process and answer."""
CONNECT_SECONDS, ANSWERS_SECONDS = 60, 10


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """A node of the cluster that is alive.

    Attributes:
        cpus, gpus: cores and devices that Ray may give away on it.
        memory_bytes: memory that Ray may plan with on it.
    """

    id: str
    ip: str
    host: str
    cpus: int
    gpus: int
    memory_bytes: int


class Cluster:
    """A cluster that this process is connected to.

    Attributes:
        lost: whether the head does not answer any more; this process then ends without a farewell to Ray, which would wait for the head.
    """

    def __init__(self, address: ClusterAddress):
        import ray

        self.address, self.ray, self.lost = address, ray, False

    def nodes(self) -> list[ClusterNode]:
        """Returns the nodes that are alive, by id."""
        found = []
        for each in self.ray.nodes():
            if each["Alive"]:
                resources = each["Resources"]
                node = ClusterNode(
                    id=each["NodeID"],
                    ip=each["NodeManagerAddress"],
                    host=each["NodeManagerHostname"],
                    cpus=int(resources.get("CPU", 0)),
                    gpus=int(resources.get("GPU", 0)),
                    memory_bytes=int(resources.get("memory", 0)),
                )
                found.append(node)
        return sorted(found, key=lambda node: node.id)

    def on_node(self, node_id: str, *, soft: bool = False, spill: bool = False) -> Any:
        """Returns Ray's scheduling strategy for a node; another one may take the work if this one dies (`soft`) or is busy (`spill`)."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node_id, soft=soft, _spill_on_unavailable=spill)

    def require_ready(self, home: Path, mark: str) -> dict[str, dict[str, Any]]:
        """Returns node id -> its answer (`about_this_node`), after a check that every node can do the work.

        Args:
            home, mark: the home, and the name of its mark; "" if homes are apart and an object store is shared.

        Raises:
            InputError: a node has other code, does not see the home, or does not answer.
        """
        nodes, ray = self.nodes(), self.ray
        if not any(node.cpus for node in nodes):
            problem = f"the cluster at {self.address.text} has no node with a core"
            raise InputError(problem, "add a node: ray start --address")
        # A core of each would have to wait for work that runs; the question takes none.
        asking = ray.remote(num_cpus=0, max_retries=0)(about_this_node)
        asked = {
            node.id: asking.options(scheduling_strategy=self.on_node(node.id)).remote(str(home), mark) for node in nodes
        }
        _, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_SECONDS)
        if late:
            names = ", ".join(node.host for node in nodes if asked[node.id] in late)
            problem = f"{names} did not answer for {ANSWER_SECONDS:g} s"
            raise InputError(problem, "see `ray status`, or take the node out")
        answers = {node.id: self._answer_of(node, asked[node.id]) for node in nodes}
        _require_equal(nodes, answers, home, mark)
        return answers

    def _answer_of(self, node: ClusterNode, question: Any) -> dict[str, Any]:
        try:
            return self.ray.get(question)
        except Exception as error:
            if "ModuleNotFoundError" not in str(error) and "No module named" not in str(error):
                problem = f"node {node.host} cannot work: {error}"
                raise InputError(problem, "see `ray status` and the node's logs") from error
            problem = (
                f"node {node.host} ({node.ip}) does not find graphmill's modules: {str(error).strip().splitlines()[-1]}"
            )
            remedy = (
                "install the same graphmill on every node, with its extra `ray`, and start `ray` from that environment"
            )
            raise InputError(problem, remedy) from error


@contextmanager
def connected(
    address: str, variables: Mapping[int, Mapping[str, str]] | None = None, **resources: Any
) -> Iterator[Cluster]:
    """Connects this process to a cluster while the block runs. For `local:N` it starts the nodes first and ends them afterwards.

    Ray prints no line of the nodes here, since it would mix its own among them; work that has lines for the user sends them itself.

    Args:
        variables, resources: as `local_nodes` takes them.

    Raises:
        InputError: Ray is not installed, or no cluster answers at the address.
    """
    where = parse_address(address)
    require_ray()
    with ExitStack() as stack:
        target = where.text
        if where.num_local:
            target = stack.enter_context(local_nodes(where.num_local, variables, **resources)).address
        ray = _initialised(where, target)
        stack.callback(ray.shutdown)
        cluster = Cluster(where)
        try:
            yield cluster
        finally:
            if cluster.lost:
                _LEFT.append(stack.pop_all())


_LEFT: list[ExitStack] = []
"""What a lost connection leaves to the end of this process."""


def _initialised(where: ClusterAddress, target: str) -> Any:
    """Returns the module `ray`, connected."""
    import ray

    environment = dict(runtime_environment())
    if url := store_url():
        environment[STORE_VARIABLE] = url
    options: dict[str, Any] = {"namespace": NAMESPACE, "runtime_env": {"env_vars": environment}, "log_to_driver": False}
    if not where.is_client:
        options |= {"configure_logging": False}
    try:
        if where.place:  # Ray would try for half a minute, and end this process
            socket.create_connection(where.place, ANSWERS_SECONDS).close()
        with _limited(CONNECT_SECONDS), _silenced():
            ray.init(address=target, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        said = str(error).strip().splitlines()
        problem = f"no Ray cluster answers at {where.text}: {said[0] if said else type(error).__name__}"
        raise InputError(problem, _how_to_reach(where)) from error
    return ray


def _how_to_reach(where: ClusterAddress) -> str:
    if where.is_client:
        return "start it with `ray start --head --ray-client-server-port PORT`, with the same versions of Python and Ray as here"
    start = "`ray start --head` on one machine, `ray start --address HOST:PORT` on the others and on this one"
    return f"start it: {start}; from a machine that does not belong to it, use ray://HOST:10001"


@contextmanager
def _silenced() -> Iterator[None]:
    """Drops the lines that Ray's native code prints while it connects, one of which says that it prints none; errors are raised."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends this process if the block takes longer: `ray.init` may wait for ever."""
    timer = threading.Timer(seconds, os._exit, (LATE,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


LATE = 76
"""Exit code of a process that Ray did not connect."""


def _require_equal(
    nodes: Sequence[ClusterNode], answers: Mapping[str, Mapping[str, Any]], home: Path, mark: str
) -> None:
    """Checks that all nodes have this process's code and see the home."""
    code = code_digest()
    for node in nodes:
        answer = answers[node.id]
        if answer["code"] != code:
            problem = f"node {node.host} has another version of graphmill in {answer['root']} than {socket.gethostname()} in {ROOT}"
            raise InputError(problem, "bring all nodes to the same commit, without local changes")
        if answer["home"] is None:
            problem = f"node {node.host} does not see the home {home}, nor has it as its GRAPHMILL_HOME"
            remedy = f"mount one folder on all nodes, or set {STORE_VARIABLE} to an object store that all of them reach"
            raise InputError(problem, remedy)
