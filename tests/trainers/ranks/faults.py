"""A user's sampling function that fails at one rank, for tests of faults; what it does stands in the environment."""

import os
import time
from pathlib import Path

import numpy as np


def refuse(topology, nodes, fanout, random):
    """Refuses what it is given, as a user's function may."""
    raise ValueError(f"{len(nodes)} nodes are refused")


def sample(topology, nodes, fanout, random):
    """Takes up to `fanout` first neighbours; at the rank of FAULT_RANK it fails when the file FAULT_FILE is there."""
    if os.environ.get("FAULT_RANK") == os.environ.get("RANK") and Path(os.environ["FAULT_FILE"]).exists():
        fault = os.environ["FAULT"]
        if fault == "sleep":
            time.sleep(3600)
        if fault == "raise":
            raise ZeroDivisionError("a rank that raises")
        if fault == "memory":
            raise MemoryError("no memory is left")
        if fault == "exit":
            os._exit(9)
    counts = np.minimum(np.diff(topology.indptr)[nodes], fanout)
    starts = topology.indptr[nodes]
    places = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    time.sleep(0.02)  # so that a test can come in between
    return counts, topology.indices[places]
