"""How a stored hotness map is opened."""

from dataclasses import dataclass

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class Hotness:
    """A stored ranking, memory-mapped; see the module's docstring for the arrays."""

    order: Array
    visits: Array | None
    score: Array | None
    layer_visits: Array | None
    layer_inputs: Array | None


def open_hotness(artifact: Artifact) -> Hotness:
    """Opens a hotness artifact without copying an array."""
    require(artifact, {"stage": "hotness", "arrays": {"order": {"dtype": ("int32", "int64"), "ndim": 1}}})
    names = ("visits", "score", "layer_visits", "layer_inputs")
    found = {name: artifact.array(name) if f"{name}.npy" in artifact.files else None for name in names}
    return Hotness(order=artifact.array("order"), **found)
