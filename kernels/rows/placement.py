"""The tier of every feature row: the general caching scheme of FGNN (section 6.1), for two cached tiers.

Rows are ranked by hotness, the estimated frequency with which mini-batches need them. The hottest go to the device, the next to host
memory, and the rest stays elsewhere (in the table's file, or in a table that is in memory as a whole). A placement is two lists of nodes in
rank order and one slot per node (kernels/rows/slots.py), so a sampler marks a batch with one read per row, while FGNN has a hash table.

Because both lists are in rank order, any prefix of a tier serves a smaller budget: row i of a tier's image is row i of a shorter image, and
slots stay what they were. A standby trainer on a smaller device therefore shares the images that are there.

This is a static cache: nothing enters or leaves it while training. Not checked: that the order is one by hotness.

Nodes without features (`row_of` = -1) have a slot that says so, and take no space in any tier.

Space: 4 bytes per node, and an id for each cached row. Building reads the order twice, writes 4 N bytes, and takes 1 byte per node more to
test the order. Limits: fewer than 2^29 rows per tier. The cut is by rows: budgets are rounded down to whole rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.rows.slots import DEVICE, ELSEWHERE, HOST, NO_FEATURES, make_slots
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The place of every feature row, for tiers that do not change while training."""

    # The slot of each node, `ELSEWHERE` for a node in no tier, `NO_FEATURES` for one without a row, i32[N].
    slot: Array
    # Node of each row of the device image, hottest first, ids[d].
    device_ids: Array
    # The same for the host image, ids[h]; all are colder than the device's.
    host_ids: Array

    def prefix(self, device_rows: int, host_rows: int) -> Placement:
        """Returns the placement for smaller tiers, whose images are prefixes of these: rows that stay keep their slots.

        Args:
            device_rows, host_rows: number of rows of each tier; more than there are means all.
        """
        _check_rows(device_rows, host_rows)
        slot = self.slot.copy()
        slot[self.device_ids[device_rows:]] = ELSEWHERE
        slot[self.host_ids[host_rows:]] = ELSEWHERE
        return Placement(slot=slot, device_ids=self.device_ids[:device_rows], host_ids=self.host_ids[:host_rows])


def place_rows(order: Array, device_rows: int, host_rows: int, row_of: Array | None = None) -> Placement:
    """Places the hottest nodes on the device and the next on the host.

    Args:
        order: ids[N], all nodes, hottest first.
        device_rows, host_rows: number of rows that each tier has space for; more than N means all.
        row_of: ids[N], -1 for a node without features, which takes no space; None if all have some.
    """
    order = as_ids(order, "order")
    _check_rows(device_rows, host_rows)
    _check_order(order)
    if row_of is not None and row_of.shape != order.shape:
        problem = f"row_of is {row_of.dtype}{list(row_of.shape)}, the order is of {len(order)} nodes"
        raise InputError(problem, "give the features of the graph that was ranked")
    slot = np.full(len(order), ELSEWHERE, np.int32)
    if row_of is not None:
        for low, high in node_ranges(len(row_of)):
            slot[low:high][np.asarray(row_of[low:high]) < 0] = NO_FEATURES
        order = _first_with_features(order, slot, device_rows + host_rows)
    device_ids, host_ids = order[:device_rows], order[device_rows : device_rows + host_rows]
    for tier, ids in ((DEVICE, device_ids), (HOST, host_ids)):
        for low, high in node_ranges(len(ids)):
            slot[ids[low:high]] = make_slots(tier, np.arange(low, high))
    return Placement(slot=slot, device_ids=np.array(device_ids), host_ids=np.array(host_ids))


def _first_with_features(order: Array, slot: Array, count: int) -> Array:
    """Returns the first nodes of an order that have features, at least `count` if there are so many."""
    found = [order[:0]]
    for low, high in node_ranges(len(order)):
        part = order[low:high]
        found.append(part[slot[part] != NO_FEATURES])
        count -= len(found[-1])
        if count <= 0:
            break
    return np.concatenate(found)


def place_bytes(
    order: Array, row_bytes: int, device_bytes: int, host_bytes: int, row_of: Array | None = None
) -> Placement:
    """Places whole rows of `row_bytes` bytes within budgets; args as of `place_rows`, with the budgets in bytes."""
    _check_rows(device_bytes, host_bytes)
    # Rows without columns take no space anywhere.
    rows = [budget // row_bytes if row_bytes else len(order) for budget in (device_bytes, host_bytes)]
    return place_rows(order, min(rows[0], len(order)), min(rows[1], len(order)), row_of)


def _check_rows(*numbers: int) -> None:
    if min(numbers) < 0:
        raise InputError(f"a tier of {min(numbers)}", "give 0 or more: 0 is a tier without rows")


def _check_order(order: Array) -> None:
    seen = np.zeros(len(order), bool)
    sound = len(order) == 0 or (order.min() >= 0 and order.max() < len(order))
    if sound:
        for low, high in node_ranges(len(order)):
            seen[order[low:high]] = True
    if not (sound and seen.all()):
        raise InputError(f"an order of {len(order)} ids does not name every node once", "give a permutation of 0..N-1")
