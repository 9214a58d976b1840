"""The process in which METIS runs: `python -m graphmill.assets.partitions.metis_child PARENT METHOD PARTS SEED NAME=FD ...`."""

import os
import sys
from typing import Any

import numpy as np

from graphmill.assets.building.child import end_with_parent

NO_MODULE = 3
"""Exit code of this process if it lacks the library."""


def main() -> int:
    """Reads the graph from files that are open, runs METIS, writes the parts."""
    end_with_parent(int(sys.argv[1]))
    method, num_parts, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    fds = {name: int(fd) for name, _, fd in (argument.partition("=") for argument in sys.argv[5:])}
    arrays = {name: _read(fd) for name, fd in fds.items() if name not in ("out", "error")}
    try:
        part_of = (_pymetis if method == "metis" else _dgl)(arrays, num_parts, seed)
    except ModuleNotFoundError:
        return NO_MODULE
    with open(fds["out"], "wb", closefd=False) as file:
        np.save(file, np.asarray(part_of, np.int32))
    return 0


def _read(fd: int) -> Any:
    """Maps an array, which METIS reads as it is if its numbers have 64 bits; what it writes stays in this process."""
    return np.load(f"/proc/self/fd/{fd}", mmap_mode="c", allow_pickle=False)


def _pymetis(arrays: dict[str, Any], num_parts: int, seed: int) -> Any:
    import pymetis

    adjacency = pymetis.CSRAdjacency(*(arrays[name].astype(np.int64, copy=False) for name in ("indptr", "indices")))
    options = pymetis.Options(seed=seed % 2**31)
    weights = {"vweights": arrays["weights"], "eweights": arrays.get("edge_weights")}
    _, part_of = pymetis.part_graph(num_parts, adjacency, options=options, **weights)
    return part_of


def _dgl(arrays: dict[str, Any], num_parts: int, seed: int) -> Any:
    os.environ["DGLBACKEND"] = "pytorch"  # whatever another project has set
    import dgl
    import torch

    empty = torch.empty(0, dtype=torch.int64)
    indptr, indices = (torch.from_numpy(arrays[name].astype(np.int64)) for name in ("indptr", "indices"))
    graph = dgl.graph(("csc", (indptr, indices, empty)))
    trained = torch.from_numpy(arrays["trained"]).bool()
    part_of: Any = dgl.metis_partition_assignment(graph, num_parts, balance_ntypes=trained, balance_edges=True)
    return part_of.numpy()


if __name__ == "__main__":
    sys.exit(main())
