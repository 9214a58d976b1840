"""The technique `factored`: some devices sample, others train, and a queue in the host's memory links them (FGNN, section 5).

    samplers --sample, mark--> global queue --> trainers: extract | train --gradients--> update

Trainers are replicas of the model. The gradients of a step group are added in the order of batches, independent of which replica computed
them and when, and the loop makes one update of the sum: weights and losses are those of `minibatch` with the same `accumulate`, to the bit,
at any number of samplers and trainers, and with any switching. So is the ledger, except with `topology = "device"`: a standby trainer then
has a smaller cache, and its transfers depend on which batches it takes. The price is a barrier per update: with `accumulate = 1` only one
trainer has work, so recipes with T trainers take `accumulate` = T or a multiple. `staleness` = k lets a gradient lack up to k updates (FGNN
5.2); then the result depends on timing.

On the CPU, a device is a role and its threads. If one device trains with all cores, and rows are at hand, roles work in turn on one thread
instead: threads of roles would take these cores from one another (trainers/recipe/queue_bytes.py), and a standby trainer is never needed.
`timeout` then ends no role. The devices that sample are set by the user, or chosen from measured stages (simulator/).
With `topology = "device"` the graph is booked on the devices that sample, and the cache of their standby trainers is the prefix of the hot
rows that it leaves room for; a graph that is larger than a device is loaded by parts.

Accelerators (crew.py): trainers are replicas on devices of their own, each with the whole cache. The CPU samples for them, or with
`topology` other devices do, which put their batches into pinned memory of the host: blocks cross twice. Gradients and weights are copied
from device to device. If one device has all roles, batches stay there, and its streams share it in time.

With `rows = "packed"` samplers read stored batches and load their packed rows from disk (DiskGNN, 5.3), and trainers extract the batch from
these and the static tiers: the batches, rows and weights of `disk`.

Memory: the bound of `queue` for sampled batches and their packed rows; for each trainer the input rows of two batches, gradients of the
batches that the update waits for, and activations of one. Known limits: one process, whose roles are threads; a standby trainer extracts
and trains in turn, not at the same time; logical devices share one image of the cached rows, which every one books; learnable rows of nodes
(`embedding = "node"`) are on the model's device, where all trainers are then.

Visits that are counted while a model trains (online presampling, FGNN 6.3): those of the batches that it has trained on.

They are counted where the batches were drawn: a device that draws keeps the numbers, and no id of a batch leaves it for them. Batches have
the same bytes wherever they are drawn, so both ways count the same.

Memory: 4 bytes per node, on each device that draws or on the host; on the host twice that while the cache is filled or a checkpoint is
written.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.hotness.visits import count_visits
from graphmill.kernels.types import Array
from graphmill.trainers.batches.flow import Closed
from graphmill.trainers.devices.malloc import return_if_short
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.devices.torch_threads import prompt_turns
from graphmill.trainers.loop.executor import Done, Executor, Run, add_in_order
from graphmill.trainers.record.checks import TIER_ROWS, move_name
from graphmill.trainers.record.ledger import TRAIN, WAIT, Line
from graphmill.trainers.rows.source import LinkedSource
from graphmill.trainers.techniques.factored.crew import Crew
from graphmill.trainers.techniques.factored.queue import GlobalQueue, Result, Updates
from graphmill.trainers.techniques.factored.replica import move_statistics, require_replicable, weights_of
from graphmill.trainers.techniques.factored.roles import COPY, EXTRACT, LOAD, MARK, SAMPLE, Epoch, TrainerRole
from graphmill.trainers.techniques.factored.watch import Activity, ExecutorFault, Watch, fault_of, naming
from graphmill.trainers.techniques.openings import open_packed, pack_edges, planned_reads

GRACE_SECONDS = 5.0
"""Seconds for which an epoch that a fault ended waits for threads that are still at work."""


def open_executor(run: Run) -> FactoredExecutor:
    """Returns the executor of batches of the queue; raises InputError if settings or model do not allow it, or batches are missing."""
    require_replicable(run)
    return FactoredExecutor(run)


class FactoredExecutor(Executor):
    """Samplers, trainers and the order of their gradients."""

    def __init__(self, run: Run):
        super().__init__(run)
        self.settings = run.semantic.train.settings
        self.repeatable = self.settings.staleness == 0
        self.watch = Watch(self.settings.timeout)
        # The source in front of the run's own link: every device has a link of its own.
        source = run.features.source
        self.features = source.source if isinstance(source, LinkedSource) else source
        self.packed = open_packed(run) if self.settings.rows == "packed" else None
        if self.packed is not None:
            self.features = self.packed
            pack_edges(run)
        self.crew = self.open_crew()
        # Counted until the cache is filled, and kept to fill it again after a restart.
        self._visits = self._counting() if self.settings.presample else None
        self.record: dict[str, Any] = {}
        self._publish()

    def open_crew(self) -> Crew:
        """Returns the roles, on the run's source of rows."""
        return Crew(self.run, self.features)

    def planned(self, epochs: int) -> dict[str, int]:
        """Returns the numbers of mini-batches, without tiers if the first epochs have no cache, or those of the plan of packed rows."""
        if self.packed is not None:
            planned = planned_reads(self.run, epochs)
            planned.pop(move_name("disk", "topology"))  # samplers read batches through the page cache
            return planned
        planned = super().planned(epochs)
        if self.settings.presample:
            planned.pop(TIER_ROWS, None)
        return planned

    def state(self) -> Mapping[str, Tensor]:
        """Returns the visits of online presampling; every other decision is keyed by the batch."""
        return {} if self._visits is None else self._visits.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Takes over the restored weights and visits."""
        if self._visits is not None and "visits" in state:
            self._visits.restore(state["visits"])
        self._publish()

    def steps(self, epoch: int, start: int) -> Generator[Done, None, None]:
        """Yields one `Done` per mini-batch, in order; raises ExecutorFault if a role fails, or takes longer than `timeout` for a task."""
        if self._visits is not None and epoch >= self.settings.presample and self.features is self.run.features.table:
            assert self.run.features.fill is not None
            self.features = self.run.features.fill(rank(self._visits.counted()))
            self.crew.read_from(self.features)
        with prompt_turns(), ExitStack() as bounded:
            for device in self.crew.siblings:
                bounded.enter_context(device.active())  # the loop has entered the first one
            yield from self._epoch(epoch, start)

    @property
    def in_turn(self) -> bool:
        """Whether roles work one after the other on the thread of the loop, and each has all cores: one device trains, rows are at hand."""
        return self.features.at_hand and self.crew.record["trainers"] == 1

    def _epoch(self, epoch: int, start: int) -> Iterator[Done]:
        shared = self._open_epoch(epoch, start)
        threads, in_turn = self._begin(shared), self.in_turn
        grace = self.settings.timeout
        try:
            for position in shared.planned:
                if in_turn:
                    self._turn(shared, position)
                result = shared.updates.take(position)
                self.run.ledger.merge(result.moved)
                self._behind[result.behind] += 1
                self.took(epoch, result)
                move_statistics(self.run.model, result.norm_inputs)
                add_in_order(self.run.model, [result.gradients])
                done, last = result.done, result.done.last
                del result
                yield done
                if last:
                    self._publish()
                    shared.updates.update_made()
        except ExecutorFault:
            grace = GRACE_SECONDS
            raise
        finally:
            self._end(shared, threads, grace)

    def took(self, epoch: int, result: Result) -> None:
        """Notes a result of a training epoch, in the order of batches, before the loop's update."""
        if self._visits is not None and self.features is self.run.features.table:
            self._visits.add(result.input_ids)
            self.run.features.device.enter_thread()  # counting may have been another device's

    def _open_epoch(self, epoch: int, start: int) -> Epoch:
        plan, batching = self.run.plan, self.run.batching
        planned = {item.position: item for item in plan.batches(epoch, start)}
        changed = threading.Condition()
        self._behind: Counter[int] = Counter()
        return Epoch(
            number=epoch,
            planned=planned,
            queue=GlobalQueue(
                start,
                plan.num_batches,
                plan.batches_per_step,
                batching.queue_bytes,
                batching.most_queue_bytes or batching.queue_bytes,
                changed,
            ),
            updates=Updates(
                start // plan.batches_per_step, plan.batches_per_step, self.settings.staleness, changed, self.watch
            ),
            changed=changed,
            weights=lambda: self._weights,
        )

    def _turn(self, epoch: Epoch, position: int) -> None:
        """Has a batch sampled and trained on, on this thread."""
        *samplers, trainer = self.crew.executors
        if samplers:
            sampler = samplers[position % len(samplers)]
            with naming(sampler), self.run.timeline.span(trainer.activity.name, WAIT, position):
                sampler.draw(epoch)
        with naming(trainer):
            trainer.turn(epoch)

    def _begin(self, epoch: Epoch) -> list[threading.Thread]:
        threads: list[threading.Thread] = []
        self.watch.activities = self.crew.activities
        for executor in self.crew.executors:
            if isinstance(executor, TrainerRole):
                executor.begin(epoch)
            for activity, loop in executor.loops():
                activity.begin()
                if not self.in_turn:
                    activity.thread = threading.Thread(
                        target=self._guarded, args=(activity, loop, epoch), name=activity.name, daemon=True
                    )
                    threads.append(activity.thread)
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self, activity: Activity, loop: Callable[[Epoch], None], epoch: Epoch) -> None:
        try:
            torch.set_num_threads(self.run.semantic.train.num_threads)
            self.run.features.device.enter_thread()
            if activity.device is not None:  # one without memory of its own leaves the thread to the run's
                activity.device.enter_thread()
            loop(epoch)
        except Closed:
            pass
        except BaseException as error:  # it belongs to the thread that makes the updates
            epoch.updates.fail(fault_of(activity, error))
        finally:
            activity.ended = True

    def _end(self, epoch: Epoch, threads: list[threading.Thread], grace: float) -> None:
        epoch.queue.close()
        epoch.updates.close()
        ends = time.monotonic() + grace
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))
        if self.packed is not None:
            self.packed.close()
            if self.run.edge_rows is not None:
                self.run.edge_rows.close()
        return_if_short()
        self._note(epoch)

    def _publish(self) -> None:
        """Gives the model's weights to the replicas."""
        self._weights = weights_of(self.run.model, copied=not self.repeatable)

    def _counting(self) -> OnlineVisits:
        features, topology = self.run.features, self.run.graph.topology
        assert features.fill is not None, "the file has [memory], and such a training reads no hotness"
        devices = [features.device, *self.crew.siblings]
        return OnlineVisits(topology.num_nodes, devices, self.crew.trained_where_drawn)

    def _note(self, epoch: Epoch) -> None:
        """Records facts about the last epoch."""
        activities, places = self.watch.activities, self.crew.places
        seconds = {
            phase: round(sum(activity.seconds.get(phase, 0.0) for activity in activities), 6)
            for phase in (SAMPLE, MARK, *([] if self.packed is None else [LOAD]), COPY, EXTRACT, TRAIN)
        }
        self.record |= self.crew.record | {
            "batches": self.run.plan.num_batches,
            "stage_seconds": seconds,
            "trained_by": {a.name: a.tasks[TRAIN] for a in activities if a.tasks.get(TRAIN)},
            "sampled_by": {a.name: a.tasks[SAMPLE] for a in activities if a.tasks.get(SAMPLE)},
            "queue_peak_bytes": epoch.queue.peak_bytes,
            "updates_behind": {str(k): n for k, n in sorted(self._behind.items())},
            "topology_loaded_bytes": {
                name: place.device.traffic.moved_bytes("h2d") for name, place in places.items() if place.parts
            },
            "peak_bytes": {name: dict(place.device.peak) for name, place in places.items()},
        }
        if self.crew.siblings:
            traffic = {str(device.torch_device): device.traffic.rows()["moves"] for device in self.crew.siblings}
            self.record["traffic_of_other_accelerators"] = traffic


HOST = torch.device("cpu")
UP, DOWN = Line("h2d", "checkpoint"), Line("d2h", "ids")


class OnlineVisits:
    """The number of batches that had each node among their inputs; with `drawn_there` a device trains on the batches that it draws."""

    def __init__(self, num_nodes: int, devices: Sequence[Device], drawn_there: bool):
        self._num_nodes, self._devices = num_nodes, {device.torch_device: device for device in devices}
        self._first = devices[0].torch_device if drawn_there else HOST
        self._counts: dict[torch.device, Tensor] = {}
        self._at(self._first)

    def _at(self, where: torch.device) -> Tensor:
        """Returns i32[N], the counts of batches that are on a device or on the host."""
        if where not in self._counts:
            shape = (self._num_nodes,)
            device = self._devices.get(where)  # none of the host
            made = (
                torch.empty(shape, dtype=torch.int32) if device is None else device.alloc(shape, torch.int32, "visits")
            )
            self._counts[where] = made.zero_()
        return self._counts[where]

    def add(self, input_ids: Any) -> None:
        """Counts a batch by ids[n], the nodes of its input rows, which are where the batch is trained on."""
        if on_device(input_ids):
            count_visits(input_ids, self._at(input_ids.device))
        else:
            count_visits(input_ids, self._at(HOST).numpy())

    def counted(self) -> Array:
        """Returns i32[N] on the host."""
        fetched = [counts if at == HOST else self._fetched(at) for at, counts in self._counts.items()]
        return torch.stack(fetched).sum(0, dtype=torch.int32).numpy() if len(fetched) > 1 else fetched[0].numpy()

    def _fetched(self, where: torch.device) -> Tensor:
        device = self._devices[where]
        return device.fetch(self._counts[where], DOWN, device.traffic)

    def state(self) -> dict[str, Tensor]:
        """Returns a copy of the counts for a checkpoint, where they are; their sum on the host if several devices have some."""
        if len(self._counts) == 1:
            return {"visits": self._counts[self._first].clone()}
        return {"visits": torch.from_numpy(self.counted())}

    def restore(self, counts: Tensor) -> None:
        """Takes over i32[N], the counts of a checkpoint."""
        if self._first != HOST:
            device = self._devices[self._first]
            counts = device.send_tensor(counts.contiguous(), UP, device.traffic)
        self._counts = {self._first: self._at(self._first).copy_(counts)}
