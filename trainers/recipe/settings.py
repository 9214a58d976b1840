"""The settings that every technique has, for code that is independent of the technique."""

from graphmill.assets.building.keys import Checked


class Settings(Checked):
    """Settings of a technique: a dataclass that inherits from this adds its keys. These are the values of techniques without the key.

    Attributes:
        ranks: processes that share the training, if the command line names no number.
        devices: devices that the training asks for, of all its processes together; 0 leaves the number open.
        timeout: seconds that a process waits for another one.
        rows: origin of the feature rows: "packed", else "table" or "exchange".
        staleness: updates that the weights of a gradient may lack.
        lookahead: batches whose rows are loaded while a step computes.
        unread: tables and stages that the technique needs or reads, but not with these settings.
    """

    ranks = 1
    devices = 0
    timeout = 45.0
    rows = "table"
    staleness = 0
    lookahead = 0
    unread: tuple[str, ...] = ()

    def trainers_of(self, cores: int) -> int:
        """Returns the number of trainers that compute at the same time in one process, which may use `cores` cores."""
        return 1

    def graph_apart(self, cores: int, devices: int) -> bool:
        """Returns whether devices that train do not hold the graph, though devices sample, of the `devices` that the process sees."""
        return False
