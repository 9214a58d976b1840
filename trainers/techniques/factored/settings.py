"""The table `[train.factored]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kernels.errors import InputError
from trainers.recipe.settings import Settings

MOST_DEVICES, MOST_SECONDS = 4096, 1_000_000


@dataclass(frozen=True, kw_only=True)
class FactoredSettings(Settings):
    """How devices share sampling and training."""

    # Devices that sample; 0 = chosen by a simulation of measured stages (simulator/).
    samplers: int = field(default=0, metadata={"hashed": False})
    # Devices that train; 0 = the devices that do not sample.
    trainers: int = field(default=0, metadata={"hashed": False})
    # Devices in all, if one of the two is left out; 0 = one per core of the machine, at least 2.
    devices: int = field(default=0, metadata={"hashed": False})
    # A device that has nothing left to sample trains until the epoch ends, if that pays (FGNN 5.3).
    switching: bool = field(default=True, metadata={"hashed": False})
    # Use of the devices: space = they are samplers or trainers; time = each one samples, extracts and trains in turn, as in FGNN's
    # baseline.
    sharing: Literal["space", "time"] = field(default="space", metadata={"hashed": False})
    # Seconds that one task of a role may take (one batch sampled, extracted or trained on) before the run ends with an error.
    timeout: float = field(default=600.0, metadata={"hashed": False})
    # Epochs that run without a cache and count the rows that batches need; then the cache is filled (online presampling, FGNN 6.3).
    presample: int = field(default=0, metadata={"hashed": False})
    # Updates that the weights of a gradient may lack; above 0 the result does not repeat.
    staleness: int = field(default=0, metadata={"hashed": "unless default"})

    def __post_init__(self):
        """Checks counts."""
        for name in ("samplers", "trainers", "devices", "presample", "staleness"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} = {getattr(self, name)} is negative", "give 0 or a count")
        most = dict.fromkeys(("samplers", "trainers", "devices"), MOST_DEVICES)
        most |= dict.fromkeys(("presample", "staleness"), 10**9)
        for name, n in most.items():
            if getattr(self, name) > n:
                raise InputError(f"{name} = {getattr(self, name)} is above {n:,}", f"give 0 or a count up to {n:,}")
        if not 0 < self.timeout <= MOST_SECONDS:
            problem = f"timeout = {self.timeout!r} is not above 0 and at most {MOST_SECONDS:,}"
            raise InputError(problem, "give seconds")
        if self.devices and self.samplers + self.trainers > self.devices:
            problem = (
                f"samplers = {self.samplers} and trainers = {self.trainers} are more than devices = {self.devices}"
            )
            raise InputError(problem, "leave `devices` out: it is their sum")
        if self.sharing == "space" and self.devices and self.trainers >= self.devices and not self.samplers:
            problem = f"trainers = {self.trainers} are all devices = {self.devices}, and nobody samples"
            raise InputError(problem, "leave one for a sampler, or leave `devices` out")
        if (
            self.devices
            and self.samplers
            and not self.trainers
            and self.samplers == self.devices
            and not self.switching
        ):
            problem = f"samplers = {self.samplers} are all devices, and with switching = false nobody trains"
            raise InputError(problem, "set switching = true, or give a trainer")
