"""The process behind assets/cluster/pool.py: connects to the cluster, and has parts built by Ray tasks.

Its connection brings (address, `Build`, number of missing parts), then names of parts; None or its end ends the work on the nodes and the
process. It gets ("capacity", n), ("advance", units), ("tell", line), ("part", name, answer), and ("failed", answer) if the cluster cannot
do the work.

A part asks for the cores of its threads and for the memory of its need. It runs where most bytes of the artifacts that it reads were built,
if that node is free. Ray runs it again when its node dies.
"""

import os
import queue
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TextIO

from graphmill.assets.building.build import Build
from graphmill.assets.building.child import received
from graphmill.assets.building.parts import Answer, answer_of
from graphmill.assets.building.stage import FanOut
from graphmill.assets.cluster.connect import Cluster, connected
from graphmill.assets.cluster.nodes import code_digest, marked
from graphmill.assets.cluster.part_task import PartOrder, Post, alone, build_part
from graphmill.assets.costs.needs import sizes_of
from graphmill.assets.sizes import format_bytes
from graphmill.kernels.errors import InputError

POLL_SECONDS = 0.2
NODES_SECONDS = 1.0
"""Seconds between two looks at the nodes."""
MOST_DEATHS = 3
"""Times that a part is begun again after the process or node that built it has died."""
AHEAD = 2
"""Parts per core that are handed to Ray, so that a node that is done has another one at once."""
END_SECONDS = 6.0
EMPTY_SECONDS = 60.0
"""Seconds for which parts wait for a node that can take one."""


def drive(pipe: Connection) -> None:
    """Has parts built until the connection ends."""
    lines = _take_streams()
    address, build, num_missing = pipe.recv()
    asked = received(pipe)

    def work(cluster: Cluster, mark: str) -> None:
        from ray.exceptions import RayError

        try:
            cluster.require_ready(build.store.home, mark)
            _Parts(cluster, build, num_missing, mark, pipe, lines).run(asked)
        except RayError as error:
            raise _silent(address, error) from error

    def connect() -> None:
        with connected(address) as cluster, marked(build.store.home) as mark:
            _tell_failure(pipe, answer_of(partial(work, cluster, mark)))
            _leave_by(END_SECONDS)

    _tell_failure(pipe, answer_of(connect))


def _take_streams() -> TextIO:
    """Returns standard error for the lines of stages; what Ray prints of nodes that die goes nowhere, since the parent says it."""
    lines, nothing = os.fdopen(os.dup(2), "w"), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.close(nothing)
    return lines


def _tell_failure(pipe: Connection, answer: Answer) -> None:
    if answer != ("done",):
        with suppress(ConnectionError):
            pipe.send(("failed", answer))


def _silent(address: str, error: Exception) -> InputError:
    """Returns the error of a cluster that does not answer any more."""
    problem = f"the Ray cluster at {address} does not answer: {str(error).strip().splitlines()[0]}"
    return InputError(problem, "see `ray status`; finished parts stay, so run the same command again")


def _leave_by(seconds: float) -> None:
    """Ends this process after some seconds, whatever Ray's shutdown waits for."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


class _Parts:
    """The parts of a build on a cluster.

    Args:
        mark: name by which nodes recognise the home.
        lines: stream that gets the lines that stages print.
    """

    def __init__(self, cluster: Cluster, build: Build, num_missing: int, mark: str, pipe: Connection, lines: TextIO):
        assert isinstance(build.stage, FanOut)
        self.stage, self._lines = build.stage, lines
        self.cluster, self.ray, self.build, self.pipe = cluster, cluster.ray, build, pipe
        self.nodes = {node.id: node for node in cluster.nodes()}
        threads = self._threads(num_missing)
        self._memory = self._memory_of(threads)
        home = str(build.store.home)
        self._order = PartOrder(home=home, mark=mark, code=code_digest(), threads=threads)
        # On the node of this process alone: any other may die.
        here = cluster.on_node(self.ray.get_runtime_context().get_node_id())
        self._post = self.ray.remote(num_cpus=0)(Post).options(scheduling_strategy=here).remote()
        self._task = self.ray.remote(num_cpus=threads, max_retries=MOST_DEATHS)(build_part)
        self._build = self.ray.put(build)
        self._running: dict[Any, str] = {}
        self._reported: dict[str, int] = {}
        self._looked = self._fitting = time.monotonic()
        self._tell_capacity()

    def run(self, asked: queue.Queue[str | None]) -> None:
        """Hands parts to Ray and passes their answers on, until None comes."""
        while True:
            with suppress(queue.Empty):
                # Without parts there is nothing to wait for but the next one.
                while (part := asked.get(timeout=POLL_SECONDS if not self._running else 0.001)) is not None:
                    self._start(part)
                return self._end()
            self._collect()
            self._look_at_nodes()

    def _start(self, part: str) -> None:
        more, nearest = {"memory": self._memory} if self._memory else {}, self._nearest(part)
        where = self.cluster.on_node(nearest, soft=True, spill=True) if nearest else "SPREAD"
        task = self._task.options(name=f"{self.stage.name} {part}", scheduling_strategy=where, **more)
        self._running[task.remote(self._build, self._order, part, self._post)] = part

    def _nearest(self, part: str) -> str:
        """Returns the node that built most bytes of the parts that a part reads, "" if none of them is there."""
        found: Counter[str] = Counter()
        for role, names in self.stage.parts_read(self.build.inputs, self.build.semantic, part).items():
            for name in names:
                read = self.build.inputs[role].open_part(name)
                found[read.run_record().get("node", "")] += read.num_bytes
        there = {node_id: count for node_id, count in found.items() if node_id in self.nodes}
        return max(sorted(there), key=lambda node_id: there[node_id], default="")

    def _collect(self) -> None:
        """Passes on what the parts have reported, and the answers of those that ended."""
        if not self._running:
            return
        ended, _ = self.ray.wait(list(self._running), num_returns=len(self._running), timeout=POLL_SECONDS)
        self._take_reports()
        for task in ended:
            part = self._running.pop(task)
            answer = self._answer(task, part)
            if answer == ("done",):
                work = self.stage.work(self.build.inputs, self.build.semantic, part)
                self.pipe.send(("advance", work - self._reported.get(part, 0)))
                self._reported[part] = work  # a report that comes late, by another way than the answer, counts no more
            self.pipe.send(("part", part, answer))

    def _take_reports(self) -> None:
        reports, lines = self.ray.get(self._post.take.remote())
        for line in lines:
            print(line, file=self._lines, flush=True)
        for part, num_done in reports:
            # A part that was begun again counts from the beginning; what it had reported stands.
            more = num_done - self._reported.get(part, 0)
            if more > 0:
                self._reported[part] = num_done
                self.pipe.send(("advance", more))

    def _answer(self, task: Any, part: str) -> Answer:
        from ray.exceptions import NodeDiedError, RayTaskError, WorkerCrashedError

        name = f"part {part} of {self.stage.name}"
        remedy = "if the memory ran out, lower what the stage takes; finished parts stay, so run the same command again"
        try:
            return self.ray.get(task)
        except RayTaskError as error:  # before or after the build: a module that a node lacks
            return ("error", str(error))
        except (WorkerCrashedError, NodeDiedError) as error:
            times = f"{MOST_DEATHS + 1} times"
            said = f"the process or node that built {name} died {times}: {str(error).strip().splitlines()[0]}"
            return ("input error", said, remedy, None)

    def _look_at_nodes(self) -> None:
        """Tells which nodes are lost or new, and gives up if none is left that can take a part."""
        if time.monotonic() - self._looked < NODES_SECONDS:
            return
        now = {node.id: node for node in self.cluster.nodes()}
        for node_id, node in self.nodes.items():
            if node_id not in now:
                self.pipe.send(("tell", f"node {node.host} ({node.ip}) is lost; its parts are built on the others"))
        for node_id, node in now.items():
            if node_id not in self.nodes:
                self.pipe.send(("tell", f"node {node.host} ({node.ip}) joined"))
        changed, self.nodes, self._looked = now.keys() != self.nodes.keys(), now, time.monotonic()
        if changed:
            self._tell_capacity()
        if any(self._fits(node) for node in now.values()):
            self._fitting = self._looked
        elif self._running and self._looked - self._fitting > EMPTY_SECONDS:
            wanted = f"{self._order.threads} cores and {format_bytes(self._memory)} of memory"
            where = f"no node of the cluster at {self.cluster.address.text}"
            problem = f"{where} has {wanted} for a part of {self.stage.name}"
            raise InputError(problem, "add a node; finished parts stay, so run the same command again")

    def _fits(self, node: Any) -> bool:
        return node.cpus >= self._order.threads and node.memory_bytes >= self._memory

    def _tell_capacity(self) -> None:
        cores = sum(node.cpus for node in self.nodes.values() if self._fits(node))
        self.pipe.send(("capacity", max(1, AHEAD * cores // self._order.threads)))

    def _threads(self, num_missing: int) -> int:
        """Returns the threads of a part: one, or more if there are more cores than parts."""
        cores = [node.cpus for node in self.nodes.values() if node.cpus]
        asked = getattr(self.build.execution, "threads", 1)
        return max(1, min(asked, *cores, sum(cores) // max(1, num_missing)))

    def _memory_of(self, threads: int) -> int:
        """Returns the bytes of memory that a part is said to need, 0 if the stage has no formula; raises InputError if no node has them."""
        build, sizes = self.build, sizes_of({**self.build.inputs, **self.build.reads})
        need = self.stage.need(build.semantic, alone(build.execution, threads), sizes) if sizes else None
        if need is None:
            return 0
        most = max(node.memory_bytes for node in self.nodes.values() if node.cpus)
        if need.least_bytes > most:
            said = "\n".join(f"  {line}" for line in need.lines())
            wanted = f"a part of {self.stage.name} needs {format_bytes(need.least_bytes)} of memory"
            problem = f"{wanted}, and no node has more than {format_bytes(most)}:\n{said}"
            raise InputError(problem, "add nodes with more memory, or lower what the stage takes")
        return min(need.memory_bytes, most)

    def _end(self) -> None:
        """Takes unfinished parts off the nodes."""
        for task in self._running:
            self.ray.cancel(task, force=True)
        if self._running:
            self.ray.wait(list(self._running), num_returns=len(self._running), timeout=END_SECONDS / 2)
