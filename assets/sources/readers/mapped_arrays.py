"""Features and edges in plain `.npy` files, memory-mapped and read slice by slice.

Peak memory: one slice of 8 MiB of features, or of 262,144 edges; pages that were read are let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assets.sources.feature_blocks import FeatureBlock
from assets.sources.readers.archive import SLICE_BYTES
from assets.sources.readers.duck import FIX_FILE
from assets.sources.typed_graph import Relation
from assets.storage.arrays import forget_pages
from kernels.errors import InputError
from kernels.types import Array

STEP_EDGES = 1 << 18
"""Edges of one slice."""


def check_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], count: int, where: str) -> None:
    """Raises InputError unless an array is a matrix of numbers with `count` rows."""
    if len(shape) != 2 or shape[0] != count or dtype.kind not in "biuf":
        raise InputError(f"{where} is {dtype}{list(shape)}, not numbers [{count}, F]", FIX_FILE)


def matrix_block(
    where: str,
    first: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    slices: Callable[[], Iterator[tuple[int, Array]]],
) -> FeatureBlock:
    """Returns the rows of a matrix [n, F] as the features of the nodes first to first + n - 1."""
    return FeatureBlock(
        where=where,
        first=first,
        num_rows=shape[0],
        width=shape[1],
        dtype=dtype,
        slices=slices,
        place=lambda row, column: f"{where} row {row} column {column}",
    )


def open_plain(path: Path) -> Array:
    """Maps a `.npy` file of plain numbers.

    Raises:
        InputError: it is missing, cut short, or holds pickled objects.
    """
    try:
        return np.load(path, mmap_mode="r")
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing", "unzip the dataset again, or restore the file") from error
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: is no array of plain numbers: {error}", "copy it again") from error


def mapped_block(path: Path, first: int, num_nodes: int, where: str) -> FeatureBlock:
    """Returns the features in a `.npy` file [num_nodes, F] as a block.

    Raises:
        InputError: the file is unreadable or has another shape.
    """
    table = open_plain(path)
    check_matrix(table.shape, table.dtype, num_nodes, where)

    def slices() -> Iterator[tuple[int, Array]]:
        step = max(1, SLICE_BYTES // max(1, table.shape[1] * table.dtype.itemsize))
        for low in range(0, num_nodes, step):
            yield low, np.asarray(table[low : low + step])
            forget_pages(table)

    return matrix_block(where, first, table.shape, table.dtype, slices)


def mapped_relation(path: Path, names: tuple[str, str, str], where: str, weight: Array | None = None) -> Relation:
    """Returns the edges in a `.npy` file [2, E] as a relation.

    Raises:
        InputError: the file is unreadable or has another shape or type.
    """
    edges = open_plain(path)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise InputError(f"{where} is {edges.dtype}{list(edges.shape)}, not integers [2, E]", FIX_FILE)

    def batches() -> Iterator[tuple[Array, Array, Array | None]]:
        for low in range(0, edges.shape[1], STEP_EDGES):
            part = edges[:, low : low + STEP_EDGES]
            yield part[0], part[1], None if weight is None else np.asarray(weight[low : low + STEP_EDGES], np.float32)
            forget_pages(edges)

    source, name, target = names
    return Relation(
        source=source,
        name=name,
        target=target,
        num_edges=edges.shape[1],
        batches=batches,
        place=lambda row: f"{where} column {row}",
    )
