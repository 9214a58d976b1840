"""The meaning of the key `dtype` of a train table.

"float32" and "float64" are the type of the parameters and of all values computed from them. With "bf16" parameters, moments, sums and
losses stay float32, and matrix products are computed from bfloat16 by torch's autocast; the results of a product keep its type until an
operation widens them. Layers between two passes of an exact evaluation are kept in float32.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

BF16 = "bf16"


def kept_dtype(dtype: str) -> str:
    """Returns NumPy's and torch's name of the type of parameters and of gathered rows."""
    return "float32" if dtype == BF16 else dtype


def computing(dtype: str, device: torch.device) -> AbstractContextManager[Any]:
    """Returns the context in which a model's forward pass is computed on a device."""
    return torch.autocast(device.type, torch.bfloat16) if dtype == BF16 else nullcontext()


def widened(rows: Tensor) -> Tensor:
    """Returns rows that autocast left in bfloat16 as float32; others as they are."""
    return rows.float() if rows.dtype == torch.bfloat16 else rows
