"""A user's list of layers: with two halves each, or whole, as PyG's bipartite convolutions are."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from graphmill.kernels.blocks.pyg_blocks import edge_rows_at, edges_of
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import own_rows

HALVES = ("aggregate", "update")
DEFAULTS = {"cacheable": False, "reads_own": True, "edge_weight": None}
"""Attributes of a layer that it need not have, at their safe values: parameters inside aggregate, own rows read, plain edges."""


class WholeLayer(nn.Module):
    """A module `forward((h, own), edge_index)`, such as SAGEConv, as a layer: its first half is all of it.

    So trainers that keep aggregates compute them again. It works on any block: in chunks, and where rows come from a history.

    Args:
        inner: the module; h is float[num_src, F], own float[num_dst, F], the result float[num_dst, H]. If its forward has a parameter
            `edge_attr`, that gets the rows of the edges: float[E, K], or None.
    """

    cacheable, reads_own, edge_weight = False, True, None

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner, self.reads_rows = inner, "edge_attr" in _names(inner.forward)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[num_dst, H], the module's rows; raises InputError if the module returns another shape."""
        places, edge_index = edges_of(block)
        more = {"edge_attr": edge_rows_at(block, places)} if self.reads_rows else {}
        rows = self.inner((h_src, own_rows(h_src, block)), edge_index, **more)
        if not isinstance(rows, Tensor) or rows.dim() != 2 or len(rows) != block.num_dst:
            given = list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            problem = f"the layer {type(self.inner).__name__} returned {given} for {block.num_dst} nodes"
            raise InputError(problem, "return a tensor [number of destinations, columns]")
        return rows

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Returns the rows as they are."""
        return agg


def checked_layers(layers: list[Any], depth: int, name: str) -> list[nn.Module]:
    """Returns a user's layers, whole ones as `WholeLayer`, with defaults for missing `cacheable`, `reads_own` and `edge_weight`.

    Args:
        depth: number of layers of the train table.
        name: the reference that led to them.

    Raises:
        InputError: their number differs, or one is not a layer.
    """
    problems = [] if len(layers) == depth else [f"it has {len(layers)} layers, the train table {depth}"]
    found: list[Any] = [WholeLayer(layer) if _is_whole(layer) else layer for layer in layers]
    for index, layer in enumerate(found):
        missing = [half for half in HALVES if not callable(getattr(layer, half, None))]
        if not isinstance(layer, nn.Module) or missing:
            lacks = f"has no {' and no '.join(missing)}" if missing else "is no torch module"
            problems.append(f"layer {index} ({type(layer).__name__}) {lacks}")
            continue
        for attribute, value in DEFAULTS.items():
            if not hasattr(layer, attribute):
                setattr(layer, attribute, value)
    if problems:
        remedy = "each layer is a torch module with aggregate(block, h_src, rng) and update(agg, h_dst, rng), or forward(h, edge_index)"
        raise InputError(f"{name}: {'; '.join(problems)}", remedy)
    return found


def _is_whole(layer: Any) -> bool:
    """Tells whether a layer is one of forward(h, edge_index) without halves; convolutions of PyG have other methods of these names."""
    if not isinstance(layer, nn.Module) or _names(layer.forward)[1:2] != ["edge_index"]:
        return False
    return _names(getattr(layer, "aggregate", None))[:1] != ["block"]


def _names(method: Any) -> list[str]:
    return [*inspect.signature(method).parameters] if callable(method) else []
