"""The nodes whose rows lie on the devices of a machine's ranks: chosen by one order and one budget, so that all ranks find the same."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array


class HotRows(NamedTuple):
    """The nodes whose rows lie on devices of a machine, in ascending order of ids.

    Attributes:
        everywhere: ids[r], on every device.
        by_rank: ids[c] on the device of each rank, in the order of the ranks.
    """

    everywhere: Array
    by_rank: tuple[Array, ...]


def choose_hot(
    order: Array, row_of: Array, rank_of: Callable[[Array], Array], room: Mapping[int, int], share: float
) -> HotRows:
    """Returns the rows of each device of a machine.

    Args:
        order: ids[N], hottest first.
        row_of: i32[N], -1 for nodes without features.
        rank_of: returns i32[n], the rank that has the part of each node of ids[n].
        room: rank of this machine -> rows that its device has room for.
        share: share of the smallest room for rows that every device has.
    """
    shared = int(min(room.values()) * share)
    left = {rank: rows - shared for rank, rows in room.items()}
    everywhere, found = [order[:0]], {rank: [order[:0]] for rank in room}
    for low, high in node_ranges(len(order)):
        if not shared and not any(left.values()):
            break
        ids = np.asarray(order[low:high])
        ids = ids[np.asarray(row_of)[ids] >= 0]
        everywhere.append(ids[:shared])
        ids, shared = ids[shared:], shared - len(everywhere[-1])
        ranks = rank_of(ids)
        for rank in room:
            found[rank].append(ids[ranks == rank][: left[rank]])
            left[rank] -= len(found[rank][-1])
    return HotRows(_sorted(everywhere), tuple(_sorted(each) for each in found.values()))


def _sorted(pieces: Sequence[Array]) -> Array:
    return np.sort(np.concatenate(pieces))
