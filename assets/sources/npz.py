"""Graphs in NumPy archives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from assets.sources.registry import GraphConfig
from kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Config(GraphConfig):
    """`[graph]` with `source = "npz"`.

    Raises:
        InputError: a value is outside its range.
    """

    source: str = "npz"
    # the archive; relative to the pipeline file
    path: Path = field(metadata={"hashed": False})
    # row of train_masks, val_masks, test_masks; None takes the ids `train`, `val`, `test`, or row 0 of the masks
    split: int | None = None

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        if self.split is not None and self.split < 0:
            raise InputError(f"split = {self.split} is negative", "give the row of the masks, from 0")
