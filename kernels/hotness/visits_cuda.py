"""Visits on a GPU; see kernels/hotness/visits.py for the rule."""

from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, launch
from graphmill.kernels.errors import InputError


def count_visits_cuda(node_ids: Any, visits: Any, device: CudaDevice) -> None:
    """Adds one visit to every node of a list, each once and below N; see `graphmill.kernels.hotness.visits.count_visits`."""
    id_type = dtype_name(node_ids.dtype)
    if id_type not in ID_TYPES:
        raise InputError(f"node_ids are {id_type}", "give int32 or int64")
    count, ids = len(node_ids), address(node_ids, "node_ids", device, dtype=id_type)
    target = address(visits, "visits", device)
    if count:
        launch(
            device, "hotness/visits", "count_visits", count, (ids, np.int64(count), target), {"ID": ID_TYPES[id_type]}
        )
