"""Values of a PyG file as NumPy arrays, and the number of nodes that they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphmill.assets.sources.dgl.reader import MASKS
from graphmill.assets.sources.features import BFLOAT16
from graphmill.assets.sources.pyg.stores import Kind, Stores
from graphmill.kernels.arrays import largest
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array


class Names(Protocol):
    """The keys of `[graph]` that name data; see `PygConfig`."""

    @property
    def path(self) -> Path: ...  # noqa: D102
    @property
    def feature(self) -> str | None: ...  # noqa: D102
    @property
    def label(self) -> str | None: ...  # noqa: D102
    @property
    def weight(self) -> str | None: ...  # noqa: D102
    @property
    def feature_columns(self) -> tuple[str, ...]: ...  # noqa: D102


def data_of(stores: Stores, path: Path, kind: str | Kind) -> str:
    """Returns words for the place of a node type's or edge type's data, for errors."""
    if not stores.typed:
        return f"{path}: data"
    return f"{path}: node type '{kind}'" if isinstance(kind, str) else f"{path}: edges {'/'.join(kind)}"


def as_array(value: Any, where: str, *, wide: bool = False) -> tuple[Array, np.dtype[Any] | str]:
    """Returns a tensor or array as an array over the same memory, and its type.

    Args:
        value: the value.
        where: name of the value, for errors.
        wide: whether bfloat16 becomes float32; else it is u16 with its bits, of the type "bfloat16".

    Raises:
        InputError: the value is neither a tensor nor an array, or NumPy has no form of it.
    """
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise InputError(f"{where} is a sparse tensor", "save it as a dense one: value.to_dense()")
        value = value.detach()
        if value.dtype == torch.bfloat16:
            return (
                (value.float().numpy(), np.dtype(np.float32)) if wide else (value.view(torch.uint16).numpy(), BFLOAT16)
            )
        try:
            value = value.numpy()
        except (TypeError, RuntimeError) as error:
            raise InputError(f"{where} is {value.dtype}, which NumPy lacks", "save it as float32") from error
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"{where} is a {type(value).__name__}, not a tensor", "save it as a tensor: torch.tensor(value)"
        )
    return value, value.dtype


def num_nodes_of(stores: Stores, name: str, names: Names) -> int:
    """Returns the number of nodes of a type: `num_nodes`, else the rows of its features, labels or masks, else the largest id + 1.

    Raises:
        InputError: `num_nodes` is not a number.
    """
    data = stores.nodes[name]
    if "num_nodes" in data:
        return _number(data["num_nodes"], f"{data_of(stores, names.path, name)}: 'num_nodes'")
    for key in (names.feature or "x", names.label or "y", *MASKS, *names.feature_columns):
        shape: tuple[int, ...] = getattr(data.get(key), "shape", ())
        if shape:
            return int(shape[0])
    most = -1
    for kind, edges in stores.edges.items():
        ends, _ = as_array(edges["edge_index"], f"{data_of(stores, names.path, kind)}: 'edge_index'")
        for row, end in zip(ends, (kind[0], kind[2]), strict=True):
            most = max(most, largest(row) if end == name else -1)
    return most + 1


def _number(value: Any, where: str) -> int:
    """Returns a whole number, which may stand in a tensor or list of one."""
    try:
        found = np.asarray(value).reshape(-1)
    except TypeError:  # NumPy lacks the type, such as bfloat16
        found = np.zeros(0)
    if len(found) != 1 or found.dtype.kind not in "iu" or found[0] < 0:
        raise InputError(
            f"{where} is {value!r}, not a number of nodes", "set num_nodes to a whole number, or leave it out"
        )
    return int(found[0])
