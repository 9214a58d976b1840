"""What a GPU did meanwhile, by the records of CUPTI: copies with their bytes, kernels, and the calls of the host.

CUPTI is the driver's own record, of every stream and of every thread of the process, and torch's profiler keeps it. So copied bytes are
counted by something that knows nothing of a ledger. Rows that a kernel reads over the bus are no copies. They are in the bytes of the bus,
which some GPUs count (NVML, Hopper and later): all bytes that the device received and sent, with the bus's own headers.

Busy is the union of the times of kernels and copies on all streams; the rest of an epoch the GPU was idle. A wait is a call in which the
host stops until the device has come so far, a launch one that gives it work: a kernel, a recorded graph, a copy.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

DIRECTIONS = {"HtoD": "h2d", "DtoH": "d2h", "PtoP": "d2d"}
"""CUPTI's name of a direction -> the ledger's link. Copies within a device, DtoD, cross none."""
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
"""Categories of a trace's events: work of the device, and calls of the host."""
WAITS = ("StreamSynchronize", "EventSynchronize", "DeviceSynchronize", "CtxSynchronize")
LAUNCHES = ("LaunchKernel", "GraphLaunch", "LaunchCooperativeKernel", "MemcpyAsync", "MemcpyPeerAsync", "MemsetAsync")
"""Beginnings of names behind `cuda` or `cu`."""
WAITING_COPIES = ("cudaMemcpy", "cudaMemcpyPeer", "cudaMemcpy2D")


def waits_of(
    *, drawn: bool = False, found: bool = True, lent: bool = False, pruned: bool = False, whole_layers: int = 0
) -> int:
    """Returns how often the host waits for a device for a batch, by the places of the code that do.

    Args:
        drawn: whether the device samples: the sizes of the blocks come in one download (kernels/sampling/sample_cuda.py).
        found: whether the device finds the rows; else the ids of the inputs that it drew come to the host (trainers/rows/source.py).
        lent: whether rows are copied to staging memory of which the next batch gets the same piece (trainers/rows/).
        pruned: whether a history prunes the blocks: their sizes come, and with them the ids (kernels/history/csr2_cuda.py).
        whole_layers: number of layers of all neighbours, whose numbers of edges the graph alone knows.
    """
    return drawn * (1 + whole_layers) + pruned + (drawn and not found and not pruned) + lent


@dataclass
class Counted:
    """What a device did in an epoch.

    Attributes:
        waits, launches: calls of the host.
        copied, copies: direction, h2d, d2h or d2d -> bytes, and number of copies.
        bus: h2d and d2h -> all bytes that crossed the bus; empty if the device does not count them.
        kernels: number of kernels; None if they were not counted.
        busy_seconds: time in which a kernel or a copy ran; None if it was not measured.
    """

    waits: int = 0
    launches: int = 0
    copied: dict[str, int] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)
    bus: dict[str, int] = field(default_factory=dict)
    kernels: int | None = None
    busy_seconds: float | None = None


def counted(events: Iterable[Mapping[str, Any]]) -> Counted:
    """Returns what the events of a trace (Chrome's format, microseconds) say."""
    found = Counted(copied=dict.fromkeys(DIRECTIONS.values(), 0), copies=dict.fromkeys(DIRECTIONS.values(), 0))
    spans, kernels = [], 0
    for event in events:
        category, name = event.get("cat", ""), event.get("name", "")
        if category in ON_DEVICE:
            spans.append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))
            kernels += category == "kernel"
            if category == "gpu_memcpy" and (link := _direction(name)) is not None:
                found.copied[link] += int(event["args"]["bytes"])
                found.copies[link] += 1
        elif category in CALLS:
            call = name.removeprefix("cuda").removeprefix("cu")
            found.waits += call.startswith(WAITS) or name in WAITING_COPIES
            found.launches += call.startswith(LAUNCHES)
    found.kernels, found.busy_seconds = kernels, covered(spans) / 1e6
    return found


def _direction(name: str) -> str | None:
    """Returns the link of a copy by its name, "Memcpy HtoD (Pinned -> Device)"; None for one within the host, or a device."""
    return next((link for word, link in DIRECTIONS.items() if word in name), None)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Returns the length of the union of spans (begin, end)."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


@contextmanager
def traced() -> Iterator[list[Counted]]:
    """Counts what the GPUs of this process do in the block; yields a list that has the result behind it."""
    from torch.profiler import ProfilerActivity, profile

    found: list[Counted] = []
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        yield found
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    result = counted(events)
    result.waits -= 1  # the last line of the block
    found.append(result)


def bus_bytes(index: int = 0) -> dict[str, int] | None:
    """Returns direction -> bytes that crossed the bus of a GPU since it was started; None if it does not count them."""
    try:
        import pynvml  # pyright: ignore[reportMissingImports]

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        names = (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES)
        values = pynvml.nvmlDeviceGetFieldValues(handle, list(names))
    except (ImportError, AttributeError):
        return None
    except pynvml.NVMLError:
        return None
    if any(value.nvmlReturn for value in values):
        return None
    return {link: int(value.value.ullVal) for link, value in zip(("h2d", "d2h"), values, strict=True)}
