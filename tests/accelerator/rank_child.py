"""A rank of a training on an accelerator, as a process of its own: `python -m tests.accelerator.rank_child KIND HOME`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = {"epochs": 2, "accumulate": 1}
SECONDS = 240


def run_processes(world: int, kind: str, home: Path) -> dict[str, Any]:
    """Trains on the parts of the small graph by so many processes, and returns what the first one tells of the model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(world)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.accelerator.rank_child", kind, str(home)],
            env=os.environ | where | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [process.communicate(timeout=SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * world
    return json.loads(outputs[0].splitlines()[-1])


def main() -> None:
    """Trains as the rank of the environment."""
    from graphmill.trainers.ranks.group import joined
    from tests.accelerator.backend import standing_in
    from tests.accelerator.test_distributed import PEER
    from tests.trainers.runs import content, train_parts
    from tests.trainers.techniques.distributed.test_distributed import ledger

    with standing_in() if sys.argv[1] == "simulated" else nullcontext(), joined() as ranks:
        model = train_parts(Path(sys.argv[2]), 2, ranks, device="cuda", retrain=True, **OPTIONS, **PEER)
    if model is not None:
        counts = {name: n for (name, _), n in ledger(model)[0].items()}
        print(json.dumps({"weights": content(model)["weights.safetensors"], **counts}), flush=True)


if __name__ == "__main__":
    main()
