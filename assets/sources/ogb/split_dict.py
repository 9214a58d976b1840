"""Splits that OGB saves with torch: `split_dict.pt`, a dictionary of ids by part, in graphs of several node types of ids by type by part.

OGB's DatasetSaver writes split/SCHEME/split_dict.pt, and MAG240M has one beside its arrays. Both are read by torch's loader that runs no
code.
"""

from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sources.arrays.torch_file import load_saved
from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.assets.sources.splits import PARTS, is_mask, mask_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

NAME = "split_dict.pt"

IdsByPart = dict[str, Array | dict[str, Array]]
"""Part -> ids, or node type -> ids; of any type of numbers."""


def load_split(path: Path, remedy: str) -> IdsByPart:
    """Reads a dictionary of NumPy arrays or tensors, without running code from it.

    Raises:
        InputError: the file holds something else, or is damaged.
    """
    found = load_saved(path, (), lambda _: remedy)
    if not isinstance(found, dict):
        raise InputError(f"{path}: holds a {type(found).__name__}, not ids by part", remedy)
    try:
        return {str(part): _arrays(found[part]) for part in found}
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: holds values that are not arrays: {error}", remedy) from error


def _arrays(value: Any) -> Array | dict[str, Array]:
    return (
        {str(name): np.asarray(each) for name, each in value.items()} if isinstance(value, dict) else np.asarray(value)
    )


def split_by_dict(
    path: Path, node_types: dict[str, int], firsts: dict[str, int], *, typed: bool
) -> tuple[Array, Array, Array]:
    """Returns the global ids of a `split_dict.pt` of DatasetSaver.

    Args:
        typed: whether the graph has types, and the parts ids by type.

    Raises:
        InputError: the file cannot be read, a part is missing, a type is unknown, or an id is outside its type.
    """
    found = load_split(path, "write train.csv.gz, valid.csv.gz and test.csv.gz beside it instead, one id per line")
    missing = [part for part in PARTS if part not in found]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}; it has {', '.join(found) or 'nothing'}", FIX_FILE)
    parts = []
    for part in PARTS:
        by_type = found[part]
        if not isinstance(by_type, dict):
            if typed:
                problem = f"{path}: '{part}' holds ids, not ids by node type"
                raise InputError(problem, f"save {{'{part}': {{'{next(iter(node_types))}': ids}}, ...}}")
            by_type = {next(iter(node_types)): by_type}
        strange = [name for name in by_type if name not in node_types]
        if strange:
            problem = f"{path}: '{part}' has ids of '{strange[0]}', which is no node type"
            raise InputError(problem, f"the types are {', '.join(node_types)}")
        ids = [_ids(values, node_types[name], path, part) + firsts[name] for name, values in by_type.items()]
        parts.append(np.concatenate(ids) if ids else np.zeros(0, np.int64))
    return parts[0], parts[1], parts[2]


def _ids(values: Array, count: int, path: Path, part: str) -> Array:
    """Returns i64[n] from ids [n] or [n, 1], or from a mask."""
    where = f"{path}: '{part}'"
    values = values.reshape(-1) if values.ndim == 2 and 1 in values.shape else values
    if is_mask(values, count):
        return mask_ids(values, count, None, where, part)
    if values.ndim != 1 or (values.dtype.kind not in "iu" and len(values)):
        raise InputError(f"{where} is {values.dtype}{list(values.shape)}, not node ids", "save whole numbers [n]")
    return in_range(values.astype(np.int64), count, path)


def in_range(ids: Array, count: int, path: Path) -> Array:
    """Returns node ids after checking that they are in [0, count).

    Raises:
        InputError: an id is outside the range; the error names the first ones.
    """
    bad = np.flatnonzero((ids < 0) | (ids >= count))
    if len(bad):
        shown = ", ".join(f"row {row} is {ids[row]}" for row in bad[:3].tolist())
        raise InputError(f"{path}: {len(bad)} ids are outside [0, {count}): {shown}", FIX_FILE)
    return ids
