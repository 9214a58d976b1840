"""A discrete-event simulation of factored training: the next event, and the work that starts then.

The simulated roles follow the rules of the real ones (trainers/techniques/factored): batches are handed out in order on both sides; a
trainer holds at most `DEPTH`, and the one that has the fewest, and took the fewest of the step group, takes the next; a batch of group g
waits for update g - k; a sampler without work trains if the profit is above 0, or if the queue is full and no device trains. Not simulated:
the time that threads lose to one another on shared cores, and the handing over itself.

Cost: about three events per batch, each O(trainers).
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from graphmill.trainers.techniques.factored.settings import DEPTH
from graphmill.trainers.techniques.factored.simulator.workload import Workload


@dataclass
class SimulatedEpoch:
    """The result of a simulated epoch."""

    # Time from its begin to its last update.
    seconds: float = 0.0
    # Batches that standby trainers trained on.
    switched: int = 0
    # Seconds of all roles by stage.
    busy: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("sample", "extract", "train"), 0.0))
    # (role, stage, position, begin, end) of every task.
    spans: list[tuple[str, str, int, float, float]] = field(default_factory=list)


def simulate(workload: Workload, samplers: int, trainers: int, *, switching: bool = True) -> SimulatedEpoch:
    """Returns a simulated epoch of some devices; without trainers `switching` must be on."""
    assert samplers >= 1 and trainers >= 0 and (trainers or switching)
    return _Run(workload, samplers, trainers, switching).run()


def time_shared(workload: Workload, devices: int) -> float:
    """Returns the seconds of an epoch whose devices each sample, extract and train in turn, with a standby trainer's cache."""
    free, group, end, made = [0.0] * devices, 0.0, 0.0, 0.0
    heapq.heapify(free)
    for position in range(workload.batches):
        if workload.group and position and position % workload.group == 0:
            made, group = max(group, made) + workload.update, 0.0
        ready = (
            heapq.heappop(free) + workload.seconds("sample", position) + workload.seconds("standby_extract", position)
        )
        finished = max(ready, made) + workload.seconds("train", position)
        heapq.heappush(free, finished)
        group, end = max(group, finished), max(end, finished)
    return end + workload.update


def profit(waiting: int, trainers: int, train_seconds: float, standby_seconds: float) -> float:
    """Returns the seconds P = M_r T_t / N_t - T_t' by which a standby trainer finishes a batch before the trainers finish all (FGNN, 5.3).

    Args:
        waiting: M_r, batches in the queue.
        trainers: N_t, running trainers; none makes the profit infinite.
        train_seconds: T_t, seconds of one batch by a trainer.
        standby_seconds: T_t', seconds of one batch by a standby trainer.
    """
    return math.inf if trainers == 0 else waiting * train_seconds / trainers - standby_seconds


class _Trainer:
    """A trainer: its number of batches, its number of the last step group, the batch whose rows are extracted, and those that are ready."""

    def __init__(self, name: str):
        self.name, self.held, self.took, self.extracting, self.training = name, 0, 0, False, False
        self.ready: deque[int] = deque()


class _Run:
    def __init__(self, workload: Workload, samplers: int, trainers: int, switching: bool):
        self.work, self.switching = workload, switching
        self.now, self.outcome = 0.0, SimulatedEpoch()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.samplers = [f"sampler {i}" for i in range(samplers)]
        self.trainers = [_Trainer(f"trainer {i}") for i in range(trainers)]
        self.task = self.turn = self.handed = self.used = 0
        self.blocked: dict[int, str] = {}  # position -> sampler that waits with it
        self.busy_blocked: set[str] = set()  # samplers that wait with a batch and train meanwhile
        self.items: set[int] = set()
        self.seeking: list[str] = []  # samplers without work that may train
        self.standing: list[tuple[str, int]] = []  # standby trainers that wait for an update
        self.finished: set[int] = set()
        self.taken, self.made, self.updating = 0, 0, False

    def run(self) -> SimulatedEpoch:
        for name in self.samplers:
            self._draw(name)
        while self._events:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
            while self._settle():
                pass
        assert self.taken == self.work.batches, "every batch is trained on"
        self.outcome.seconds = self.now
        return self.outcome

    def _after(self, seconds: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, happen))

    def _do(self, who: str, stage: str, position: int, happen: Callable[[], None]) -> None:
        seconds = self.work.seconds(stage, position)
        kind = stage.removeprefix("standby_")
        self.outcome.busy[kind] += seconds
        self.outcome.spans.append((who, kind, position, self.now, self.now + seconds))
        self._after(seconds, happen)

    # The work of roles; `_settle` decides which may begin.

    def _draw(self, sampler: str) -> None:
        if self.task == self.work.batches:
            if self.switching:
                self.seeking.append(sampler)
            return
        position, self.task = self.task, self.task + 1

        def drawn() -> None:
            self.blocked[position] = sampler

        self._do(sampler, "sample", position, drawn)

    def _take(self) -> int:
        position, self.handed = self.handed, self.handed + 1
        self.items.discard(position)
        return position

    def _extract(self, trainer: _Trainer) -> None:
        position = self._take()
        if self.work.group and position % self.work.group == 0:
            for each in self.trainers:
                each.took = 0
        trainer.held, trainer.took, trainer.extracting = trainer.held + 1, trainer.took + 1, True

        def extracted() -> None:
            trainer.extracting = False
            trainer.ready.append(position)

        self._do(trainer.name, "extract", position, extracted)

    def _train(self, trainer: _Trainer) -> None:
        position = trainer.ready.popleft()
        trainer.training = True

        def trained() -> None:
            trainer.training, trainer.held = False, trainer.held - 1
            self._finish(position)

        self._do(trainer.name, "train", position, trained)

    def _stand_in(self, sampler: str) -> None:
        position = self._take()
        self._do(sampler, "standby_extract", position, lambda: self.standing.append((sampler, position)))

    def _train_standby(self, sampler: str, position: int) -> None:
        self.outcome.switched += 1

        def trained() -> None:
            self._finish(position)
            if sampler in self.busy_blocked:
                self.busy_blocked.discard(sampler)
            else:
                self.seeking.append(sampler)

        self._do(sampler, "train", position, trained)

    def _finish(self, position: int) -> None:
        self.used -= 1
        self.finished.add(position)

    # The events that may happen next.

    def _settle(self) -> bool:
        return self._collect() or self._admit() or self._hand_out() or self._begin_training() or self._relieve()

    def _collect(self) -> bool:
        """Takes results in order, as the main thread; after the last one of a group it makes an update."""
        if self.updating or self.taken not in self.finished:
            return False
        self.taken += 1
        group = self.work.group
        if self.taken == self.work.batches or (group and self.taken % group == 0):
            self.updating = True

            def updated() -> None:
                self.updating, self.made = False, self.made + 1

            self._after(self.work.update, updated)
        return True

    def _admit(self) -> bool:
        sampler = self.blocked.get(self.turn)
        full = self.work.queue and self.used >= self.work.queue
        if sampler is None or full or sampler in self.busy_blocked:
            return False
        del self.blocked[self.turn]
        self.items.add(self.turn)
        self.used, self.turn = self.used + 1, self.turn + 1
        self._draw(sampler)
        return True

    def _hand_out(self) -> bool:
        if self.handed not in self.items:
            return False
        if self.trainers:
            ranks = [
                (each.held, each.took if self.work.group and self.handed % self.work.group else 0)
                for each in self.trainers
            ]
            least = min(ranks)
            if least[0] < DEPTH:
                for trainer, rank in zip(self.trainers, ranks, strict=True):
                    if rank == least and not trainer.extracting:
                        self._extract(trainer)
                        return True
        if self.seeking:
            work = self.work
            gain = profit(len(self.items), len(self.trainers), work.trainer_seconds, work.standby_seconds)
            if gain > 0:
                self._stand_in(self.seeking.pop(0))
                return True
        return False

    def _may_train(self, position: int) -> bool:
        return not self.work.group or self.made >= position // self.work.group - self.work.staleness

    def _begin_training(self) -> bool:
        for trainer in self.trainers:
            if trainer.ready and not trainer.training and self._may_train(trainer.ready[0]):
                self._train(trainer)
                return True
        for entry in self.standing:
            if self._may_train(entry[1]):
                self.standing.remove(entry)
                self._train_standby(*entry)
                return True
        return False

    def _relieve(self) -> bool:
        """Lets a sampler that waits with a batch train, if the queue is full and no trainer runs."""
        if self.trainers or not self.switching or self.handed not in self.items:
            return False
        sampler = next((each for each in self.blocked.values() if each not in self.busy_blocked), None)
        if sampler is None:
            return False
        self.busy_blocked.add(sampler)
        self._stand_in(sampler)
        return True


def formula_samplers(devices: int, sample_seconds: float, train_seconds: float) -> int:
    """Returns N_s = ceil(N_g / (K + 1)) with K = T_t / T_s: the devices that sample; the others train.

    Args:
        devices: N_g.
        sample_seconds: T_s, seconds of one batch.
        train_seconds: T_t, seconds of one batch.
    """
    if sample_seconds <= 0:
        return 1
    # Rounded to remove noise of the last bits: 6 / (2 + 1) is exactly 2.
    share = devices * sample_seconds / (train_seconds + sample_seconds)
    return max(1, min(devices, math.ceil(share - 1e-9)))


@dataclass(frozen=True)
class Allocation:
    """The simulated allocations of a number of devices."""

    # N_g.
    devices: int
    # Samplers -> seconds of an epoch with switching.
    seconds: dict[int, float]
    # The same without switching; allocations without a trainer are missing.
    static_seconds: dict[int, float]
    # N_s of the formula.
    formula: int

    @property
    def best(self) -> int:
        """The number of samplers with the shortest epoch; among equal ones the nearest to the formula, then the smaller."""
        return self._shortest(self.seconds)

    @property
    def best_static(self) -> int:
        """The same if no device switches; a single device samples, and none trains."""
        return self._shortest(self.static_seconds) if self.static_seconds else self.devices

    def _shortest(self, seconds: dict[int, float]) -> int:
        return min(seconds, key=lambda samplers: (round(seconds[samplers], 9), abs(samplers - self.formula), samplers))


def search(workload: Workload, devices: int) -> Allocation:
    """Simulates every allocation of devices, of N_g >= 1."""
    return Allocation(
        devices,
        {samplers: simulate(workload, samplers, devices - samplers).seconds for samplers in range(1, devices + 1)},
        {
            samplers: simulate(workload, samplers, devices - samplers, switching=False).seconds
            for samplers in range(1, devices)
        },
        formula_samplers(devices, workload.sample, workload.trainer_seconds),
    )
