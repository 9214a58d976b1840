"""The gradients of learnable rows of nodes, exchanged by ranks: each gets those of all batches of a step, in batch order.

Every rank holds the whole table and its moments, and makes the same update of it, to the bit. A step moves the gradients of the rows that
its batches read to each rank, 8 + H x bytes of a value for a row of H columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from graphmill.kernels.types import Array
from graphmill.trainers.models.node_rows import RowGradient
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.record.ledger import Ledger, Line

ROWS = Line("rank", "embedding", "backward")


class Placed(NamedTuple):
    """The gradient of a batch, on the host, and the position of the batch in its epoch."""

    position: int
    gradient: RowGradient


def exchange_rows(lane: Lane, own: Sequence[Placed], ledger: Ledger) -> list[RowGradient]:
    """Returns the gradients of all ranks' batches in batch order; all ranks call it.

    Args:
        lane: the lane of the thread that trains.
        own: those of this rank's batches.
        ledger: receives the bytes that the other ranks get.
    """
    packed = pack_rows(own)
    ledger.crossed(ROWS, len(packed) * (lane.world - 1))
    found = [placed for piece in lane.gather_any(packed) for placed in unpack_rows(piece)]
    return [placed.gradient for placed in sorted(found, key=lambda placed: placed.position)]


def pack_rows(own: Sequence[Placed]) -> bytes:
    """Returns position, number of rows, bytes of a value, rows and values of each gradient."""
    pieces: list[Array] = []
    for position, (rows, values) in own:
        pieces += [np.array([position, *values.shape, values.element_size()], np.int64), rows.numpy(), values.numpy()]
    return b"".join(piece.tobytes() for piece in pieces)


def unpack_rows(packed: bytes) -> Iterator[Placed]:
    """Yields the gradients that `pack_rows` packed."""
    low = 0
    while low < len(packed):
        position, count, width, size = np.frombuffer(packed, np.int64, 4, low).tolist()
        rows = np.frombuffer(packed, np.int64, count, low + 32)
        values = np.frombuffer(packed, f"f{size}", count * width, low + 32 + rows.nbytes).reshape(count, width)
        low += 32 + rows.nbytes + values.nbytes
        yield Placed(position, RowGradient(torch.from_numpy(rows.copy()), torch.from_numpy(values.copy())))
