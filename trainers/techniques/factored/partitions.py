"""A topology that is larger than a device, loaded part by part (FGNN, section 5.2, which leaves it as future work).

Nodes are cut into ranges whose rows of the topology fit on the device. A batch is sampled layer by layer, from the seeds outwards; for each
layer every part that holds one of its destinations is loaded, the one that is on the device first. Samples are keyed by node, so they do
not depend on the parts: blocks are those of a topology in one piece, and the cost of parts is counted from the destinations.

On a logical device nothing is copied: the bytes are booked as transfers, and the device's modelled link takes the time for them. Bound: a
batch loads each part at most once per layer. Known limit: parts are ranges of ids, so a layer of many nodes touches nearly all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.types import Array, Block, Topology
from trainers.devices.link import Link
from trainers.record.ledger import Ledger, Line

TOPOLOGY = Line("h2d", "topology")


class TopologyParts:
    """Ranges of nodes, one of which is on the device.

    Args:
        starts: i64[P + 1], first node of each part, and the number of nodes.
        num_bytes: i64[P], bytes of each part's rows.
        link: the link that carries them; None if it has the machine's own speed.
        traffic: the ledger of the transfers.
    """

    def __init__(self, starts: Array, num_bytes: Array, link: Link | None, traffic: Ledger):
        self.starts, self.num_bytes, self.link, self.traffic = starts, num_bytes, link, traffic
        self._resident = -1

    def load(self, blocks: Sequence[Block]) -> None:
        """Loads the parts that sampling a batch needs.

        Args:
            blocks: blocks of the batch, the one that consumes features first.
        """
        for block in reversed(blocks):
            needed = np.unique(np.searchsorted(self.starts, block.dst_ids, side="right") - 1)
            for part in needed[needed != self._resident].tolist():
                since = self.link.now() if self.link else 0
                moved = int(self.num_bytes[part])
                self.traffic.crossed(TOPOLOGY, moved)
                if self.link:
                    self.link.carry(moved, since)
                self._resident = part


def cut(topology: Topology, room: int) -> tuple[Array, Array] | None:
    """Returns (starts, bytes) of ranges of nodes that fit, for `TopologyParts`; None if a single node's row does not fit.

    Args:
        topology: the graph; a node costs 8 bytes of `indptr` and its row of `indices` and weights.
        room: bytes on the device.
    """
    per_edge = topology.indices.dtype.itemsize + (0 if topology.weights is None else topology.weights.dtype.itemsize)
    row_bytes = 8 + np.diff(np.asarray(topology.indptr)) * per_edge
    if len(row_bytes) and row_bytes.max() > room:
        return None
    ends = np.concatenate([[0], np.cumsum(row_bytes)])
    starts = [0]
    while starts[-1] < len(row_bytes):
        starts.append(int(np.searchsorted(ends, ends[starts[-1]] + room, side="right")) - 1)
    found = np.array(starts, np.int64)
    return found, ends[found[1:]] - ends[found[:-1]]
