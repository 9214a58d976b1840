"""The links between ranks, by timing transfers: measured once into the home of the first rank.

    $GRAPHMILL_HOME/measured/ranks-N-DIGEST.json     of N ranks on the machines that the digest names

Each transfer is timed alone, and each two transfers at the same time. If two together take SHARED times as long as the slower one alone, or
as both one after the other over the link of a common device, they share a link. Transfers that all share with one another share one link.
Its efficiency with two transfers is the median of what pairs carried together, as a share of what the faster one carries alone.

Known limits: a link that is full only with three transfers or more is not seen. The number of pairs grows with the fourth power of ranks.
"""

import hashlib
import json
import platform
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.storage.files.documents import kept_numbers
from graphmill.assets.storage.files.schema import Fields, listed, number, whole
from graphmill.assets.storage.names.home import home_folder
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.group import Ranks
from graphmill.trainers.ranks.links import Interconnect, Pair

PROBE_BYTES, REPEATS = 1 << 20, 3
SHARED = 1.5
"""Two transfers at the same time that take this many times as long as alone share a link; on one link of both they take 2."""
MOST_RANKS_TIMED = 8
NAME = re.compile(r"ranks-[2-8]-[0-9a-f]{8}\.json")
"""Names of the files; anything else in the folder is not ours."""
REMEDY = "remove {}; the next training measures again"


def measured_links(ranks: Ranks) -> Interconnect:
    """Returns the links between the ranks, measured once per home; collective. Raises InputError for too many ranks or a damaged file."""
    if ranks.world > MOST_RANKS_TIMED:
        problem = f'links = "measured" times every two transfers, which takes too long for {ranks.world} ranks'
        raise InputError(problem, f"write the links by hand, or start {MOST_RANKS_TIMED} ranks at most")
    hosts = ranks.main.gather_values(platform.node())
    digest = hashlib.sha256(json.dumps(hosts).encode()).hexdigest()[:8]
    path = home_folder() / Path("measured") / f"ranks-{ranks.world}-{digest}.json"
    found = {} if ranks.tell(path.is_file()) else time_links(ranks)
    kind, remedy = links_schema(ranks.world), REMEDY.format(path)
    numbers = ranks.tell(kept_numbers(path, kind, lambda: found, remedy) if ranks.first else None)
    return links_of_times(numbers).between(range(ranks.world))


def kept_links(count: int | None = None) -> Interconnect:
    """Returns the links of the home that were measured last.

    Args:
        count: number of ranks, None for any.

    Raises:
        InputError: none were measured, or the file is damaged.
    """
    paths = (home_folder() / "measured").glob(f"ranks-{count or '*'}-*.json")
    ours = [path for path in paths if NAME.fullmatch(path.name)]
    if not (found := sorted(ours, key=lambda path: path.stat().st_mtime)):
        problem = f"the home {home_folder()} has no measured links of {count or 'several'} ranks"
        raise InputError(problem, 'train with links = "measured" in [train.distributed]; or give the links')
    count = int(found[-1].name.split("-")[1])
    numbers = kept_numbers(found[-1], links_schema(count), dict, REMEDY.format(found[-1]))
    return links_of_times(numbers).between(range(count))


def links_schema(count: int) -> Fields:
    """Returns the schema of the numbers of that many ranks, of which `links_of_times` makes links."""
    speeds, two = listed(listed(number(least=0), length=count), length=count), listed(whole(0, count - 1), length=2)

    def pair(value: Any, where: str) -> None:
        two(value, where)
        if value[0] == value[1]:
            raise ValueError(f"{where} is a transfer from a rank to itself")

    return Fields(
        {"alone_gbps": speeds, "shared": listed(listed(pair, length=2)), "pair_efficiency": number(least=0, most=1)}
    )


def links_of_times(numbers: Mapping[str, Any]) -> Interconnect:
    """Returns links of measured `alone_gbps`, GB/s from rank to rank, `shared`, pairs of transfers on one link, and `pair_efficiency`."""
    alone, devices = numbers["alone_gbps"], range(len(numbers["alone_gbps"]))
    names = [f"{device} out" for device in devices] + [f"{device} in" for device in devices]
    gbps = [max(alone[one][other] for other in devices if other != one) for one in devices]
    gbps += [max(alone[one][other] for one in devices if other != one) for other in devices]
    routes = {(one, other): [one, len(devices) + other] for one in devices for other in devices if one != other}
    for group in _groups({frozenset((tuple(one), tuple(other))) for one, other in numbers["shared"]}):
        names.append(f"{{{', '.join(f'{a}>{b}' for a, b in group)}}}")
        gbps.append(max(alone[a][b] for a, b in group))
        for pair in group:
            routes[pair].append(len(names) - 1)
    return Interconnect(
        names=tuple(names),
        gbps=tuple(gbps),
        routes={pair: tuple(route) for pair, route in routes.items()},
        places=tuple((device,) for device in devices),
        efficiency=(1.0, numbers["pair_efficiency"]) if numbers["shared"] else (1.0,),
    )


def _groups(shared: set[frozenset[Pair]]) -> list[list[Pair]]:
    """Returns groups of transfers that all share links with one another; every two that share one are in a group together."""
    found, left = list[list[Pair]](), sorted(map(sorted, shared))
    while left:
        group = list(left[0])
        for pair in sorted({pair for both in left for pair in both}):
            if pair not in group and all(frozenset((pair, other)) in shared for other in group):
                group.append(pair)
        found.append(sorted(group))
        left = [both for both in left if not {*both} <= {*group}]
    return found


def time_links(ranks: Ranks) -> dict[str, Any]:
    """Returns the numbers of `links_of_times`, measured; all ranks call it."""
    devices = range(ranks.world)
    pairs = [(one, other) for one in devices for other in devices if one != other]
    alone = {pair: _seconds(ranks, [pair]) for pair in pairs}
    shared, carried = list[list[Pair]](), list[float]()
    for place, pair in enumerate(pairs):
        for other in pairs[:place]:
            ends = [end for end in (0, 1) if pair[end] == other[end]]
            # The link of a common device carries both, one after the other.
            common = [2 * min(seconds for each, seconds in alone.items() if each[end] == pair[end]) for end in ends]
            together = _seconds(ranks, [pair, other])
            if together > SHARED * max(alone[pair], alone[other], *common):
                shared.append([other, pair])
                carried += [] if ends else [2 * min(alone[pair], alone[other]) / together]
    speeds = [[PROBE_BYTES / alone[one, other] * 1e-9 if one != other else 0.0 for other in devices] for one in devices]
    return {"alone_gbps": speeds, "shared": shared, "pair_efficiency": min(1.0, statistics.median(carried or [1.0]))}


def _seconds(ranks: Ranks, transfers: Sequence[Pair]) -> float:
    """Returns the median seconds of some transfers at the same time, until the last rank is done; the same at all ranks."""
    lane, times = ranks.main, []
    sent = {target: np.ones(PROBE_BYTES, np.uint8) for source, target in transfers if source == ranks.rank}
    received = {source: np.empty(PROBE_BYTES, np.uint8) for source, target in transfers if target == ranks.rank}
    for _ in range(REPEATS):
        lane.meet()
        began = time.perf_counter()
        lane.trade(sent, received)
        own = np.array([time.perf_counter() - began])
        times.append(max(float(each.view(np.float64)[0]) for each in lane.gather(own.view(np.uint8))))
    return statistics.median(times)
