"""How stored features are opened, by memory mapping; needs NumPy and xxhash only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assets.storage.require import require
from assets.storage.table import FeatureTable

if TYPE_CHECKING:
    from assets.storage.artifact import Artifact


def open_features(artifact: Artifact) -> FeatureTable:
    """Opens a features artifact without reading a row.

    Raises:
        InputError: the artifact is of another stage, or lacks what the features stage writes.
    """
    require(artifact, {"stage": "features", "arrays": {"rows": {"ndim": 2}}})
    table = artifact.table("rows")
    return replace(table, row_of=artifact.array("row_of")) if "row_of.npy" in artifact.files else table
