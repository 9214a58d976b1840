"""Runs the ranks of a training on the nodes of a Ray cluster; a node that is lost restarts them on the nodes that are left.

    this process              on_cluster.py: waits for the launcher, and makes one message of whatever ends it
      the launcher            python -m graphmill.trainers.ranks.cluster.on_cluster: connects, places the ranks, passes on their lines
        a node: supervisor    an actor in a placement group (supervisor.py)
          the rank            python -m graphmill.trainers, as on one machine (trainers/ranks/launch.py)

The launcher is a process of its own: Ray ends a process that does not reach its cluster any more.

    a rank fails by itself        the run ends, as on one machine
    a node is lost                the ranks start again from the last checkpoint, on as many of the nodes that are left as there is room on,
                                  their number a divisor of the parts; at most MOST_RESTARTS times
    the head is lost              the launcher notices after HEAD_SECONDS, ends the ranks, and says so
    an interrupt                  ends the ranks; actors and placement group go with them
    the launcher is killed        Ray ends its actors, and the ranks die with them
"""

import json
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphmill.assets.building.child import end_with_parent
from graphmill.assets.cluster.connect import Cluster, ClusterNode, connected
from graphmill.assets.cluster.nodes import marked
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks import launch
from graphmill.trainers.ranks.cluster.cluster_rank import (
    MARK,
    ClusterRank,
    Events,
    HeadLostError,
    Pulse,
    head_lost,
    start_ranks,
    supervised,
)
from graphmill.trainers.ranks.cluster.placing import Demand, RankShare, bundle_for, placed, ranks_left, room
from graphmill.trainers.ranks.launch import (
    LocalRank,
    RankError,
    await_ranks,
    end_ranks,
    launcher_id,
    rank_error,
    settle,
)
from graphmill.trainers.ranks.leave import EXIT_DEFECT, EXIT_INTERRUPTED, leave

MOST_RESTARTS = 8
UNDECIDED_SECONDS = 40.0
"""Seconds for which a supervisor may have ended, or ranks have lost a peer, before their node is known to be lost: Ray misses a node by its
heartbeats, after 12 s once and more than 10 s after the supervisor's end another time."""
END_SECONDS = 20.0
"""Seconds that the launcher has to end its ranks, and the nodes that it started on this machine."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
OTHER_LINES = 40


@dataclass(frozen=True, kw_only=True)
class ClusterOrder:
    """The order of the launcher, JSON-ready by `asdict`: the address that it is `on`, and arguments of Python for each rank."""

    on: str
    home: str
    arguments: Sequence[str]
    order: Mapping[str, Any]
    demand: Demand = field(default_factory=Demand)


def run_on_cluster(work: ClusterOrder, tell: Callable[[str], None] = lambda line: None) -> None:
    """Runs ranks on a cluster until all have ended.

    Args:
        tell: receives every line of the first rank's standard error.

    Raises:
        InputError: a rank raised it, the cluster cannot do the work, or it does not answer any more.
        RankError: a rank failed otherwise.
        KeyboardInterrupt: an interrupt came; the ranks are gone.
    """
    child = _Launcher(work, tell)
    try:
        await_ranks([child])
    finally:
        end_ranks([child], ENDING, END_SECONDS)
    if child.said:
        raise rank_error([child])
    if child.code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if child.code == EXIT_DEFECT:
        raise RankError("\n  ".join(["the launcher of the ranks failed:", *child.other]), "report it")
    if child.code:
        raise head_lost(work.on)


class _Launcher(LocalRank):
    """The process that is connected to Ray; lines that are not of ranks are not passed on, and the last of them kept in `other`."""

    def __init__(self, work: ClusterOrder, tell: Callable[[str], None]):
        command = [sys.executable, "-m", "graphmill.trainers.ranks.cluster.on_cluster"]
        self.other = deque[str](maxlen=OTHER_LINES)
        super().__init__(0, command, json.dumps(asdict(work)), {}, tell=tell)

    def hear(self, stream: str, text: str) -> None:
        """Passes on a line of a rank, and keeps another one."""
        if text.startswith(MARK):
            super().hear(stream, text.removeprefix(MARK))
        else:
            self.other.append(text)


class NodesLostError(Exception):
    """Nodes were lost while ranks ran on them."""

    def __init__(self, hosts: Sequence[str]):
        super().__init__(", ".join(hosts))


def main() -> int:
    """Is the launcher: runs the order on standard input, and returns the exit code."""
    end_with_parent(launcher_id())
    values = json.load(sys.stdin)
    work = ClusterOrder(**{**values, "demand": Demand(**values["demand"])})
    try:
        with marked(Path(work.home)) as mark, connected(work.on) as cluster:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, _interrupt)
            _Run(cluster, work, mark).train()
    except BaseException as error:
        leave(error)
    return 0


def _interrupt(number: int, frame: Any) -> None:
    """Ends the ranks, once: what follows comes to its own end, and the parent kills this process if that takes too long."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


class _Run:
    """The ranks of one training on a cluster, from start to start."""

    def __init__(self, cluster: Cluster, work: ClusterOrder, mark: str):
        self.cluster, self.work, self.mark, self.pulse = cluster, work, mark, Pulse(cluster)

    def train(self) -> None:
        """Runs the ranks until they have ended well, and starts them again when nodes were lost."""
        demand, order = self.work.demand, dict(self.work.order)
        world, bundle, restarts, lost = demand.world, None, 0, ""
        while True:
            nodes = self._ready_nodes()
            if bundle is not None:
                world = ranks_left(demand, nodes, bundle)
                on = f"{_count(world, 'rank')} on {_count(len(nodes), 'node')}"
                _say(f"node {lost} is lost; the training goes on from its last checkpoint with {on}")
            bundle = bundle_for(demand, nodes, world)
            try:
                self._attempt(bundle, world, order | {"ranks": world})
                return
            except NodesLostError as error:
                restarts, lost = restarts + 1, str(error)
                if restarts > MOST_RESTARTS:
                    problem = f"nodes were lost {restarts} times, at last {lost}"
                    remedy = "see the nodes' logs; --resume goes on from the last checkpoint"
                    raise RankError(problem, remedy) from error
                order |= {"resume": True}

    def _ready_nodes(self) -> list[ClusterNode]:
        """Returns the nodes that are alive; raises InputError if one of them cannot do the work."""
        while True:
            nodes = self.cluster.nodes()
            try:
                self.cluster.require_ready(Path(self.work.home), self.mark)
            except InputError:
                if self.cluster.nodes() == nodes:
                    raise
                continue  # one was lost in the meantime
            return nodes

    def _attempt(self, bundle: RankShare, world: int, order: Mapping[str, Any]) -> None:
        """Runs the ranks once; raises NodesLostError or HeadLostError if a node or the head was lost."""
        cluster, work = self.cluster, self.work
        with placed(cluster, bundle, world, lambda: self._require_room(bundle, world), _say) as places:
            ranks = [
                ClusterRank(cluster, number, place, bundle, work.home, self.mark) for number, place in enumerate(places)
            ]
            with supervised(cluster, ranks):
                start_ranks(cluster, ranks, work.arguments, order)
                events = Events(cluster.ray, ranks)
                try:
                    await_ranks(ranks, [self.pulse.check, events.check])
                    if any(rank.failed for rank in ranks):
                        self._blame(ranks)
                except HeadLostError:
                    _end_headless(ranks)
                    raise
                except KeyboardInterrupt:
                    end_ranks(ranks, ENDING)
                    raise
                else:
                    end_ranks(ranks)
                finally:
                    events.end()

    def _require_room(self, bundle: RankShare, world: int) -> None:
        """Notices, while ranks wait for resources, that there are not enough nodes any more."""
        self.pulse.check()
        if room(self.pulse.nodes, bundle) < world:
            raise NodesLostError(["that was to be used"])

    def _blame(self, ranks: Sequence[ClusterRank]) -> None:
        """Raises the error with which these ranks end: NodesLostError if a node was lost, or InputError."""
        settle(ranks)
        began = time.monotonic()
        while not (lost := [rank for rank in ranks if not self.pulse.has(rank.place)]):
            decided = any(rank.at_fault and not rank.gone for rank in ranks) or all(
                rank.code is not None and not rank.gone for rank in ranks
            )
            if decided or time.monotonic() - began > UNDECIDED_SECONDS:
                break
            self.pulse.check()
            time.sleep(launch.POLL_SECONDS)
        end_ranks(ranks)
        if lost and not any(rank.said for rank in ranks):
            raise NodesLostError(sorted({rank.place.node.host for rank in lost}))
        raise rank_error(ranks)


def _end_headless(ranks: Sequence[ClusterRank]) -> None:
    """Ends the ranks on living nodes without the head, as far as their supervisors can be reached: Ray may wait for it in any call."""
    calls = [threading.Thread(target=rank.signal, args=(signal.SIGKILL,), daemon=True) for rank in ranks]
    for call in calls:
        call.start()
    time.sleep(launch.SETTLE_SECONDS)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _say(line: str) -> None:
    print(f"{MARK}graphmill: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
