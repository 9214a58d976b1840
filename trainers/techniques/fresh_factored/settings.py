"""The table `[train.fresh-factored]`."""

from dataclasses import dataclass

from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.fresh.settings import FreshSettings


@dataclass(frozen=True, kw_only=True)
class FreshFactoredSettings(FactoredSettings, FreshSettings):
    """How devices share sampling and training, and what the history of embeddings keeps: the keys of both techniques."""

    def accelerated(self, cores: int, on_device: bool) -> tuple[int, int]:
        """Returns the numbers of samplers and trainers on accelerators: the one with the history trains; see `FactoredSettings`."""
        if not on_device:
            return super().accelerated(cores, on_device)[0], 1
        return self.samplers or max(1, self.devices - 1), 1


SETTINGS = FreshFactoredSettings
