"""Generated edges on a GPU, byte-equal to the CPU's; see kernels/graph/generate.py for the rule.

Written once and never read: 2 ids per edge. Work: one draw per four levels of the recursion.
"""

from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, launch


class RmatRule(NamedTuple):
    """An R-MAT graph.

    Attributes:
        key, scramble_key: of the draws, and of the bijection that hides the ranks.
        scale: number of levels.
        first, second, third: sums of the probabilities of one, two and three quadrants, in units of 2^-16.
    """

    key: int
    scramble_key: int
    scrambled: bool
    num_nodes: int
    scale: int
    first: int
    second: int
    third: int


def rmat_cuda(rule: RmatRule, low: int, src: Any, dst: Any, device: CudaDevice) -> None:
    """Writes the ends of edges low, low + 1, ... to src and dst, ids[n] each on the device; waits for nothing."""
    count, name = len(src), dtype_name(src.dtype)
    if count:
        keys, sizes = map(np.uint64, rule[:2]), (np.int32(rule.scrambled), np.int64(rule.num_nodes))
        arguments = (*keys, *sizes, *map(np.int32, rule[4:]), np.int64(low), np.int64(count))
        ends = (address(array, "an end", device, count, name) for array in (src, dst))
        launch(device, "graph/generate", "rmat", count, (*arguments, *ends), {"ID": ID_TYPES[name]})
