"""How stored alias tables are opened, by memory mapping."""

from __future__ import annotations

from assets.storage.artifact import Artifact
from assets.storage.read_verified import read_vector
from assets.storage.require import require
from kernels.sampling.alias import AliasTables


def open_tables(artifact: Artifact, graph: Artifact) -> AliasTables:
    """Opens the alias tables of a graph; the table is mapped, `support` is read and compared with its digest.

    Args:
        artifact: artifact of the tables.
        graph: artifact of their graph.

    Raises:
        InputError: the tables are of another graph, or lack an array of the stage.
    """
    num_edges = graph.files["indices.npy"]["shape"][0]
    table = {"dtype": "uint32", "ndim": 2, "shape": (num_edges, 2)}
    require(artifact, {"stage": "sampling_tables", "arrays": {"table": table}, "inputs": {"graph": graph}})
    support = read_vector(artifact, "support") if "support.npy" in artifact.files else None
    return AliasTables(table=artifact.array("table"), support=support)
