"""Rows and edges that the steps of a full-graph pass hold and move: HongTu's volumes (section 5.3), and counts that memory follows from.

    V_ori    rows that cross from the host when each chunk loads its whole neighbour set: sum of |N_ij|
    V_+p2p   when the devices of a step share their loads: sum of |U_j|, the transition rows
    V_+ru    when a device also keeps rows that the next step needs: the rows that are loaded
    alpha    V_ori per node, the replication factor of Table 3 (here over all nodes, isolated ones included)
    distinct rows that some chunk needs: no schedule loads fewer

Rows that cross between devices are counted as they are, `fetched`. Equation 4 takes V_ori - V_+p2p for them, which leaves out that a device
may hold rows that it does not read itself, and that copies are kept, too; `cost` is equation 4 as printed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphmill.kernels.types import Array, ChunkStep


@dataclass(frozen=True, kw_only=True)
class StepCounts:
    """Counts by step and device, each i64[n, m]."""

    # v and E of the chunk.
    destinations: Array
    edges: Array
    # |N_ij|.
    neighbours: Array
    # |T_ij|, rows that the device holds for the batch.
    transition: Array
    # Rows that come from the host, and whose gradients go back to it.
    loaded: Array
    # |R_ij|, rows of other parts.
    copies: Array
    # Rows that come from peers, and whose gradients go back to them.
    fetched: Array
    # Rows of the buffer up to the largest one in use.
    buffer_rows: Array

    @property
    def v_ori(self) -> int:
        """V_ori in rows."""
        return int(self.neighbours.sum())

    @property
    def v_p2p(self) -> int:
        """V_+p2p in rows."""
        return int(self.transition.sum())

    @property
    def v_ru(self) -> int:
        """V_+ru in rows."""
        return int(self.loaded.sum())

    def most(self, name: str) -> Array:
        """Returns i64[m]: the largest count of each device over its steps, 0 without steps."""
        return getattr(self, name).max(axis=0, initial=0)

    @staticmethod
    def of(stacked: Array) -> StepCounts:
        """Returns the counts of i64[n, m, 8], in the order of the attributes."""
        return StepCounts(**{name: stacked[..., place] for place, name in enumerate(COLUMNS)})


COLUMNS = tuple(field.name for field in fields(StepCounts))
"""Names of the counts, in their order."""


def count_step(step: ChunkStep) -> list[int]:
    """Returns the counts of a step of one device, in the order of `COLUMNS`."""
    block = step.block
    read = np.zeros(block.num_src, bool)
    read[block.indices] = True
    if block.dst_pos is not None:
        read[block.dst_pos] = True
    used = int(np.count_nonzero(block.src_ids >= 0))
    return [
        len(step.dst_ids),
        len(block.indices),
        int(np.count_nonzero(read)),
        step.num_transition,
        len(step.load_rows),
        used - step.num_transition,
        sum(len(rows) for _, rows, _ in step.fetch),
        block.num_src,
    ]


def cost(v_ori: int, v_p2p: int, v_ru: int, rates: Any) -> float:
    """Returns equation 4: the seconds that the rows of one layer take.

    Args:
        rates: (T_hd, T_dd, T_ru), rows per second from the host, between devices, and inside a device.
    """
    t_hd, t_dd, t_ru = rates
    return v_ru / t_hd + (v_ori - v_p2p) / t_dd + (v_p2p - v_ru) / t_ru
