"""How stored budgets are opened."""

from dataclasses import dataclass

from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """Resolved budgets.

    Attributes:
        device_bytes, host_bytes, disk_bytes: bytes of feature rows that each level may hold.
        automatic: names of the levels whose budget was "auto".
        device_total_bytes: bytes that the logical device has for features and work together; None if the table gives its budget.
    """

    device_bytes: int
    host_bytes: int
    disk_bytes: int
    automatic: tuple[str, ...] = ()
    device_total_bytes: int | None = None


def open_budgets(artifact: Artifact) -> Budgets:
    """Returns the numbers of a budgets artifact."""
    require(artifact, {"stage": BudgetsStage.name})
    numbers = artifact.summary["numbers"]
    names = ("device_bytes", "host_bytes", "disk_bytes", "device_total_bytes")
    automatic = tuple(numbers["automatic"])
    found = {name: numbers[name] for name in names if name in numbers}
    return Budgets(automatic=automatic, **found)
