"""Ranks that are threads of one process: the same calls over memory, so that many trainings fit into a second."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from graphmill.trainers.ranks.group import Lane, PeerError, Ranks
from graphmill.trainers.ranks.tensors import TensorLane

TIMEOUT = 60


class Meeting:
    """One lane of all ranks: everyone puts something down, then everyone reads."""

    def __init__(self, world: int):
        self.barrier, self.given = threading.Barrier(world, timeout=TIMEOUT), [None] * world

    def exchange(self, rank: int, value: Any) -> list[Any]:
        try:
            self.given[rank] = value
            self.barrier.wait()
            found = list(self.given)
            self.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise PeerError("another thread is gone") from error
        return found


class ThreadLane(Lane):
    def __init__(self, rank: int, world: int, meeting: Meeting, log: list):
        super().__init__(rank, world)
        self.meeting, self.log = meeting, log

    def unmodelled(self) -> Lane:
        return ThreadLane(self.rank, self.world, self.meeting, [])

    def trade(self, sent, received):
        given = self.meeting.exchange(self.rank, {rank: piece.copy() for rank, piece in sent.items()})
        assert {rank for rank, pieces in enumerate(given) if self.rank in pieces} == {*received}, (
            "one sends, none receives"
        )
        for rank, buffer in received.items():
            buffer[:] = given[rank][self.rank]

    def meet(self):
        self.meeting.exchange(self.rank, None)

    def all_to_all(self, sent, sent_bytes, received_bytes):
        assert sent.dtype == np.uint8 and len(sent) == sum(sent_bytes) and sent_bytes[self.rank] == 0
        self.log.append(sum(received_bytes))
        if self.order is not None:
            return super().all_to_all(sent, sent_bytes, received_bytes)
        self._count(sent_bytes, received_bytes)
        pieces = np.split(sent.copy(), np.cumsum(sent_bytes)[:-1])
        found = [theirs[self.rank] for theirs in self.meeting.exchange(self.rank, pieces)]
        assert [len(piece) for piece in found] == list(received_bytes), "ranks disagree about sizes"
        return np.concatenate(found)

    def gather(self, piece):
        found = self.meeting.exchange(self.rank, piece.copy())
        assert len({len(each) for each in found}) == 1, "ranks disagree about sizes"
        return found

    def add(self, values):
        pieces = self.meeting.exchange(self.rank, values.clone())
        values.zero_()
        for piece in pieces[::-1]:  # any order will do, as long as it is the same everywhere
            values += piece


class ThreadTensors(TensorLane):
    """What stands in for NCCL: tensors of devices of one process, copied between them."""

    def __init__(self, lane: ThreadLane):
        self.world, self.lane, self.calls = lane.world, lane, 0

    def gather(self, tensor):
        self.calls += 1
        found = self.lane.meeting.exchange(self.lane.rank, tensor.clone())
        assert len({(each.shape, each.dtype, each.device.type) for each in found}) == 1, "ranks disagree"
        return [each.to(tensor.device) for each in found]

    def add(self, values):
        self.calls += 1
        pieces = self.lane.meeting.exchange(self.lane.rank, values.clone())
        values.zero_()
        for piece in pieces[::-1]:
            values += piece.to(values.device)


class ThreadRanks(Ranks):
    def __init__(self, rank: int, world: int, lanes: list[Meeting], lock: threading.Lock):
        self._lanes, self._lock, self._asked, self.log = lanes, lock, 0, []
        super().__init__(rank, world)

    def leave(self, error):
        """A thread only raises it."""

    def lane(self, model=None):
        with self._lock:
            while len(self._lanes) <= self._asked:
                self._lanes.append(Meeting(self.world))
            self._asked += 1
            return ThreadLane(self.rank, self.world, self._lanes[self._asked - 1], self.log)


def run_threads(world: int, work: Callable[[Ranks], Any], seconds: float = TIMEOUT) -> list[Any]:
    """Calls a function once per rank at the same time, and returns what it returned; an error of one ends all.

    Args:
        seconds: wait for the end of each.
    """
    lanes, lock, results, errors = [], threading.Lock(), [None] * world, []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadRanks(rank, world, lanes, lock))
        except BaseException as error:
            errors.append(error)
            for lane in lanes:
                lane.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerError)), errors[0])
    assert not any(thread.is_alive() for thread in threads)
    return results
