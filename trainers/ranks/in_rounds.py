"""An exchange in rounds: pieces of a buffer go from rank to rank by single transfers, and arrive as those of one collective call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from graphmill.kernels.types import Array
from graphmill.trainers.ranks.rounds import Rounds


class Trader(Protocol):
    """The calls of a lane that make up a round; all ranks make them in the same order.

    Attributes:
        rank: number of this process.
    """

    rank: int

    def trade(self, sent: Mapping[int, Array], received: Mapping[int, Array]) -> None:
        """Sends a piece to each rank of `sent` and fills the buffer of each rank of `received`, u8[n] of at least one byte each."""
        ...

    def meet(self) -> None:
        """Waits for all other ranks."""
        ...


def exchange_in_rounds(
    lane: Trader,
    rounds: Rounds,
    sent: Array,
    sent_bytes: Sequence[int],
    received_bytes: Sequence[int],
    seconds: Callable[[Mapping[tuple[int, int], int]], float] = lambda transfers: 0.0,
) -> Array:
    """Sends each rank its piece of a buffer and returns u8[n], the pieces that all ranks sent here, in the order of ranks.

    Ranks meet before each round: one that has nothing to transfer would otherwise begin the next round, over links that are in use.

    Args:
        rounds: the rounds; those of all ranks are equal.
        sent: u8[sum of sent_bytes], the pieces one after the other.
        sent_bytes, received_bytes: bytes to and from each rank.
        seconds: function (bytes of this rank's transfers in a round) that returns how long they take at least: a modelled network.
    """
    found = np.empty(sum(received_bytes), np.uint8)
    outgoing, incoming = _pieces(sent, sent_bytes), _pieces(found, received_bytes)
    for transfers in rounds.rounds:
        if len(rounds.rounds) > 1:
            lane.meet()
        began = time.perf_counter()
        own = [pair for pair in transfers if lane.rank in pair]
        targets = {target: outgoing[target] for source, target in own if source == lane.rank and sent_bytes[target]}
        sources = {source: incoming[source] for source, target in own if target == lane.rank and received_bytes[source]}
        lane.trade(targets, sources)
        sizes = {(lane.rank, target): len(piece) for target, piece in targets.items()}
        sizes |= {(source, lane.rank): len(piece) for source, piece in sources.items()}
        if own and (left := began + seconds(sizes) - time.perf_counter()) > 0:
            time.sleep(left)
    return found


def _pieces(buffer: Array, sizes: Sequence[int]) -> list[Array]:
    """Returns views of consecutive pieces of a buffer."""
    ends = np.cumsum(sizes)
    return [buffer[end - size : end] for end, size in zip(ends.tolist(), sizes, strict=True)]
