"""The roles of a run: how many devices sample and train, on which devices, and whether a sampler should switch."""

from __future__ import annotations

import statistics
import threading
from dataclasses import replace
from itertools import islice
from typing import Any

from assets.storage.machine import usable_cores
from kernels.errors import InputError
from kernels.sampling.own_sampling import AnySampler
from kernels.types import Stream
from trainers.loop.executor import Run
from trainers.record.timeline import TRAIN, Timeline
from trainers.rows.source import FeatureSource
from trainers.techniques import minibatch
from trainers.techniques.factored.places import DevicePlace, sampling_place, training_place
from trainers.techniques.factored.replica import Replica, weights_of
from trainers.techniques.factored.roles import (
    EXTRACT,
    LOAD,
    MARK,
    SAMPLE,
    BatchDrawer,
    DeviceBatchDrawer,
    ReplicaTraining,
    SamplerRole,
    TimeShared,
    TrainerRole,
)
from trainers.techniques.factored.settings import default_devices
from trainers.techniques.factored.simulator.allocation import search
from trainers.techniques.factored.simulator.simulate import profit
from trainers.techniques.factored.simulator.workload import Workload
from trainers.techniques.factored.watch import Activity

PROBES = 4
"""Number of batches whose stages are measured."""


class Crew:
    """The roles of a run.

    Args:
        run: the run.
        features: the source of rows, without a link.

    Attributes:
        executors: the roles: samplers and trainers, or devices that are shared in time.
        places: name -> device and source of rows of each role.
        draws: drawers of batches on the device, one for each sampler; empty if the host draws.
        idle: those that no sampler has.
        record: facts about the choice of roles, for run.json.
        arena_bytes: bytes that a device which trains holds beside cached rows.

    Raises:
        InputError: the settings do not fit the device or each other; or samples are missing, of another graph, drawn otherwise or too few.
    """

    arena_bytes = 0

    def __init__(self, run: Run, features: FeatureSource):
        self.run, self.settings = run, run.semantic.train.settings
        self._stored = minibatch.open_stored(run) if run.execution.samples == "stored" else None
        samplers = self.settings.samplers or 1
        self.draws = minibatch.device_drawers(run, samplers) if minibatch.samples_on_device(run) else []
        self.places: dict[str, DevicePlace] = {}
        self.record: dict[str, Any] = {}
        self.own_code = threading.Lock()
        self._measured: dict[str, float] | None = None
        self._split: tuple[int, int] | None = None
        self.read_from(features)

    @property
    def activities(self) -> list[Activity]:
        """The activities of all threads."""
        return [activity for each in self.executors for activity, _ in each.loops()]

    def read_from(self, features: FeatureSource) -> None:
        """Makes the roles anew, on another source of rows; their numbers stay."""
        self.features, self.idle = features, list(self.draws)
        self.executors = self._time_shared() if self.settings.sharing == "time" else self._factored()

    def _factored(self) -> list[Any]:
        samplers, trainers = self._split = self._split or self._counts()
        if not trainers and not self.settings.switching:
            problem = f"samplers = {samplers} are all devices, and with switching = false nobody trains"
            raise InputError(problem, "set switching = true, or give a trainer")
        remote, timeline = self.run.features.device.remote, self.run.timeline
        found: list[Any] = []
        for i in range(samplers):
            place = self.places[f"sampler {i}"] = sampling_place(self.run, i, self.features, self.arena_bytes)
            switches = self.settings.switching and not remote
            standby = self.training(place) if switches else None
            found.append(
                SamplerRole(Activity(f"sampler {i}", timeline), self.drawing(place), standby, self._worthwhile)
            )
        for i in range(trainers):
            activities = Activity(f"trainer {i}", timeline), Activity(f"trainer {i} extract", timeline)
            place = self.places[f"trainer {i}"] = training_place(self.run, samplers + i, self.features)
            found.append(TrainerRole(*activities, self.training(place)))
        self.record |= {"sharing": "space", "samplers": samplers, "trainers": trainers}
        return found

    def _time_shared(self) -> list[Any]:
        count = self.settings.trainers or self.settings.devices or default_devices(usable_cores())
        self.record |= {"sharing": "time", "samplers": 0, "trainers": count}
        self.places = {
            f"device {i}": sampling_place(self.run, i, self.features, self.arena_bytes) for i in range(count)
        }
        return [
            TimeShared(Activity(name, self.run.timeline), self.drawing(place), self.training(place))
            for name, place in self.places.items()
        ]

    def open_sampler(self) -> AnySampler:
        """Returns a sampler for one role, which draws batches or reads stored ones."""
        return self._stored or minibatch.open_sampler(self.run)

    def drawing(self, place: DevicePlace | None = None) -> BatchDrawer:
        """Returns the drawer of a sampler at a place."""
        if minibatch.samples_on_device(self.run):
            return DeviceBatchDrawer(self.run.batching, self.idle.pop())
        return BatchDrawer(self.run.batching, self.open_sampler(), self.features, place.parts if place else None)

    def training(self, place: DevicePlace) -> ReplicaTraining:
        """Returns the training of a trainer at a place, or of a sampler that trains in its stead."""
        replica = Replica(self.run, place.device, self.own_code)
        return ReplicaTraining(self.run.batching, replica, place.features, remark=place.narrower)

    def _counts(self) -> tuple[int, int]:
        """Returns the numbers of samplers and trainers."""
        settings, total = self.settings, self.settings.devices or default_devices(usable_cores())
        if self.run.features.device.remote:
            return settings.samplers or (1 if self.draws else max(1, default_devices(usable_cores()) - 1)), 1
        if settings.samplers and settings.trainers:
            return settings.samplers, settings.trainers
        if settings.samplers:
            return settings.samplers, max(total - settings.samplers, 0 if settings.devices else 1)
        if settings.trainers:
            return max(1, total - settings.trainers), settings.trainers
        return self._chosen(total)

    def _chosen(self, total: int) -> tuple[int, int]:
        place = training_place(self.run, total, self.features)
        found = self._measured = self._stages(self.drawing(), self.training(place))
        workload = Workload(
            batches=self.run.plan.num_batches,
            sample=found["sample"],
            extract=found["extract"],
            train=found["train"],
            group=self.run.plan.batches_per_step,
            staleness=self.settings.staleness,
        )
        allocation = search(workload, total)
        samplers = allocation.best if self.settings.switching else allocation.best_static
        self.record |= {
            "devices": total,
            "measured_seconds": {name: round(seconds, 6) for name, seconds in found.items()},
            "formula_samplers": allocation.formula,
            "simulated_seconds": {str(count): round(seconds, 4) for count, seconds in allocation.seconds.items()},
        }
        return samplers, total - samplers

    def _stages(self, drawing: BatchDrawer, training: ReplicaTraining) -> dict[str, float]:
        """Returns the median seconds in which a batch is sampled, marked or loaded, its rows are extracted, and it is trained on.

        A few batches of the first epoch's seeds pass the stages one at a time before it begins (FGNN, section 5.3: "by training an epoch in
        advance"), sampled on the probe stream. The first one warms caches and is not counted. This uses no draw of training, books nothing
        and keeps no gradient, so the run is the same without it.
        """
        run, found = self.run, []
        training.replica.follow(weights_of(run.model, copied=False))
        for item in islice(run.plan.batches(0), 1 + min(PROBES, run.plan.num_batches)):
            activity = Activity("probe", Timeline())
            # Stored batches have no probe stream: they are only read, which uses no draw either.
            probed = item if self._stored else item._replace(key=replace(item.key, stream=Stream.PROBE))
            drawn = drawing(activity, probed, 0)
            drawing.load(activity, drawn)
            batch = training.extract(activity, drawn).batch
            with activity.at(TRAIN, item.position):
                training.replica(batch)
            found.append(activity.seconds)
        phases = {"sample": (SAMPLE, MARK, LOAD), "extract": (EXTRACT,), "train": (TRAIN,)}
        return {
            stage: statistics.median(sum(each[phase] for phase in phases[stage]) for each in found[1:] or found)
            for stage in phases
        }

    def _worthwhile(self, waiting: int, trainers: int) -> bool:
        """Returns whether a standby trainer finishes a batch before the trainers finish all (FGNN, 5.3)."""
        if not trainers:
            return True
        extract, train = self._mean(TrainerRole, EXTRACT), self._mean(TrainerRole, TRAIN)
        if not (extract or train):
            return waiting > trainers  # the sign of the profit if all take equally long; nothing is measured yet
        standby = self._mean(SamplerRole, EXTRACT, extract) + self._mean(SamplerRole, TRAIN, train)
        return profit(waiting, trainers, max(extract, train), standby) > 0

    def _mean(self, kind: type, phase: str, unknown: float | None = None) -> float:
        """Returns the mean seconds of a phase in this epoch, over all roles of a kind; before any `unknown`, or the measured seconds."""
        activities = [activity for each in self.executors if isinstance(each, kind) for activity, _ in each.loops()]
        tasks = sum(activity.tasks.get(phase, 0) for activity in activities)
        if tasks:
            return sum(activity.seconds.get(phase, 0.0) for activity in activities) / tasks
        if unknown is not None:
            return unknown
        return self._measured[phase] if self._measured else 0.0
