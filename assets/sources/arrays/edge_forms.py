"""What makes `edge_index` [2, E] of an array of another shape or type, for remedies."""

from collections.abc import Sequence

import numpy as np

from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.kernels.types import Array

STACKED = "save np.stack([sources, targets])"


def to_integers(values: Array, name: str, cast: str = "astype(np.int64)") -> str:
    """Returns the remedy for values of another type than integers.

    Args:
        cast: the call that makes integers of whole numbers.
    """
    if values.dtype.kind == "f":
        broken = values[~(np.isfinite(values) & (values == np.floor(values)))]
        if len(broken):
            return f"give whole numbers: {name} holds {broken[0]}, of which {cast} would make another number"
    if values.dtype.kind in "fb" or (values.dtype.kind in "US" and np.char.isdecimal(values.astype(str)).all()):
        return f"save {name}.{cast}"
    if name != "edge_index":
        return f"give whole numbers in {name}"
    return f"number them: {name} = np.unique({name}, return_inverse=True)[1].reshape({name}.shape)"


def to_two_rows(shape: Sequence[int], name: str) -> str:
    """Returns the remedy for edges of another shape than [2, E]."""
    if len(shape) == 2 and 3 in shape and shape[0] != shape[1]:
        rows = f"{name}[:2]" if shape[0] == 3 else f"{name}[:, :2].T"
        return f"if the first two are the ends of the edges: save {rows}"
    if len(shape) == 2 and shape[1] == 2:
        return f"save {name}.T"
    if len(shape) == 2 and shape[0] == shape[1]:
        return f"if it is an adjacency matrix: save np.stack(np.nonzero({name}))"
    return STACKED if len(shape) == 1 else FIX_FILE
