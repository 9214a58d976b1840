"""Hot rows on the devices of a machine's ranks, which read those of each other in place (FreshGNN section 6, HongTu section 6).

    rows                                     lie on                          a row of a batch costs
    the hottest of all nodes                 every device                    a read of the device's own memory
    the next ones of this machine's parts    the device of their part        a read over the link between two devices, or of the own memory
    others                                   the shards of the ranks         see trainers/techniques/distributed/sharded.py

Reads are one-sided: no request is sent, and the process that has a row takes no part. One gather of the device reads all three (the tier of
peers of kernels/rows/gather.py), in the order of the batch, in which the rows of all devices are mixed, so no device is read by all others
at a time. Every rank finds the place of each row by itself, since all choose by the same order and the same budgets.

A device has room for `[memory] device` bytes of rows, of which a share is for those that every device has. Rows of parts of other machines
are on a device only if they are among the hottest: no device of this machine has their part.

Memory: the rows, within the budget, and 4 bytes per node for their places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.rows.slots import MAX_ROWS, PEER, ROW_BITS, Tiers
from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.ranks.group import Ranks
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import D2D


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


class DeviceRows:
    """The hot rows as the device of one rank reads them.

    Args:
        everywhere: the rows that every device has, as `device` takes them.
        peers: the rows of each rank's device, in the order of `hot.by_rank`, as `device` takes them.
        own: the place of this rank's device among the peers.

    Raises:
        InputError: they are more than slots can name.
    """

    def __init__(self, hot: HotRows, device: Device, everywhere: Any, peers: Sequence[Any], own: int, num_nodes: int):
        self.device, self.own = device, own
        self.stride = max(1, *(len(ids) for ids in hot.by_rank))
        self.first = len(hot.everywhere)
        if self.first + len(peers) * self.stride > MAX_ROWS:
            problem = f"{len(peers)} devices with {self.stride:,} rows each have more rows than a slot can name"
            raise InputError(problem, "lower `device` in [memory]")
        self.tiers: dict[str, Any] = {"device": everywhere, "peers": tuple(peers), "peer_stride": self.stride}
        # The number of a row: its place among those that every device has, or behind these: peer * stride + row.
        self.number = np.full(num_nodes, -1, np.int32)
        self.number[hot.everywhere] = np.arange(self.first)
        for peer, ids in enumerate(hot.by_rank):
            self.number[ids] = self.first + peer * self.stride + np.arange(len(ids))

    def serves(self, out: torch.Tensor) -> bool:
        """Returns whether the rows can be read for a gather into `out`: it is where the device computes."""
        return out.device == self.device.torch_device

    def mark(self, node_ids: Array, out: Array) -> None:
        """Replaces slot i of out: i32[n] if the row of node_ids[i] is on a device: by its number, a slot of the device tier."""
        numbers = self.number[node_ids]
        np.copyto(out, numbers, where=numbers >= 0)

    def slots(self, numbers: Array) -> Array:
        """Returns i32[n], the slots of rows in `tiers` by their numbers."""
        return np.where(numbers < self.first, numbers, numbers - self.first | PEER << ROW_BITS).astype(np.int32)

    def on_devices(self, node_ids: Array) -> Array:
        """Returns bool[n], whether the row of each node is on a device."""
        return self.number[node_ids] >= 0

    def gather_tiers(self, staged: Any) -> Tiers:
        """Returns the tiers of a gather of hot rows and of rows that were staged for the batch."""
        return Tiers(staged=staged, **self.tiers)

    def book(self, numbers: Array, row_bytes: int, ledger: Ledger) -> None:
        """Books rows that were read, by their numbers: those of the device's own memory, and those of other devices."""
        peer = (numbers - self.first) // self.stride
        own = int(np.count_nonzero((numbers < self.first) | (peer == self.own)))
        ledger.count("hits_device", 0, own)
        ledger.count("hits_peer", 0, len(numbers) - own)
        if len(numbers):
            ledger.crossed(D2D, len(numbers) * row_bytes)

    def close(self, ranks: Ranks) -> None:
        """Drops the rows: those of other devices first, and the own ones when no rank reads them any more; all ranks call it."""
        own = self.tiers["device"], self.tiers["peers"][self.own]
        self.tiers.clear()
        ranks.main.gather_values(0)
        del own


def open_device_rows(
    hot: HotRows, device: Device, everywhere: Array, own: Array, num_nodes: int, ranks: Ranks
) -> DeviceRows:
    """Puts the hot rows of a rank on its device, and opens those of the others of this machine; all ranks call it.

    Args:
        everywhere, own: stored dtype[r, F], the rows that every device has, and those of this rank's device.

    Raises:
        InputError: a device has too little memory, or cannot read that of another; every rank raises it, with the name of the first
            rank that failed.
    """
    problem, remedy, kept, handle, peers = "", "", None, None, []
    try:
        kept, _ = device.export_rows(everywhere)
        own_rows, handle = device.export_rows(own)
    except InputError as error:
        problem, remedy, own_rows = error.problem, error.remedy, None
    handles = ranks.beside([ranks.rank, handle])
    try:
        for rank, shown in handles:
            if shown is not None:
                peers.append(own_rows if rank == ranks.rank else device.open_peer(shown))
    except InputError as error:
        problem, remedy = problem or error.problem, remedy or error.remedy
    for rank, (said, what) in enumerate(ranks.main.gather_values([problem, remedy])):
        if said:
            raise InputError(f"rank {rank}: {said}", what)
    place = [rank for rank, _ in handles].index(ranks.rank)
    return DeviceRows(hot, device, kept, peers, place, num_nodes)
