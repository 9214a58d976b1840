"""The tiered gather on a GPU against torch's index, mask and fill: device rows, and host rows over the bus.

The baseline indexes its device rows on the GPU, its host rows on the CPU, copies those over and fills both in. Ours reads the host rows
from pinned memory within the one kernel, with the slots on the device. The results must be equal. Two bandwidths are measured in the
same run: a copy on the device (bytes read and written) and a copy from pinned memory to it (bytes over the bus). The bus bounds both
ways, so GB/s over the bus stands beside the second.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from benchmarks.record import interleave, ratio, record
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.slots import HOST, ROW_BITS, Tiers

WIDTHS = (100, 128, 256, 602)
HITS = (0.1, 0.5, 0.9, 1.0)
QUICK = {"num_inputs": 200_000, "host_bytes": 1 << 30, "device_bytes": 1 << 30, "repeats": 5}
FULL = {"num_inputs": 1_000_000, "host_bytes": 4 << 30, "device_bytes": 4 << 30, "repeats": 15}


def main(quick: bool) -> None:
    CudaDevice()  # says what is missing, before anything is allocated
    size = QUICK if quick else FULL
    copies = bandwidths(size)
    print(
        f"{torch.cuda.get_device_name()}: copy {copies['device']:.0f} GB/s, pinned to device {copies['bus']:.1f} GB/s"
    )
    print(f"{size['num_inputs']:,} inputs, float32; equal to torch in every case")
    print("width   hits   torch ms   ours ms   times as fast   GB/s of rows   GB/s over the bus")
    rows = [row for width in WIDTHS for row in measure(width, size)]
    for row in rows:
        print(
            f"{row['width']:5}  {row['hits']:5.0%} {row['torch_ms']:10.3f} {row['ours_ms']:9.3f} {row['ratio']:15.2f} "
            f"{row['gb_per_second']:14.1f} {row['bus_gb_per_second']:19.1f}"
        )
    row = {"scale": "quick" if quick else "full", "size": size, "copies": copies, "cases": rows}
    record("gather_cuda", row | {"gpu": torch.cuda.get_device_name()}, ("torch", "cupy-cuda13x", "cupy-cuda12x"))


def bandwidths(size: dict[str, int]) -> dict[str, float]:
    """Measures GB/s of a copy on the device and of a copy from pinned memory."""
    count = size["device_bytes"] // 8
    source, target = torch.ones(count, device="cuda"), torch.empty(count, device="cuda")
    pinned = torch.ones(count // 4, pin_memory=True)
    runs = {"device": lambda: target.copy_(source), "bus": lambda: target[: count // 4].copy_(pinned)}
    seconds = interleave({name: synchronized(run) for name, run in runs.items()}, size["repeats"])
    moved = {"device": 2 * source.nbytes, "bus": pinned.nbytes}
    return {name: round(moved[name] / statistics.median(seconds[name]) / 1e9, 2) for name in runs}


def synchronized(run: Any) -> Any:
    """Returns the run, ended when the device is done with it."""

    def whole() -> None:
        run()
        torch.cuda.synchronize()

    return whole


def measure(width: int, size: dict[str, int]) -> list[dict[str, Any]]:
    """Times both ways on one table, at every hit ratio."""
    generator, row_bytes, n = torch.Generator().manual_seed(width), 4 * width, size["num_inputs"]
    host = torch.empty((size["host_bytes"] // row_bytes, width), pin_memory=True).uniform_(-1, 1, generator=generator)
    device = torch.empty((size["device_bytes"] // row_bytes, width), device="cuda").uniform_(-1, 1)
    found = []
    for hits in HITS:
        cached = torch.rand(n, generator=generator) < hits
        seconds = interleave(contenders(device, host, cached, generator), size["repeats"])
        median = {name: statistics.median(values) for name, values in seconds.items()}
        missed = n - int(cached.sum())
        found.append(
            {
                "width": width,
                "hits": hits,
                "ratio": round(ratio(seconds, "torch", "ours"), 3),
                "torch_ms": round(1e3 * median["torch"], 4),
                "ours_ms": round(1e3 * median["ours"], 4),
                "gb_per_second": round(2 * n * row_bytes / median["ours"] / 1e9, 2),
                "bus_gb_per_second": round(missed * row_bytes / median["ours"] / 1e9, 2),
            }
        )
    return found


def contenders(
    device: torch.Tensor, host: torch.Tensor, cached: torch.Tensor, generator: torch.Generator
) -> dict[str, Any]:
    """Returns both ways to gather the same inputs, after checking that they agree.

    Raises:
        AssertionError: they differ.
    """
    shape = (len(cached), device.shape[1])
    row = torch.randint(min(len(device), len(host)), (len(cached),), generator=generator)
    slots = torch.where(cached, row, row | HOST << ROW_BITS).int().cuda()
    mask, in_device, in_host = cached.cuda(), row[cached].cuda(), row[~cached]
    tiers = Tiers(device=device, host=host)

    def three_steps() -> torch.Tensor:
        x = torch.empty(shape, device="cuda")
        x[mask] = device[in_device]
        x[~mask] = host[in_host].to("cuda", non_blocking=True)
        return x

    def ours() -> torch.Tensor:
        out = torch.empty(shape, device="cuda")
        gather_tiered(slots, tiers, out)
        return out

    assert torch.equal(three_steps(), ours()), "graphmill and torch disagree"
    return {"torch": synchronized(three_steps), "ours": synchronized(ours)}
