"""How stored features are opened, by memory mapping; it needs only NumPy and xxhash."""

from __future__ import annotations

from dataclasses import replace

from assets.storage.artifact import Artifact
from assets.storage.read_verified import read_vector
from assets.storage.require import require
from assets.storage.table import FeatureTable
from kernels.errors import InputError


def open_features(artifact: Artifact, *, verified: bool = False) -> FeatureTable:
    """Opens a features artifact without reading a row.

    Args:
        artifact: the artifact.
        verified: whether to read `row_of`, if there is one, into memory and compare it with its digest; else it is mapped.

    Raises:
        InputError: the artifact is of another stage, lacks an array of the features stage, or `row_of` is damaged.
    """
    require(artifact, {"stage": "features", "arrays": {"rows": {"ndim": 2}}})
    table = artifact.table("rows")
    if "page_digests.npy" in artifact.files:
        table = replace(table, page_digest=artifact.array("page_digests"))
    if "row_of.npy" not in artifact.files:
        return table
    return replace(table, row_of=read_vector(artifact, "row_of") if verified else artifact.array("row_of"))


def require_nodes(table: FeatureTable, num_nodes: int, other: str) -> None:
    """Refuses features of another graph.

    Args:
        table: the features.
        num_nodes: number of nodes that the features should have.
        other: name of the thing with these nodes, for the error.

    Raises:
        InputError: the numbers of nodes differ.
    """
    if table.num_nodes != num_nodes:
        raise InputError(
            f"the features in {table.path.parent} are about {table.num_nodes} nodes, {other} about {num_nodes}",
            "build both from one source: graphmill build PIPELINE",
        )
