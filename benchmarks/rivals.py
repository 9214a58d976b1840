"""Ours beside DGL 1.1.3 and GraphBolt (DGL 2.1) from end to end: sampling, epochs, full graph, and time to the same accuracy.

    python -m benchmarks rivals [--parts sampling,epoch]
    python -m benchmarks.rivals epoch [--quick]

    sampling    batches of the same seeds                                                  benchmarks/rivals_sampling.py
    epoch       an epoch of 3-layer GraphSAGE and of 2-layer GAT                           benchmarks/rivals_epoch.py
    accuracy    seconds of training to one validation accuracy, on three graphs            benchmarks/rivals_accuracy.py
    fullgraph   GCN, GraphSAGE and GAT over the whole graph, uncut and in 8 chunks         `ways` of benchmarks/fullgraph.py
    limited     features larger than the memory of a control group; not when quick         benchmarks/limited.py

The last two record rows of their own names. Both sides keep freed memory ("kept"), the rivals also run as a user starts them ("default").
Every ratio is rival over ours in one run, with contestants in drawn order: above 1 ours is faster. GraphBolt needs an interpreter of its
own, which benchmarks/rival_environment.py makes and the variable GRAPHBOLT_PYTHON names; without it a line says that it is left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks import fullgraph, limited, rivals_accuracy, rivals_epoch, rivals_sampling
from benchmarks.limited_home import GRAPHBOLT
from benchmarks.record import record
from trainers.devices.malloc import keep_freed_memory

MEASURED: dict[str, Callable[[bool], dict[str, Any]]] = {
    "sampling": rivals_sampling.measure,
    "epoch": rivals_epoch.measure,
    "accuracy": rivals_accuracy.measure,
}
RECORDED: dict[str, Callable[[bool], None]] = {
    "fullgraph": lambda quick: fullgraph.main(quick, ("ways",)),
    "limited": limited.main,
}
"""Parts that are benchmarks of their own, and record their rows."""
PARTS = (*MEASURED, *RECORDED)
VERSIONS = "import dgl, json, torch; print(json.dumps({'dgl': dgl.__version__, 'torch': torch.__version__}))"


def main(quick: bool, parts: Sequence[str] | None = None) -> None:
    """Measures the parts, and records a row for each."""
    chosen = parts or [part for part in PARTS if not (quick and part == "limited")]
    assert set(chosen) <= set(PARTS), f"parts are {', '.join(PARTS)}"
    keep_freed_memory()
    torch.set_num_threads(2)
    for part in chosen:
        print(f"rivals, {part}", flush=True)
        if part in RECORDED:
            RECORDED[part](quick)
        else:
            row = {"part": part, "scale": "quick" if quick else "full"} | MEASURED[part](quick)
            record("rivals", row | {"graphbolt": graphbolt_versions()}, ("torch", "numpy", "dgl"))


def graphbolt_versions() -> str:
    """Returns the versions of the interpreter that has GraphBolt, as JSON; "absent" if none is named."""
    python = os.environ.get(GRAPHBOLT)
    if not python:
        return "absent"
    environment = os.environ | {"DGLBACKEND": "pytorch"}
    done = subprocess.run([python, "-c", VERSIONS], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description="Some parts of the benchmark.")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    main(options.quick, options.parts)
