"""The file of a model's weights: safetensors, of tensors in memory and of rows of nodes that are read in pieces.

The bytes are those that `safetensors.torch.save` gives for the same tensors, so a model has the same digest wherever its rows lie. The
library would have a second copy of all of them in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TYPES = (
    *(("bool", "BOOL"), ("uint8", "U8"), ("int8", "I8"), ("int16", "I16"), ("uint16", "U16"), ("float16", "F16")),
    *(("bfloat16", "BF16"), ("int32", "I32"), ("uint32", "U32"), ("float32", "F32"), ("float64", "F64")),
    *(("int64", "I64"), ("uint64", "U64")),
)
"""Torch's and the format's names of the types, in the format's order: tensors stand by type, the last first, and then by name."""
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class RowPieces:
    """A tensor of many rows, which is read in pieces.

    Attributes:
        read: a function that returns its rows i64[k].
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[Tensor], Tensor]

    def __iter__(self) -> Iterator[Tensor]:
        """Yields all rows in order."""
        import torch

        for low in range(0, self.shape[0], ROWS_AT_ONCE):
            yield self.read(torch.arange(low, min(self.shape[0], low + ROWS_AT_ONCE)))


def pieces_of(values: Tensor | RowPieces) -> Iterator[Tensor]:
    """Yields a tensor as it is, or its pieces in order."""
    yield from values if isinstance(values, RowPieces) else (values,)


def write_weights(path: Path, weights: Mapping[str, Tensor | RowPieces]) -> tuple[int, int]:
    """Writes a new file of tensors on the host. Returns the number of their values, and of those that are NaN or infinite."""
    import torch

    names = [name for name, _ in TYPES]
    kinds = {name: str(values.dtype).removeprefix("torch.") for name, values in weights.items()}
    order, head, end = sorted(weights, key=lambda name: (-names.index(kinds[name]), name)), {}, 0
    for name in order:
        begin, shape = end, list(weights[name].shape)
        end += torch.Size(shape).numel() * weights[name].dtype.itemsize
        head[name] = {"dtype": dict(TYPES)[kinds[name]], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    total, wrong = 0, 0
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            for piece in (each for each in pieces_of(weights[name]) if each.numel()):
                total, wrong = total + piece.numel(), wrong + int((~torch.isfinite(piece)).sum())
                file.write(piece.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total, wrong
