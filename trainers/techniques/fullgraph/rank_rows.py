"""Rows that ranks send one another in a step of a full-graph pass: one message per step, with no ids, since both sides have the lists.

All ranks walk the steps side by side, so each makes the same calls. The sizes of a message follow from the lists, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.kernels.types import Array
from graphmill.trainers.ranks.group import Lane


class RankRows:
    """The messages between the ranks of a full-graph training.

    Args:
        lane: the lane of the thread that trains.
    """

    def __init__(self, lane: Lane):
        self.lane = lane

    def swap(self, sent: Sequence[tuple[int, Array]], coming: Sequence[tuple[int, int]], like: Array) -> list[Array]:
        """Sends rows and returns those that come; collective.

        Args:
            sent: (rank, float[c, F]), ordered by rank.
            coming: (rank, number of rows), ordered by rank, in the order in which that rank sends them.
            like: float[0, F], the columns and the type of all rows.

        Returns:
            float[c, F] for each of `coming`.

        Raises:
            PeerError: a rank is gone or late.
        """
        row_bytes = like.shape[1] * like.itemsize
        sent_bytes, coming_bytes = ([0] * self.lane.world for _ in range(2))
        for rank, rows in sent:
            sent_bytes[rank] += rows.nbytes
        for rank, count in coming:
            coming_bytes[rank] += count * row_bytes
        message = np.concatenate([like, *(rows for _, rows in sent)])
        found = self.lane.all_to_all(message.reshape(-1).view(np.uint8), sent_bytes, coming_bytes)
        counts = [count for _, count in coming]
        # A copy is aligned as kernels want it.
        rows = np.frombuffer(found.tobytes(), like.dtype).reshape(sum(counts), like.shape[1]).copy()
        return np.split(rows, np.cumsum(counts)[:-1]) if counts else []
