"""Rows of other ranks: one request and one reply for any number of rows (FastSample, section 3.3).

A rank asks each other rank for distinct rows by their numbers there, and gets the rows. Both are one all_to_all call. Such a call needs the
number of bytes from each rank. Sending it would take a third round for each batch; so the reply to batch n also carries the number of rows
that its sender will request in batch n + 1, which is sampled by then. Only the first exchange of an epoch is preceded by a round of sizes.

The reply to a rank is a list of rows: first a head, as many rows as eight bytes need, then the requested rows. So the received rows lie at
equal distances in one buffer, and slots can point into it without a copy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphmill.kernels.types import Array
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.distributed.settings import HEAD_BYTES

ASKED, ROWS = Line("rank", "ids"), Line("rank", "feature")
"""Requests and sizes, and rows: bytes that a rank receives."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Rows that are wanted from other ranks."""

    # Number of rows from each rank, i64[world]; 0 from this one.
    counts: Array
    # Their numbers at their owners, owner after owner, i32[r].
    rows: Array
    # The place of each in the list of the requesting rank, i64[r].
    places: Array


def make_request(owner: Array, rows: Array, places: Array, world: int) -> Request:
    """Returns a request, ordered by owner.

    Args:
        owner: integers[r], the rank that has each row.
        rows: i32[r], its number there.
        places: integers[r], its place in the list.
    """
    order = np.argsort(owner, kind="stable")
    return Request(
        counts=np.bincount(owner, minlength=world).astype(np.int64),
        rows=np.ascontiguousarray(rows[order], np.int32),
        places=places[order],
    )


class Exchange:
    """Fetches rows of other ranks, and serves its own to them.

    Args:
        serve: function (i32[n] own row numbers, out dtype[n, F], ledger) that writes the rows and books what it reads for them.
    """

    def __init__(self, lane: Lane, serve: Callable[[Array, Array, Ledger], None], width: int, dtype: str):
        self.lane, self.serve, self.width, self.dtype = lane, serve, width, np.dtype(dtype)
        self.row_bytes = width * self.dtype.itemsize
        self.head_rows = -(-HEAD_BYTES // max(1, self.row_bytes))
        self._coming: Array | None = None  # number of rows that each rank requests next

    def fetch(self, request: Request, following: Array | None, ledger: Ledger) -> tuple[Array, Array]:
        """Makes the two calls; none if this is the only rank, or if rows have no columns.

        Args:
            request: the wanted rows; may be empty.
            following: i64[world], the counts of the next request; None if none follows.

        Returns:
            dtype[n, F], a buffer of rows, and i64[r], the place of each requested row in it.

        Raises:
            PeerError: a rank is gone or late.
        """
        if self.lane.world == 1 or not self.row_bytes:  # rows without columns have no bytes on any rank
            return np.empty((len(request.rows), self.width), self.dtype), np.arange(len(request.rows))
        coming = self._coming
        if coming is None:  # the first exchange of an epoch
            coming = self.lane.swap(request.counts)
            ledger.count("size_rounds", 0, 1)
            ledger.crossed(ASKED, 8 * (self.lane.world - 1))
        asked = self.lane.all_to_all(
            request.rows.view(np.uint8), self._others(4 * request.counts), self._others(4 * coming)
        )
        head = self.head_rows * self.row_bytes
        reply = self._reply(asked.view(np.int32), coming, following, ledger)
        sizes = (self._others(counts * self.row_bytes + head) for counts in (coming, request.counts))
        found = self.lane.all_to_all(reply.reshape(-1).view(np.uint8), *sizes)
        rows = found.view(self.dtype).reshape(-1, self.width)
        places, self._coming = self._opened(rows, request.counts, following is not None)
        heads = (self.lane.world - 1) * head
        ledger.count("rounds", 0, 2)
        ledger.move(ASKED, requests=1, asked_bytes=asked.nbytes, moved_bytes=asked.nbytes + heads)
        ledger.crossed(ROWS, found.nbytes - heads)
        return rows, places

    def _reply(self, asked: Array, coming: Array, following: Array | None, ledger: Ledger) -> Array:
        """Returns the heads and the rows for all other ranks, one after the other."""
        total = int(coming.sum()) + (self.lane.world - 1) * self.head_rows
        reply, first, done = np.zeros((total, self.width), self.dtype), 0, 0
        for rank, count in enumerate(coming.tolist()):
            if rank == self.lane.rank:
                continue
            told = -1 if following is None else int(following[rank])
            head = reply[first : first + self.head_rows].reshape(-1).view(np.uint8)
            head[:HEAD_BYTES] = np.array([told], np.int64).view(np.uint8)
            first += self.head_rows
            self.serve(asked[done : done + count], reply[first : first + count], ledger)
            first, done = first + count, done + count
        return reply

    def _opened(self, rows: Array, counts: Array, follows: bool) -> tuple[Array, Array | None]:
        """Returns the places of the requested rows, and the counts that the others request next."""
        places, coming, first = [], np.zeros(self.lane.world, np.int64), 0
        for rank, count in enumerate(counts.tolist()):
            if rank == self.lane.rank:
                continue
            head = rows[first : first + self.head_rows].reshape(-1).view(np.uint8)[:HEAD_BYTES]
            coming[rank] = head.view(np.int64)[0]
            assert (coming[rank] < 0) != follows, "ranks disagree about whether a batch follows"
            first += self.head_rows
            places.append(np.arange(first, first + count))
            first += count
        return np.concatenate(places) if places else np.empty(0, np.int64), coming if follows else None

    def _others(self, sizes: Array) -> list[int]:
        """Returns sizes by rank, 0 for this one."""
        return [0 if rank == self.lane.rank else int(size) for rank, size in enumerate(sizes)]
