"""Places ranks on the nodes of a Ray cluster: resources of a rank, number of ranks that fit, and their placement group.

Ranks of neighbouring numbers stay together on a node, as on machines that torchrun starts one after the other.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from graphmill.assets.cluster.connect import Cluster, ClusterNode
from graphmill.assets.sizes import format_bytes
from graphmill.kernels.errors import InputError

STRATEGY = "SPREAD"
"""Ray's strategy: ranks on as many nodes as it can, and several on one where that is all there is."""
DIGITS = 10_000
"""Ray counts ten-thousandths of a core."""
POLL_SECONDS, PATIENCE_SECONDS = 0.5, 5.0
"""Seconds between two looks at a placement group, and seconds after which a line says that it waits."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The ranks of a training."""

    # Number of ranks that were asked for.
    world: int = 1
    # Number of parts that they share; another number of ranks divides it.
    parts: int = 1
    # Number of threads of a rank; 0 for an equal share of the cores.
    threads: int = 0
    # Devices of a rank, 0 or 1.
    gpus: int = 0
    # Memory of a rank by its formula, 0 without one.
    memory_bytes: int = 0
    # Memory that a rank takes for certain.
    least_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """The resources of one rank; `cpus` are cores, a whole number or a fraction of one."""

    cpus: float
    gpus: int
    memory_bytes: int

    def resources(self) -> dict[str, float]:
        """Returns the resources as Ray names them."""
        named = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory_bytes}
        return {name: value for name, value in named.items() if value}

    def times_in(self, node: ClusterNode) -> int:
        """Returns how many such ranks fit a node."""
        pairs = ((node.cpus, self.cpus), (node.gpus, self.gpus), (node.memory_bytes, self.memory_bytes))
        return min(math.floor(there / each + 1e-9) for there, each in pairs if each)


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """The place of one rank: Ray's strategy for its actor, its number among the ranks of the node, and their number."""

    node: ClusterNode
    strategy: Any
    local_rank: int
    local_world: int


def room(nodes: Sequence[ClusterNode], bundle: RankShare) -> int:
    """Returns the number of ranks for which nodes have room when nothing else runs on them."""
    return sum(bundle.times_in(node) for node in nodes)


def bundle_for(demand: Demand, nodes: Sequence[ClusterNode], world: int) -> RankShare:
    """Returns each rank's resources: the most cores that nodes have `world` shares of; raises InputError if nodes do not suffice."""
    most = max((node.cpus for node in nodes), default=0)
    whole = range(min(demand.threads or most, most), 0, -1)
    shares = [float(count) for count in whole] + [math.floor(DIGITS / count) / DIGITS for count in range(2, world + 1)]
    # The formula's bounds first; if they do not fit, what is certain.
    for memory in dict.fromkeys((demand.memory_bytes, demand.least_bytes)):
        for cpus in shares:
            bundle = RankShare(cpus=cpus, gpus=demand.gpus, memory_bytes=memory)
            if room(nodes, bundle) >= world:
                return bundle
    each = [format_bytes(demand.least_bytes) + " of memory"] * bool(demand.least_bytes) + ["a GPU"] * demand.gpus
    there = "; ".join(
        f"{node.host}: {node.cpus} cores, {node.gpus} GPUs, {format_bytes(node.memory_bytes)}" for node in nodes
    )
    ranks = f"{world} rank{'s' if world > 1 else ''}"
    problem = f"the cluster has no room for {ranks} with {' and '.join(each) or 'a core'} each ({there or 'no node'})"
    raise InputError(problem, "add nodes, start fewer ranks, or tell Ray more: ray start --num-gpus, --memory")


def ranks_left(demand: Demand, nodes: Sequence[ClusterNode], bundle: RankShare) -> int:
    """Returns the largest number of ranks that divides the parts and has room on the nodes, at most the demand's; 1 at least."""
    most = min(demand.world, room(nodes, bundle))
    return max((count for count in range(1, most + 1) if demand.parts % count == 0), default=1)


@contextmanager
def placed(
    cluster: Cluster, bundle: RankShare, world: int, check: Callable[[], None], say: Callable[[str], None]
) -> Iterator[list[RankPlace]]:
    """Yields the ranks' places once their resources are free, then removes the group; `check` may end the wait by an exception."""
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group([bundle.resources()] * world, strategy=STRATEGY)
    try:
        waited = 0.0
        while not group.wait(POLL_SECONDS):
            check()
            waited += POLL_SECONDS
            if waited == PATIENCE_SECONDS:
                say(f"waits until the cluster has free resources for {world} rank{'s' if world > 1 else ''}")
        yield _places(cluster, group)
    finally:
        if not cluster.lost:
            remove_placement_group(group)


def _places(cluster: Cluster, group: Any) -> list[RankPlace]:
    """Returns the places of a group's ranks: those of a node have consecutive numbers."""
    from ray.util.placement_group import placement_group_table
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    node_of = placement_group_table(group)["bundles_to_node_id"]
    nodes = {node.id: node for node in cluster.nodes()}
    order = sorted(node_of, key=lambda index: (node_of[index], index))
    counts, seen, places = Counter(node_of.values()), Counter[str](), []
    for index in order:
        node_id = node_of[index]
        place = RankPlace(
            # A node that has died since then is noticed when its actor does not answer.
            node=nodes.get(node_id) or ClusterNode(id=node_id, ip="", host=node_id[:8], cpus=0, gpus=0, memory_bytes=0),
            strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            local_rank=seen[node_id],
            local_world=counts[node_id],
        )
        seen[node_id] += 1
        places.append(place)
    return places
