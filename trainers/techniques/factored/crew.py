"""The roles of a run: how many devices sample and train, on which devices, and whether a sampler should switch.

On accelerators trainers come first: trainer i is on device i. So the first device, which has the model and makes the updates, always
trains. Samplers are on the devices behind; if none is left, on all of them. Roles that are more than the devices share them in rotation, as
ranks do: a recipe that was written for two GPUs trains on one, with the same bits.
"""

import statistics
import threading
from dataclasses import replace
from itertools import islice
from typing import Any

from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Array, Stream
from graphmill.trainers.batches.batch import Batching
from graphmill.trainers.batches.on_device import DeviceDrawer
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.record.ledger import TRAIN, Timeline
from graphmill.trainers.rows.source import FeatureSource
from graphmill.trainers.techniques.factored.places import DevicePlace, sampling_place, standby_place, training_place
from graphmill.trainers.techniques.factored.replica import Replica, weights_of
from graphmill.trainers.techniques.factored.roles import (
    EXTRACT,
    LOAD,
    MARK,
    SAMPLE,
    BatchDrawer,
    ReplicaTraining,
    SamplerRole,
    TimeShared,
    TrainerRole,
)
from graphmill.trainers.techniques.factored.settings import default_devices
from graphmill.trainers.techniques.factored.simulator.simulate import profit, search
from graphmill.trainers.techniques.factored.simulator.workload import Workload
from graphmill.trainers.techniques.factored.watch import Activity
from graphmill.trainers.techniques.openings import device_drawers, open_sampler, open_stored


class Accelerators:
    """The accelerators of a run by role.

    Args:
        samplers: number of samplers that draw on a device; 0 if the CPU draws.
        most: most devices that the run takes; 0 for one per role.
        together: whether all trainers have to be on the first device.

    Raises:
        InputError: a device cannot be opened.
    """

    def __init__(self, first: Accelerator, trainers: int, samplers: int, most: int = 0, together: bool = False):
        roles = trainers + samplers
        count = max(1, min(first.backend.num_devices(), roles, most or roles))
        numbers = [first.index, *(number for number in range(count) if number != first.index)][:count]
        self.first, self._num_trainers, self._num_samplers = first, trainers, samplers
        self._training = numbers[: 1 if together else trainers]
        self._sampling = numbers[len(self._training) :] or numbers
        in_use = [*self._training, *(self._sampling[:samplers])]
        self._opened = {first.index: first}
        for number in in_use:
            if number not in self._opened:
                self._opened[number] = first.sibling(number)

    @property
    def siblings(self) -> list[Accelerator]:
        """The devices in use besides the first."""
        return [device for device in self._opened.values() if device is not self.first]

    def trainer(self, number: int) -> Accelerator:
        """Returns the device of a trainer."""
        return self._opened[self._training[number % len(self._training)]]

    def sampler(self, number: int) -> Accelerator:
        """Returns the device of a sampler."""
        return self._opened[self._sampling[number % len(self._sampling)]]

    def drawers(self, device: Accelerator) -> int:
        """Returns the number of roles that draw batches on a device: its samplers, or its trainers if there are no samplers."""
        if not self._num_samplers:
            return sum(self.trainer(number) is device for number in range(self._num_trainers))
        return sum(self.sampler(number) is device for number in range(self._num_samplers))

    def trains(self, device: Accelerator) -> bool:
        """Returns whether a device has a trainer."""
        return device.index in self._training


MAP_BYTES = 8
"""Bytes per node of the map of a sampler on a device."""
PROBES = 4
"""Number of batches whose stages are measured."""


class Crew:
    """The roles of a run.

    Attributes:
        executors: the roles: samplers and trainers, or devices that are shared in time.
        places: name -> device and source of rows of each role.
        accelerators: the accelerators by role; None if the devices are logical.
        record: facts about the choice of roles, for run.json.
        arena_bytes: bytes that a device which trains holds beside cached rows.
        together: whether all trainers have to be on the model's device.

    Raises:
        InputError: the settings do not fit the device or each other; or samples are missing, of another graph, drawn otherwise or too few.
    """

    arena_bytes, together = 0, False

    def __init__(self, run: Run, features: FeatureSource):
        self.run, self.settings = run, run.semantic.train.settings
        self._stored = open_stored(run) if run.execution.samples == "stored" else None
        self._on_device = run.draws_on_device
        self.accelerators = self._open_accelerators()
        # By accelerator: all drawers there, those that no role has, and the bytes of topology and maps.
        self._draws: dict[Device, list[DeviceDrawer]] = {}
        self._idle: dict[Device, list[DeviceDrawer]] = {}
        self._topology_bytes: dict[Device, int] = {}
        self._hosted: dict[str, Array] = {}  # one pinned copy of the graph serves all accelerators
        self.places: dict[str, DevicePlace] = {}
        self.record: dict[str, Any] = {}
        self.own_code = threading.Lock()
        self._measured: dict[str, float] | None = None
        self._split: tuple[int, int] | None = None
        self.read_from(features)

    @property
    def siblings(self) -> list[Accelerator]:
        """The accelerators besides the model's."""
        return [] if self.accelerators is None else self.accelerators.siblings

    @property
    def trained_where_drawn(self) -> bool:
        """Whether batches stay on the accelerator that draws them, which trains on them."""
        return self._on_device and (not self.siblings or self.settings.sharing == "time")

    @property
    def activities(self) -> list[Activity]:
        """The activities of all threads."""
        return [activity for each in self.executors for activity, _ in each.loops()]

    def read_from(self, features: FeatureSource) -> None:
        """Makes the roles anew, on another source of rows; their numbers stay."""
        self.features, self._idle = features, {device: list(draws) for device, draws in self._draws.items()}
        for sibling in self.siblings:  # a cache that is filled on the way has its bound from then on
            sibling.cache_bytes = self.run.features.device.cache_bytes
        self.executors = self._time_shared() if self.settings.sharing == "time" else self._factored()
        self.run.features.device.enter_thread()  # the others were opened on this thread

    def _factored(self) -> list[Any]:
        samplers, trainers = self._split = self._split or self._counts()
        if not trainers and not self.settings.switching:
            problem = f"samplers = {samplers} are all devices, and with switching = false nobody trains"
            raise InputError(problem, "set switching = true, or give a trainer")
        self.places, found = {}, []
        for i in range(samplers):
            name = f"sampler {i}"
            place = self.places[name] = self._sampling_place(i)
            drawing = self.drawing(place)
            standby = self.training(place) if self._may_train(place) else None
            found.append(SamplerRole(self._activity(name, place), drawing, standby, self._worthwhile))
        for i in range(trainers):
            name = f"trainer {i}"
            place = self.places[name] = self._training_place(samplers + i, i)
            activities = self._activity(name, place), self._activity(f"{name} extract", place)
            found.append(TrainerRole(*activities, self.training(place)))
        self.record |= {"sharing": "space", "samplers": samplers, "trainers": trainers} | self._named_devices()
        return found

    def _time_shared(self) -> list[Any]:
        remote, self.places = self.accelerators is not None, {}
        count = self.settings.trainers or self.settings.devices or (1 if remote else default_devices(usable_cores()))
        for i in range(count):
            local = None if remote else sampling_place(self.run, i, self.features, self.arena_bytes)
            self.places[f"device {i}"] = local or self._training_place(i, i)
        self.record |= {"sharing": "time", "samplers": 0, "trainers": count} | self._named_devices()
        return [
            TimeShared(self._activity(name, place), self.drawing(place), self.training(place))
            for name, place in self.places.items()
        ]

    def _activity(self, name: str, place: DevicePlace) -> Activity:
        activity = Activity(name, self.run.timeline)
        activity.device = place.device
        return activity

    def _named_devices(self) -> dict[str, Any]:
        """Returns the accelerator of each role, for run.json."""
        names = {
            name: str(place.device.torch_device)
            for name, place in self.places.items()
            if isinstance(place.device, Accelerator)
        }
        return {"accelerators": names} if names else {}

    def _open_accelerators(self) -> Accelerators | None:
        """Opens the accelerators by role; returns None if the devices are logical."""
        first = self.run.features.device
        if not isinstance(first, Accelerator):
            return None
        samplers, trainers = self.settings.accelerated(usable_cores(), self._on_device)
        apart = self._on_device and self.settings.sharing == "space"
        self.together = self.together or node_rows(self.run.model) is not None
        return Accelerators(first, trainers, samplers if apart else 0, self.settings.devices, self.together)

    def _sampling_place(self, index: int) -> DevicePlace:
        if self.accelerators is None or not self._on_device:
            return sampling_place(self.run, index, self.features, self.arena_bytes)
        device = self.accelerators.sampler(index)
        for place in self.places.values():
            if place.device is device:
                return place
        held = self._place_topology(device)
        place = DevicePlace(device=device, features=self.features)
        return standby_place(device, self.features, held) if self._may_train(place) else place

    def _training_place(self, index: int, number: int) -> DevicePlace:
        """Returns the place of a trainer, which is device `index` if devices are logical; trainers on one accelerator share it."""
        if self.accelerators is None:
            return training_place(self.run, index, self.features)
        device = self.accelerators.trainer(number)
        for place in self.places.values():
            if place.device is device and place.features is not self.features:
                return place
        features = self.features if device is self.accelerators.first else self.features.beside(device)
        return DevicePlace(device=device, features=features)

    def _may_train(self, place: DevicePlace) -> bool:
        """Returns whether a sampler at a place stands by as a trainer."""
        if self.accelerators is None or not self.settings.switching:
            return self.settings.switching
        device = place.device
        return isinstance(device, Accelerator) and not (self.together or self.accelerators.trains(device))

    def _place_topology(self, device: Accelerator) -> int:
        """Puts the topology where a device draws from it, once for all roles that draw there; returns the bytes on the device."""
        assert self.accelerators is not None
        if device not in self._draws:
            before, count = device.traffic.moved_bytes("h2d"), self.accelerators.drawers(device)
            self._draws[device] = device_drawers(self.run, count, device, self._hosted)
            self._idle[device] = list(self._draws[device])
            maps = MAP_BYTES * self.run.graph.topology.num_nodes * count
            self._topology_bytes[device] = device.traffic.moved_bytes("h2d") - before + maps
        return self._topology_bytes[device]

    def open_sampler(self) -> AnySampler:
        """Returns a sampler for one role, which draws batches or reads stored ones."""
        return open_sampler(self.run) if self._stored is None else self.run.seeded(self._stored)

    def drawing(self, place: DevicePlace | None = None) -> BatchDrawer:
        """Returns the drawer of a sampler at a place."""
        if self._on_device and place is not None:
            return self.device_drawing(place.device, self.run.batching, self.features)
        return BatchDrawer(self.run.batching, self.open_sampler(), self.features, place.parts if place else None)

    def device_drawing(self, device: Any, batching: Batching, features: FeatureSource | None) -> BatchDrawer:
        """Returns the drawer of a sampler on an accelerator.

        Args:
            features: the source of rows that marks the cached ones of batches which leave the device; None if rows are found later.
        """
        self._place_topology(device)
        draw = self._idle[device].pop()
        return BatchDrawer(batching, draw, features, leaves=None if self.trained_where_drawn else device)

    def training(self, place: DevicePlace) -> ReplicaTraining:
        """Returns the training of a trainer at a place, or of a sampler that trains in its stead."""
        replica = Replica(self.run, place.device, self.own_code)
        return ReplicaTraining(self.run.batching, replica, place.features, remark=place.narrower)

    def _counts(self) -> tuple[int, int]:
        """Returns the numbers of samplers and trainers."""
        settings, total = self.settings, self.settings.devices or default_devices(usable_cores())
        if self.accelerators is not None:
            return settings.accelerated(usable_cores(), self._on_device)
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
