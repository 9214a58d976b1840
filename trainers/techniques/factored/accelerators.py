"""The accelerators of a run, and the roles that each of them has.

Trainers come first: trainer i is on device i. So the first device, which has the model and makes the updates, always trains. Samplers are
on the devices behind; if none is left, on all of them. Roles that are more than the devices share them in rotation, as ranks do: a recipe
that was written for two GPUs trains on one, with the same bits.
"""

from __future__ import annotations

from graphmill.trainers.devices.accelerator import Accelerator


class Accelerators:
    """The accelerators of a run by role.

    Args:
        first: the run's own device.
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
