"""The number of devices that sample: every allocation is simulated, and the paper's formula is compared with the best."""

from __future__ import annotations

from dataclasses import dataclass

from trainers.techniques.factored.simulator.formula import formula_samplers
from trainers.techniques.factored.simulator.simulate import simulate
from trainers.techniques.factored.simulator.workload import Workload


@dataclass(frozen=True)
class Allocation:
    """The simulated allocations of a number of devices.

    Attributes:
        devices: N_g.
        seconds: samplers -> seconds of an epoch with switching.
        static_seconds: the same without switching; allocations without a trainer are missing.
        formula: N_s of the formula.
    """

    devices: int
    seconds: dict[int, float]
    static_seconds: dict[int, float]
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

    @property
    def formula_ratio(self) -> float:
        """Seconds with the formula's allocation, with switching, relative to the best."""
        return self.seconds[self.formula] / self.seconds[self.best]


def search(workload: Workload, devices: int) -> Allocation:
    """Simulates every allocation of devices.

    Args:
        workload: one epoch.
        devices: N_g, at least 1.
    """
    return Allocation(
        devices,
        {samplers: simulate(workload, samplers, devices - samplers).seconds for samplers in range(1, devices + 1)},
        {
            samplers: simulate(workload, samplers, devices - samplers, switching=False).seconds
            for samplers in range(1, devices)
        },
        formula_samplers(devices, workload.sample, workload.trainer_seconds),
    )
