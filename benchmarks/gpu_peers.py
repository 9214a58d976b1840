"""Rows that another process has in its device's memory, read in place: `python -m benchmarks gpu` has them beside its own rows.

The other process is `python -m benchmarks.gpu_peers`: it exports rows, prints their handle, and keeps them until its input ends. If the
machine has several GPUs, it takes the second one, whose memory is read over the link between the two; else it is a second context of the
same GPU, and the roofline is the copy on the device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphmill.kernels.cuda.driver import VISIBLE, gpu_of_rank, num_gpus
from graphmill.kernels.types import Array
from graphmill.trainers.devices.logical import open_device

ROWS = 1 << 20
"""Most rows that the other process exports."""


def drawn_rows(num_rows: int, width: int) -> Array:
    """Returns f16[num_rows, width]."""
    return np.random.default_rng(0).standard_normal((num_rows, width), dtype=np.float32).astype(np.float16)


@contextmanager
def other_process(num_rows: int, width: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Starts the process that has the rows; yields their handle, and the words for where they are."""
    second = gpu_of_rank(1, os.environ) if num_gpus() > 1 else None
    environment = os.environ | ({} if second is None else {VISIBLE: second})
    command = [sys.executable, "-m", "benchmarks.gpu_peers", str(num_rows), str(width)]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **streams) as process:
        assert process.stdin is not None and process.stdout is not None
        line = process.stdout.readline()
        assert line, "the process that has the rows ended"
        yield json.loads(line), "a second process" if second is None else "a second GPU"
        process.stdin.close()


def main() -> None:
    """Exports rows, and keeps them until the input ends."""
    rows, handle = open_device("cuda" if num_gpus() else "cpu").export_rows(
        drawn_rows(int(sys.argv[1]), int(sys.argv[2]))
    )
    print(json.dumps(handle), flush=True)
    sys.stdin.read()
    assert len(rows)


if __name__ == "__main__":
    main()
