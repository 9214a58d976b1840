"""The modules of the installed Python packages, a real graph that every machine has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from assets.sources.registry import GraphConfig
from kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Config(GraphConfig):
    """`[graph]` with `source = "python-environment"`.

    Raises:
        InputError: a value is outside its range.
    """

    source: str = "python-environment"
    # the folder of installed packages; None is this interpreter's own
    path: Path | None = field(default=None, metadata={"hashed": False})
    # feature columns: identifiers are hashed into so many
    features: int = 128
    # a distribution with fewer modules is no class: its modules have label -1
    min_class: int = 20

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        if self.features < 1 or self.features > 2**20:
            raise InputError(
                f"features = {self.features} is outside [1, 2^20]", "give a number of columns, for example 128"
            )
        if self.min_class < 1:
            raise InputError(f"min_class = {self.min_class} is less than 1", "give the modules that make a class")
