"""The number of devices that sample: every allocation is simulated, and the formula of FGNN, section 5.3, is compared with the best."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphmill.trainers.techniques.factored.simulator.simulate import simulate
from graphmill.trainers.techniques.factored.simulator.workload import Workload


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
