"""Rows of the merged buffer: a node that stays in two successive steps keeps its row (HongTu, section 6).

The paper describes two buffers per device, one for transition rows and one for neighbours, each updated in place, and then merges them,
because a device's own neighbours are transition rows, too. Here there is one buffer from the beginning. A node's row is a transition row if
the node belongs to the device's part and a copy otherwise, so no row ever changes its kind while its node stays.

In every step, nodes that were in the buffer keep their rows; the rows of nodes that left are free. New transition nodes take the lowest
free rows in ascending order, then come the copies, peer by peer. A buffer never needs more rows than its largest step has nodes: a step
with b nodes finds its new ones b - kept free rows among the first b, unless a row above was in use already.

Not checked: that the sets are ascending and disjoint.
"""

from __future__ import annotations

import numpy as np

from kernels.types import Array


class BufferRows:
    """The rows of one device's buffer, from step to step.

    Memory: 12 or 16 bytes per node of the buffer, and as much again during a step.
    """

    def __init__(self):
        self.nodes = np.empty(0, np.int64)  # of the step before, ascending
        self.rows = np.empty(0, np.int32)

    def advance(self, groups: list[Array]) -> tuple[list[Array], list[Array]]:
        """Goes to the next step.

        Args:
            groups: ids[.] each, ascending and disjoint: the nodes of the step, first the transition nodes, then the copies of each peer.

        Returns:
            For each group, i32[.] the rows of its nodes and bool[.] which of them are new in this step.
        """
        nodes = np.concatenate([*groups, self.nodes[:0]])
        place = np.searchsorted(self.nodes, nodes)
        inside = place < len(self.nodes)
        kept = inside.copy()
        kept[inside] = self.nodes[place[inside]] == nodes[inside]
        rows = np.empty(len(nodes), np.int32)
        rows[kept] = self.rows[place[kept]]
        taken = np.zeros(int(rows[kept].max(initial=-1)) + 1 + len(nodes), bool)
        taken[rows[kept]] = True
        rows[~kept] = np.flatnonzero(~taken)[: np.count_nonzero(~kept)]
        order = np.argsort(nodes, kind="stable")
        self.nodes, self.rows = nodes[order], rows[order]
        ends = np.cumsum([len(group) for group in groups])[:-1]
        return np.split(rows, ends), np.split(~kept, ends)

    def find(self, node_ids: Array) -> Array:
        """Returns i32[n], the rows of nodes that are in the buffer now."""
        return self.rows[np.searchsorted(self.nodes, node_ids)]
