"""The table `[train.factored]`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.trainers.recipe.settings import Settings

MOST_DEVICES, MOST_SECONDS = 4096, 1_000_000
DEPTH = 2
"""Batches of a trainer: one is trained on while the rows of the next are extracted."""


def default_devices(cores: int) -> int:
    """Returns the number of devices if none is given: one per core, and at least two."""
    return max(2, cores)


@dataclass(frozen=True, kw_only=True)
class FactoredSettings(Settings):
    """How devices share sampling and training."""

    # Devices that sample; 0 = chosen by a simulation of measured stages (simulator/).
    samplers: int = field(default=0, metadata=within(0, MOST_DEVICES, hashed=False))
    # Devices that train; 0 = the devices that do not sample.
    trainers: int = field(default=0, metadata=within(0, MOST_DEVICES, hashed=False))
    # Devices in all, if one of the two is left out; 0 = one per core that the process may use, at least 2, or on GPUs one per role.
    devices: int = field(default=0, metadata=within(0, MOST_DEVICES, hashed=False))
    # A device that has nothing left to sample trains until the epoch ends, if that pays (FGNN 5.3).
    switching: bool = field(default=True, metadata={"hashed": False})
    # Use of the devices: space = they are samplers or trainers; time = each one samples, extracts and trains in turn, as in FGNN's
    # baseline.
    sharing: Literal["space", "time"] = field(default="space", metadata={"hashed": False})
    # Seconds that one task of a role may take (one batch sampled, extracted or trained on) before the run ends with an error.
    timeout: float = field(default=600.0, metadata=within(most=MOST_SECONDS, above=0, hashed=False))
    # Epochs that run without a cache and count the rows that batches need; then the cache is filled (online presampling, FGNN 6.3).
    presample: int = field(default=0, metadata=within(0, 10**9, hashed=False))
    # Source of feature rows: table = the feature table or a cache in front of it; packed = packed chunks, of stored samples, which the
    # devices that sample load from disk.
    rows: Literal["table", "packed"] = field(default="table", metadata={"hashed": False})
    # Updates that the weights of a gradient may lack; above 0 the result does not repeat.
    staleness: int = field(default=0, metadata=within(0, 10**9, hashed="unless default"))

    @property
    def unread(self) -> tuple[str, ...]:
        """Tables and stages that the technique reads, but not with these keys: visits are counted while it trains."""
        return ("hotness",) if self.presample else ()

    def roles(self, cores: int) -> tuple[int, int]:
        """Returns the numbers of samplers and trainers as they are given; if a simulation chooses them, all devices but one train."""
        devices = self.devices or default_devices(cores)
        if self.sharing == "time":
            return self.trainers or devices, self.trainers or devices
        samplers = self.samplers or max(1, devices - self.trainers if self.trainers else 1)
        return samplers, self.trainers_of(cores)

    def trainers_of(self, cores: int) -> int:
        """Returns the number of devices that train, or may train if the samplers are chosen later."""
        devices = self.devices or default_devices(cores)
        if self.sharing == "time":
            return self.trainers or devices
        return self.trainers or max(1, devices - max(1, self.samplers))

    def accelerated(self, cores: int, on_device: bool) -> tuple[int, int]:
        """Returns the numbers of samplers and trainers on accelerators: one trainer, or as many as the file says.

        Args:
            on_device: whether samplers are on accelerators; else they are threads of the CPU, and all devices train.
        """
        devices, trainers = self.devices, self.trainers
        if not on_device or self.sharing == "time":
            return self.samplers or max(1, default_devices(cores) - 1), trainers or devices or 1
        samplers = self.samplers or (max(1, devices - trainers) if trainers else 1)
        return samplers, trainers or max(1, devices - samplers)

    def graph_apart(self, cores: int, devices: int) -> bool:
        """Returns whether samplers on accelerators have some of their own, so that those which train do not hold the graph."""
        samplers, trainers = self.accelerated(cores, True)
        return self.sharing == "space" and min(devices, self.devices or devices, samplers + trainers) > trainers

    def problems(self) -> Iterator[KeyProblem]:
        """Yields numbers of devices that contradict one another."""
        yield from super().problems()
        samplers, trainers, devices = self.samplers, self.trainers, self.devices
        if devices and samplers + trainers > devices:
            text = f"samplers = {samplers} and trainers = {trainers} are more than devices = {devices}"
            yield KeyProblem("devices samplers trainers", f"{text}: leave `devices` out, it is their sum")
        elif self.sharing == "space" and devices and trainers >= devices and not samplers:
            text = f"trainers = {trainers} are all devices = {devices}, and nobody samples"
            yield KeyProblem("trainers devices", f"{text}: leave one for a sampler, or leave `devices` out")
        elif devices and samplers == devices and not self.switching:
            text = f"samplers = {samplers} are all devices, and with switching = false nobody trains"
            yield KeyProblem("samplers devices switching", f"{text}: set switching = true, or give a trainer")

        if self.sharing == "time" and (samplers or not self.switching):
            name = "samplers" if samplers else "switching"
            text = f'{name} has no effect with sharing = "time", where every device samples and trains in turn: remove the key'
            yield KeyProblem(f"{name} sharing", text)


SETTINGS = FactoredSettings
