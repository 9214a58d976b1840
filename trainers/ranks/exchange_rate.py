"""Measures exchanges between two processes of this machine, by the library that ranks use.

python -m graphmill.trainers.ranks.exchange_rate RANK FILE     one of the two processes; the first one prints its numbers
"""

import json
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from graphmill.assets.storage.names.home import IMPORTED_FROM

SENT_BYTES, REPEATS, TIMEOUT_SECONDS = 8 << 20, 12, 60


class ExchangeRate(NamedTuple):
    """The speed of exchanges between two processes: seconds of an exchange of next to nothing, and received bytes per second of each."""

    call: float
    rate: float


def measure_exchange() -> ExchangeRate | None:
    """Returns the speed of exchanges on this machine; None if two processes cannot meet here."""
    with tempfile.TemporaryDirectory(prefix="graphmill-ranks-") as folder:
        command = [sys.executable, "-m", "graphmill.trainers.ranks.exchange_rate"]
        place = str(Path(folder) / "meeting")
        ranks = [
            subprocess.Popen(
                [*command, str(rank), place],
                cwd=IMPORTED_FROM,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in (0, 1)
        ]
        try:
            said = [rank.communicate(timeout=TIMEOUT_SECONDS)[0] for rank in ranks]
        except subprocess.TimeoutExpired:
            return None
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if any(rank.returncode for rank in ranks):
        return None
    return ExchangeRate(**json.loads(said[0]))


def _main(rank: int, place: str) -> None:
    import torch
    import torch.distributed as dist

    meeting = f"file://{place}"
    dist.init_process_group("gloo", meeting, rank=rank, world_size=2, timeout=timedelta(seconds=TIMEOUT_SECONDS))
    seconds = {}
    for size in (64, SENT_BYTES):
        sent, received = torch.ones(2 * size, dtype=torch.uint8), torch.empty(2 * size, dtype=torch.uint8)
        times = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            dist.all_to_all_single(received, sent)
            times.append(time.perf_counter() - started)
        seconds[size] = sorted(times)[REPEATS // 2]
    dist.destroy_process_group()
    if rank == 0:
        rate = SENT_BYTES / max(1e-9, seconds[SENT_BYTES] - seconds[64])
        print(json.dumps({"call": seconds[64], "rate": rate}))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
