"""Rows of two tiers by packed slot, against torch's index, mask and fill.

The baseline is what a user of torch writes when some rows are cached: `x = empty; x[mask] = device[i]; x[~mask] = host[j]`, with mask, i
and j ready beforehand. Ours is `graphmill.kernels.rows.gather.gather_tiered` with the slots ready. Both allocate x anew, in a process
that keeps freed memory as the trainer does, so that neither pays for page faults. The results must be equal. GB/s counts
bytes read and bytes written, of rows only; the bandwidth beside it is a large copy in the same run, with the same threads.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch

from benchmarks.record import interleave, ratio, record
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.slots import DEVICE, HOST, Tiers, make_slots
from graphmill.trainers.devices.malloc import keep_freed_memory

THREADS = 2
WIDTHS = (100, 128, 256, 602)
HITS = (0.1, 0.5, 0.9)
QUICK = {"num_inputs": 50_000, "host_bytes": 512 << 20, "device_bytes": 128 << 20, "repeats": 5}
FULL = {"num_inputs": 100_000, "host_bytes": 2 << 30, "device_bytes": 512 << 20, "repeats": 15}
CASES = [(width, hits, torch.float32) for width in WIDTHS for hits in HITS] + [(128, 0.5, torch.float16)]


def main(quick: bool) -> None:
    size = QUICK if quick else FULL
    torch.set_num_threads(THREADS)
    keep_freed_memory()
    rows = []
    for width in WIDTHS:
        for dtype in (torch.float32, torch.float16):
            wanted = [hits for w, hits, d in CASES if (w, d) == (width, dtype)]
            if wanted:
                rows += measure(width, dtype, wanted, size)
    print(f"{size['num_inputs']:,} inputs into float32, {THREADS} threads; equal to torch in every case")
    print("width  stored    hits   torch ms   ours ms   times as fast   GB/s   copy GB/s")
    for row in rows:
        print(
            f"{row['width']:5}  {row['dtype']:8} {row['hits']:5.0%} {row['torch_ms']:10.2f} {row['ours_ms']:9.2f} "
            f"{row['ratio']:15.2f} {row['gb_per_second']:6.1f} {row['copy_gb_per_second']:11.1f}"
        )
    least = min(row["ratio"] for row in rows)
    print(f"least: {least:.2f} times as fast")
    record(
        "gather",
        {"scale": "quick" if quick else "full", "size": size, "threads": THREADS, "least": least, "cases": rows},
    )


def measure(width: int, dtype: torch.dtype, hit_ratios: list[float], size: dict[str, int]) -> list[dict[str, Any]]:
    """Times all hit ratios of one table, and a copy beside them."""
    row_bytes, generator = width * dtype.itemsize, torch.Generator().manual_seed(width)
    host = torch.empty((size["host_bytes"] // row_bytes, width), dtype=dtype).uniform_(-1, 1, generator=generator)
    device = torch.empty((size["device_bytes"] // row_bytes, width), dtype=dtype).uniform_(-1, 1, generator=generator)
    block, other = torch.ones(size["device_bytes"] // 4), torch.ones(size["device_bytes"] // 4)
    found = []
    for hits in hit_ratios:
        runs = {"copy": lambda: other.copy_(block)} | contenders(device, host, hits, size["num_inputs"])
        seconds = interleave(runs, size["repeats"])
        median = {name: statistics.median(values) for name, values in seconds.items()}
        moved = size["num_inputs"] * (row_bytes + width * 4)
        found.append(
            {
                "width": width,
                "dtype": str(dtype).removeprefix("torch."),
                "hits": hits,
                "ratio": round(ratio(seconds, "torch", "ours"), 3),
                "torch_ms": round(1e3 * median["torch"], 3),
                "ours_ms": round(1e3 * median["ours"], 3),
                "gb_per_second": round(moved / median["ours"] / 1e9, 2),
                "copy_gb_per_second": round(2 * block.nbytes / median["copy"] / 1e9, 2),
            }
        )
    return found


def contenders(device: torch.Tensor, host: torch.Tensor, hits: float, num_inputs: int) -> dict[str, Any]:
    """Returns both ways to gather the same inputs, after checking that they agree.

    Raises:
        AssertionError: they differ.
    """
    generator = np.random.default_rng(7)
    cached = generator.random(num_inputs) < hits
    row = np.where(cached, generator.integers(0, len(device), num_inputs), generator.integers(0, len(host), num_inputs))
    slots = np.where(cached, make_slots(DEVICE, np.where(cached, row, 0)), make_slots(HOST, row))
    tiers = Tiers(device=device.numpy(), host=host.numpy())
    mask = torch.from_numpy(cached)
    in_device, in_host = torch.from_numpy(row[cached]), torch.from_numpy(row[~cached])
    shape = (num_inputs, device.shape[1])

    def three_steps() -> torch.Tensor:
        x = torch.empty(shape)
        x[mask] = device[in_device].float()
        x[~mask] = host[in_host].float()
        return x

    def ours() -> torch.Tensor:
        x = torch.empty(shape)
        gather_tiered(slots, tiers, x.numpy(), threads=THREADS)
        return x

    assert torch.equal(three_steps(), ours()), "graphmill and torch disagree"
    return {"torch": three_steps, "ours": ours}
