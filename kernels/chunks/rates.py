"""How fast rows move: T_hd, T_dd and T_ru of equation 4 (HongTu, section 5.3).

    T_hd    from the host to a device: from pinned memory if there is a GPU, else scattered rows of a large table into a buffer
    T_dd    between devices: from one GPU's memory to another's, else between two buffers, row after row
    T_ru    inside a device: a copy within its memory, which bounds the cost of reusing a row there

Every rate is the median of `REPEATS` copies after one that is not counted. With one GPU, T_dd is the rate inside it: logical devices share
its memory. Known limit: links are measured one at a time, and several that are busy at once may be slower.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ROW_BYTES, NUM_BYTES, REPEATS = 512, 1 << 26, 5


@dataclass(frozen=True, kw_only=True)
class LinkRates:
    """Rates in bytes per second."""

    # T_hd.
    host_bytes_per_second: float
    # T_dd.
    peer_bytes_per_second: float
    # T_ru.
    reuse_bytes_per_second: float

    def of_rows(self, row_bytes: int) -> tuple[float, float, float]:
        """Returns (T_hd, T_dd, T_ru) in rows per second, as `graphmill.kernels.chunks.counts.cost` takes them."""
        host, peer, reuse = self.host_bytes_per_second, self.peer_bytes_per_second, self.reuse_bytes_per_second
        return host / row_bytes, peer / row_bytes, reuse / row_bytes


def measure_rates(num_bytes: int = NUM_BYTES) -> tuple[str, LinkRates]:
    """Measures now, by copies of `num_bytes`; returns the device's name and its rates."""
    import torch

    return _cuda_rates(torch, num_bytes) if torch.cuda.is_available() else ("cpu", _memory_rates(num_bytes))


def _memory_rates(num_bytes: int) -> LinkRates:
    """Returns the rates of logical devices, whose memory is the host's."""
    num_rows = num_bytes // ROW_BYTES
    table, out, peer = (np.zeros((num_rows, ROW_BYTES), np.uint8) for _ in range(3))
    scattered = np.random.default_rng(0).permutation(num_rows)
    in_turn = np.arange(num_rows)
    return LinkRates(
        host_bytes_per_second=_rate(lambda: np.take(table, scattered, axis=0, out=out, mode="clip"), num_bytes),
        peer_bytes_per_second=_rate(lambda: np.take(out, in_turn, axis=0, out=peer, mode="clip"), num_bytes),
        reuse_bytes_per_second=_rate(lambda: np.copyto(peer, out), num_bytes),
    )


def _cuda_rates(torch: Any, num_bytes: int) -> tuple[str, LinkRates]:
    """Returns the name of the first GPU, and its rates, those of its link to the second included if there is one."""
    host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=True)
    first, second = (torch.zeros(num_bytes, dtype=torch.uint8, device="cuda:0") for _ in range(2))
    peer = torch.zeros_like(first, device="cuda:1") if torch.cuda.device_count() > 1 else second

    def copied(out: Any, source: Any) -> Callable[[], object]:
        def run() -> None:
            out.copy_(source, non_blocking=True)
            torch.cuda.synchronize(out.device)

        return run

    return torch.cuda.get_device_name(0), LinkRates(
        host_bytes_per_second=_rate(copied(first, host), num_bytes),
        peer_bytes_per_second=_rate(copied(peer, first), num_bytes),
        reuse_bytes_per_second=_rate(copied(second, first), num_bytes),
    )


def _rate(copy: Callable[[], object], num_bytes: int) -> float:
    seconds = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - started)
    return num_bytes / max(1e-9, statistics.median(seconds[1:]))
