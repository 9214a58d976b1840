"""Feature rows that stay on devices and in the host's memory from pass to pass, by `[memory]`: those that chunks load most often.

HongTu keeps all rows on the host, and a pass sends a device every row that its chunks need (section 5). Here a device keeps some of them,
which then are not sent again, and others are kept in memory, which then are not read from the file again. The sets of the chunks say how
often a pass loads each row, so nothing is counted in trial batches: a device ranks the rows that its own parts load by these counts, and
no other rows of as many bytes would spare more. In modes p2p and p2p+reuse no two devices load one row, so the tiers of all devices hold
distinct rows.

A row comes from the same gather as without tiers, and no bit depends on them. Rows on a device are booked as feature rows over `d2d`.

Memory: the tiers within their budgets; the host's is shared evenly by the devices of a process. 4 bytes per node and device for places, 16
more while they are made.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.types import Array
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.rows.cache import CachedSource, Features
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import splits
from graphmill.trainers.techniques.fullgraph.passes.row_passes import maps_apart
from graphmill.trainers.techniques.fullgraph.rows.host_rows import Place, devices_of
from graphmill.trainers.techniques.fullgraph.rows.lists import Walk, Ways


class Loads(NamedTuple):
    """How often a pass forwards and backwards loads features.

    Attributes:
        neighbours: times that it loads those of the chunks' neighbours, up and down the steps.
        own: times that it loads those of the nodes that it computes.
    """

    neighbours: Ways[int]
    own: int


class CachedTiers(NamedTuple):
    """The cached rows of a process.

    Attributes:
        sources: number of a device -> its source of feature rows; empty without a cache.
        hits: neighbour rows that a way over all steps finds on devices.
        rows: rows that a pass forwards and backwards finds there, of neighbours and of the nodes that it computes.
    """

    sources: Mapping[int, CachedSource]
    hits: Ways[int]
    rows: int


NO_TIERS = CachedTiers({}, Ways(0, 0), 0)


def feature_loads(model: LayeredModel, in_width: int, keeps_first: bool, hybrid: bool) -> Loads:
    """Returns how often a pass of a model loads features of `in_width` columns.

    Args:
        keeps_first: whether the first layer's aggregates of the features are kept over the passes.
        hybrid: whether aggregates are cached between the two passes of a layer.
    """
    if model.projection is not None:
        return Loads(Ways(0, 0), 2)  # it is computed again backwards
    layer: Any = model.layers[0]
    apart = maps_apart(layer, in_width)
    cached = hybrid and splits(layer, apart)
    own = 2 * apart + bool(layer.reads_own) * ((apart or keeps_first) + (apart or keeps_first or cached))
    buffered = not (apart or keeps_first)
    return Loads(Ways(int(buffered), int(buffered and not cached)), own)


def open_tiers(features: Features, walked: Walk, places: Sequence[Place], step_bytes: int, loads: Loads) -> CachedTiers:
    """Fills the tiers of all devices of this process; all ranks call it.

    Args:
        features: the rows; its `fill` is None without budgets.
        step_bytes: most bytes that a pass takes on a device beside them.

    Raises:
        InputError: a device has too little memory.
    """
    if features.fill is None:
        return NO_TIERS
    devices, sources, hits, rows = devices_of(places), {}, [0, 0], 0
    for device in devices:
        parts = [place.part for place in places if place.device is device]
        counted = loads_of(walked, parts, features.stored.num_nodes, loads)
        if features.stored.row_of is not None:
            counted[np.asarray(features.stored.row_of) < 0] = 0
        most = int(np.count_nonzero(counted))
        source = sources[device.index] = features.fill(
            rank(counted), device=device, most=most, devices=len(devices), step_bytes=step_bytes
        )
        there = np.zeros(len(counted), bool)
        there[source.placement.device_ids] = True
        rows += int(counted[there].sum())
        for down in (False, True):
            ids = (ways.way(down).ids for part in parts for ways in walked.lists[part])
            hits[down] += sum(int(np.count_nonzero(there[each])) for each in ids)
    return CachedTiers(sources, Ways(*hits), rows)


def loads_of(walked: Walk, parts: Collection[int], num_nodes: int, loads: Loads) -> Array:
    """Returns i64[num_nodes], how often a pass loads the row of each node for some parts."""
    found = np.zeros(num_nodes, np.int64)
    for part in parts:
        for ways, own in zip(walked.lists[part], walked.dst_ids[part], strict=True):
            # The ids of a step are distinct.
            found[own] += loads.own
            found[ways.up.ids] += loads.neighbours.up
            found[ways.down.ids] += loads.neighbours.down
    return found
