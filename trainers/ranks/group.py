"""The processes of one training, and the collective calls between them (torch.distributed over gloo).

A rank is one process. All ranks make the same collective calls of a lane in the same order; a lane has a process group of its own, so calls
of two lanes, made by two threads, cannot be confused. Every call has a time limit. A peer that died, or that does not come within the
limit, raises `PeerError`, and the rank that catches it ends its process: so the failure of one rank reaches all.

The time of a call can be modelled: `LinkModel` delays it to alpha + bytes / beta, the usual model of a network, on a machine whose loopback
is faster than any network; or to the time of its transfers over links that are shared (trainers/ranks/rounds.py).
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist

from graphmill.assets.storage.system.machine import here_and_now
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.types import Array
from graphmill.trainers.ranks.launch import asked_ranks
from graphmill.trainers.ranks.leave import leave, leave_soon
from graphmill.trainers.ranks.meeting import Meeting, open_store
from graphmill.trainers.ranks.rounds import LinkModel, Rounds

PIECE_BYTES = 1 << 28
"""Bytes that one call moves to the first rank from each other one, or from the first rank in total."""
DEFAULT_TIMEOUT = 45.0
"""Seconds that a rank waits for the others in a collective call."""


class PeerError(RuntimeError):
    """Another rank is gone, or did not come to a collective call in time."""


@dataclass
class Group:
    """The only reference to a process group of torch.distributed.

    The group's threads drop the tensors of a call after the call has returned, and take Python's lock to do so. An ending interpreter ends
    a thread that asks for the lock, in C++ code that must not be ended there, and the process aborts. So the group is destroyed, which
    waits for its threads, before the process may end.
    """

    # The process group; None once the training has ended.
    library: Any


class Lane:
    """Collective calls that one thread of every rank makes in the same order. Each raises `PeerError` if a rank is gone or late.

    Args:
        group: the process group, which ends with the training; None for one process alone.
        model: the modelled network, None for the real one.

    Attributes:
        rounds: number of exchanges, counted at the call.
        messages: number of messages with content that this rank sent in exchanges, at most one to each other rank in an exchange.
        order: the rounds in which the transfers of an exchange run; None if all run at once.
    """

    def __init__(self, rank: int, world: int, group: Group | None = None, model: LinkModel | None = None):
        self.rank, self.world, self.model = rank, world, model
        self._group = group or Group(None)
        self.rounds = self.messages = self.received_bytes = 0
        self.order: Rounds | None = None

    def unmodelled(self) -> Lane:
        """Returns the same lane for calls that are neither counted nor delayed by the model: sizes that precede other calls."""
        return Lane(self.rank, self.world, self._group)

    def all_to_all(self, sent: Array, sent_bytes: Sequence[int], received_bytes: Sequence[int]) -> Array:
        """Sends each rank its piece of a buffer and returns the pieces that all ranks sent here, in the order of ranks.

        Args:
            sent: u8[sum of sent_bytes], the pieces one after the other.
            sent_bytes, received_bytes: bytes to and from each rank; 0 for this one.
        """
        self._count(sent_bytes, received_bytes)
        if self.order is not None:
            return self._in_rounds(self.order, sent, sent_bytes, received_bytes)
        shared = self._shared_seconds(sent_bytes)
        began, found = time.perf_counter(), torch.empty(sum(received_bytes), dtype=torch.uint8)
        if self.world > 1:
            with blaming_peers("an exchange"):
                dist.all_to_all_single(
                    found, torch.from_numpy(sent), list(received_bytes), list(sent_bytes), group=self._group.library
                )
        self._wait(began, max(sum(sent_bytes), sum(received_bytes)), shared)
        return found.numpy()

    def _count(self, sent_bytes: Sequence[int], received_bytes: Sequence[int]) -> None:
        """Counts an exchange, its messages, and the bytes that come."""
        self.rounds += 1
        self.messages += sum(size > 0 for size in sent_bytes)
        self.received_bytes += sum(received_bytes)

    def _in_rounds(self, order: Rounds, sent: Array, sent_bytes: Sequence[int], received_bytes: Sequence[int]) -> Array:
        """Makes the exchange of `all_to_all` in rounds of single transfers.

        Ranks meet before each round: one that has nothing to transfer would otherwise begin the next round, over links that are in use.
        """
        found = np.empty(sum(received_bytes), np.uint8)
        outgoing, incoming = _pieces(sent, sent_bytes), _pieces(found, received_bytes)
        for transfers in order.rounds:
            if len(order.rounds) > 1:
                self.meet()
            began = time.perf_counter()
            own = [pair for pair in transfers if self.rank in pair]
            targets = {target: outgoing[target] for source, target in own if source == self.rank and sent_bytes[target]}
            sources = {
                source: incoming[source] for source, target in own if target == self.rank and received_bytes[source]
            }
            self.trade(targets, sources)
            sizes = {(self.rank, target): len(piece) for target, piece in targets.items()}
            sizes |= {(source, self.rank): len(piece) for source, piece in sources.items()}
            if own and self.model is not None:
                self._wait(began, 0, self.model.seconds_of_round(self.rank, sizes))
        return found

    def _shared_seconds(self, sent_bytes: Sequence[int]) -> float | None:
        """Returns the seconds of an exchange over modelled links that ranks share, None without; sizes are gathered beside the network."""
        if self.model is None or self.model.links is None or self.world == 1:
            return None
        sizes = self.unmodelled().gather(np.array(sent_bytes, np.int64).view(np.uint8))
        return self.model.seconds_at_once(self.rank, np.stack([each.view(np.int64) for each in sizes]))

    def trade(self, sent: Mapping[int, Array], received: Mapping[int, Array]) -> None:
        """Sends and receives a piece, u8[n > 0], to and from each rank of `sent` and of `received`; neither counted nor modelled."""
        group = self._group.library
        with blaming_peers("a round of an exchange"):
            calls = [dist.irecv(torch.from_numpy(piece), rank, group) for rank, piece in received.items()]
            calls += [dist.isend(torch.from_numpy(piece), rank, group) for rank, piece in sent.items()]
            for call in filter(None, calls):
                call.wait()

    def meet(self) -> None:
        """Waits for all other ranks."""
        with blaming_peers("a round of an exchange"):
            dist.barrier(self._group.library)

    def swap(self, numbers: Array) -> Array:
        """Sends each other rank its number, i64[world], and returns i64[world], theirs; 0 from this one. Not counted, nor modelled."""
        sizes = [0 if rank == self.rank else 8 for rank in range(self.world)]
        sent = np.delete(numbers, self.rank).astype(np.int64).view(np.uint8)
        found = self.unmodelled().all_to_all(sent, sizes, sizes)
        return np.insert(found.view(np.int64), self.rank, 0)

    def gather(self, piece: Array) -> list[Array]:
        """Returns the pieces, u8[n] with the same n, of all ranks, in the order of ranks."""
        if self.world == 1:
            return [piece]
        began = time.perf_counter()
        found = [torch.empty(len(piece), dtype=torch.uint8) for _ in range(self.world)]
        with blaming_peers("a gathering"):
            dist.all_gather(found, torch.from_numpy(piece), group=self._group.library)
        self._wait(began, (self.world - 1) * len(piece))
        return [each.numpy() for each in found]

    def gather_any(self, piece: bytes) -> list[bytes]:
        """Returns the pieces of all ranks, of any length, in the order of ranks."""
        if self.world == 1:
            return [piece]
        sizes = [int(each.view(np.int64)[0]) for each in self.gather(np.array([len(piece)], np.int64).view(np.uint8))]
        padded = np.zeros(max(sizes), np.uint8)
        padded[: len(piece)] = np.frombuffer(piece, np.uint8)
        return [each[:size].tobytes() for each, size in zip(self.gather(padded), sizes, strict=True)]

    def gather_at_first(self, piece: bytes) -> list[bytes]:
        """Returns the pieces of all ranks, of any length, in the order of ranks, at the first rank; an empty list at the others."""
        sizes = self.gather_values(len(piece))
        found = [bytearray() for _ in sizes]
        for first in range(0, max(sizes), PIECE_BYTES):
            here = [max(0, min(PIECE_BYTES, size - first)) for size in sizes]
            own = _bytes(piece, first, PIECE_BYTES) if self.rank else np.empty(0, np.uint8)
            sent = [len(own), *(0 for _ in sizes[1:])]
            coming = [0, *here[1:]] if self.rank == 0 else [0 for _ in sizes]
            received = np.split(self.all_to_all(own, sent, coming), np.cumsum(coming)[:-1])
            for whole, part in zip(found, received, strict=True):
                whole += part.tobytes()
        return [] if self.rank else [piece, *(bytes(each) for each in found[1:])]

    def from_first(self, piece: bytes) -> bytes:
        """Returns the piece of the first rank, of any length; those of other ranks are ignored."""
        if self.world == 1:
            return piece
        size, others, found = self.gather_values(len(piece))[0], self.world - 1, bytearray()
        # While a piece is sent, it exists once for each of the other ranks.
        most, lane = max(1, PIECE_BYTES // others), self.unmodelled()
        for first in range(0, size, most):
            here = min(most, size - first)
            if self.rank == 0:
                lane.all_to_all(np.tile(_bytes(piece, first, here), others), [0, *[here] * others], [0] * self.world)
            else:
                nothing = [0] * self.world
                found += lane.all_to_all(np.empty(0, np.uint8), nothing, [here, *nothing[1:]]).tobytes()
        return bytes(found) if self.rank else piece

    def gather_values(self, value: Any) -> list[Any]:
        """Returns the JSON-ready values of all ranks, in the order of ranks."""
        return [json.loads(each) for each in self.gather_any(json.dumps(value).encode())]

    def most(self, number: int) -> int:
        """Returns the largest of the ranks' numbers."""
        return max(int(each.view(np.int64)[0]) for each in self.gather(np.array([number], np.int64).view(np.uint8)))

    def add(self, values: torch.Tensor) -> None:
        """Replaces a tensor by the sum over all ranks, in an order that the library chooses."""
        if self.world > 1:
            began = time.perf_counter()
            with blaming_peers("a sum"):
                dist.all_reduce(values, group=self._group.library)
            self._wait(began, 2 * values.nbytes)

    def _wait(self, began: float, num_bytes: int, seconds: float | None = None) -> None:
        """Waits until a call has taken its modelled time: `seconds`, or that of its bytes."""
        if self.model is not None and self.world > 1:
            left = began + (self.model.seconds(num_bytes) if seconds is None else seconds) - time.perf_counter()
            if left > 0:
                time.sleep(left)


def _pieces(buffer: Array, sizes: Sequence[int]) -> list[Array]:
    ends = np.cumsum(sizes)
    return [buffer[end - size : end] for end, size in zip(ends.tolist(), sizes, strict=True)]


def _bytes(piece: bytes, first: int, count: int) -> Array:
    """Returns u8[<= count], a copy of some bytes: torch wants memory that it may write to."""
    return np.frombuffer(piece, np.uint8, min(count, max(0, len(piece) - first)), min(first, len(piece))).copy()


class Ranks:
    """This process among those of its training; `main` is the lane of the thread that trains, `timeout` the bound of a call in seconds."""

    def __init__(self, rank: int = 0, world: int = 1, timeout: float = DEFAULT_TIMEOUT):
        self.rank, self.world, self.timeout = rank, world, timeout
        self._groups: list[Group] = []
        self.main = self.lane()

    @property
    def first(self) -> bool:
        """Whether this rank is the one that writes checkpoints and the model."""
        return self.rank == 0

    def lane(self, model: LinkModel | None = None) -> Lane:
        """Returns a lane of its own; all ranks ask for their lanes in the same order."""
        if self.world == 1:
            return Lane(self.rank, self.world, model=model)
        return Lane(self.rank, self.world, self.group("gloo", self.timeout), model)

    def group(self, backend: str, timeout: float) -> Group:
        """Returns a process group for the training, "gloo", or "nccl" for tensors of GPUs; all ranks ask for theirs in the same order."""
        with blaming_peers("the meeting"):
            group = Group(dist.new_group(backend=backend, timeout=datetime.timedelta(seconds=timeout)))
        self._groups.append(group)
        return group

    def close(self) -> None:
        """Ends the process groups and waits for their threads; lanes make no calls after it."""
        dist.destroy_process_group()
        for group in self._groups:
            group.library = None

    def leave(self, error: BaseException) -> None:
        """Ends this process by an error in the middle of a training that others share (trainers/ranks/leave.py)."""
        leave(error)

    def beside(self, value: Any) -> list[Any]:
        """Returns the JSON-ready values of the ranks on this machine, this one included, in the order of ranks; all ranks call it."""
        here = here_and_now()
        return [each for place, each in self.main.gather_values([here, value]) if place == here]

    def tell(self, value: Any) -> Any:
        """Returns the JSON-ready value of the first rank; those of other ranks are ignored."""
        return json.loads(self.main.from_first(json.dumps(value).encode() if self.first else b""))

    def tell_bytes(self, *values: bytes) -> list[bytes]:
        """Returns the values of the first rank; the others pass as many values of any length."""
        return [self.main.from_first(value) for value in values]


ALONE = Ranks()
"""One process without others."""


@contextmanager
def coming() -> Iterator[Meeting | None]:
    """Shows the other ranks that this one is at work, until the block ends; one process alone does nothing.

    Raises:
        InputError: a launcher has not set all variables.
        PeerError: the first rank does not answer.
    """
    rank, world = asked_ranks()
    if world == 1:
        yield None
        return
    with blaming_peers("the meeting"):
        meeting = Meeting(open_store(rank, world), rank, world)
    try:
        yield meeting
    finally:
        meeting.close()


@contextmanager
def joined(timeout: float = DEFAULT_TIMEOUT, meeting: Meeting | None = None) -> Iterator[Ranks]:
    """Meets the other ranks at the address of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and yields this one.

    Args:
        timeout: seconds that a collective call may take.
        meeting: the meeting of `coming`, if this rank had something to prepare.

    An error that leaves the block leaves the groups open; it ends the process by `leave`.

    Raises:
        PeerError: the other ranks do not come (trainers/ranks/meeting.py).
    """
    rank, world = asked_ranks()
    if world == 1:
        yield Ranks()
        return
    with nullcontext(meeting) if meeting else coming() as met:
        assert met is not None
        limit = datetime.timedelta(seconds=timeout)
        with blaming_peers("the meeting"):
            met.wait()
            dist.init_process_group("gloo", store=cast(Any, met.store), timeout=limit, rank=rank, world_size=world)
        met.close()
    ranks = Ranks(rank, world, timeout)
    # After an error the groups stay: their threads may wait for ranks that do not come, and the error ends the process (leave.py).
    yield ranks
    ranks.close()


@contextmanager
def blaming_peers(where: str) -> Iterator[None]:
    """Makes an error of the library in a call that ranks make together a `PeerError`, and ends the process soon after it."""
    try:
        yield
    except RuntimeError as error:
        if refused := refusal(error):
            raise refused from error
        said = str(error).strip().splitlines()[0].rpartition("] ")[2]
        problem = f"another rank is gone or late; this one was in {where}: {said}"
        leave_soon(problem)
        raise PeerError(problem) from error
