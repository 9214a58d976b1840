"""Ours beside DGL 1.1.3, GraphBolt (DGL 2.1) and PyG from end to end: sampling, epochs, full graph, and time to the same accuracy.

    python -m benchmarks rivals [--parts sampling,epoch]
    python -m benchmarks.rivals epoch_gat [--quick]

    sampling                        batches of the same seeds                              benchmarks/rivals_sampling.py
    epoch_sage, epoch_gat           an epoch of 3-layer GraphSAGE, of 2-layer GAT          benchmarks/rivals_epoch.py
    pyg                             sampling, and an epoch of PyG's own module             benchmarks/rivals_pyg.py
    accuracy_photo, accuracy_citation, accuracy_rmat
                                    seconds of training to one validation accuracy         benchmarks/rivals_accuracy.py
    fullgraph                       GCN, GraphSAGE, GAT over the whole graph, uncut and    `ways` of benchmarks/fullgraph.py
                                    in 8 chunks
    limited                         features larger than the memory of a control group;    benchmarks/limited.py
                                    not when quick

"epoch" and "accuracy" are all parts that begin so.

The last two record rows of their own names. Both sides keep freed memory ("kept"), the rivals also run as a user starts them ("default").
Every ratio is rival over ours in one run, with contestants in drawn order: above 1 ours is faster. GraphBolt needs an interpreter of its
own, which benchmarks/rival_environment.py makes and the variable GRAPHBOLT_PYTHON names; without it a line says that it is left out. So
it is with PyG's sampler and the variable PYG_PYTHON.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks import fullgraph, limited, rivals_accuracy, rivals_epoch, rivals_pyg, rivals_sampling
from benchmarks.limited_home import GRAPHBOLT
from benchmarks.record import record
from graphmill.trainers.devices.malloc import keep_freed_memory

MEASURED: dict[str, Callable[[bool], dict[str, Any]]] = {
    "sampling": rivals_sampling.measure,
    **{f"epoch_{model}": partial(rivals_epoch.measure, model=model) for model in rivals_epoch.MODELS},
    "pyg": rivals_pyg.measure,
    **{f"accuracy_{name}": partial(rivals_accuracy.measure, name=name) for name in rivals_accuracy.CASES},
}
RECORDED: dict[str, Callable[[bool], None]] = {
    "fullgraph": lambda quick: fullgraph.main(quick, ("ways",)),
    "limited": limited.main,
}
"""Parts that are benchmarks of their own, and record their rows."""
PARTS = (*MEASURED, *RECORDED)
NOT_QUICK = ("accuracy_photo", "accuracy_rmat", "limited")
VERSIONS = "import dgl, json, torch; print(json.dumps({'dgl': dgl.__version__, 'torch': torch.__version__}))"


def main(quick: bool, parts: Sequence[str] | None = None) -> None:
    """Measures the parts, and records a row for each."""
    keep_freed_memory()
    torch.set_num_threads(2)
    for part in chosen(parts or PARTS, quick):
        print(f"rivals, {part}", flush=True)
        if part in RECORDED:
            RECORDED[part](quick)
        elif row := MEASURED[part](quick):
            row = {"part": part, "scale": "quick" if quick else "full"} | row
            record("rivals", row | {"graphbolt": graphbolt_versions()}, ("torch", "numpy", "dgl"))


def chosen(parts: Sequence[str], quick: bool) -> list[str]:
    """Returns the parts of these names, or whose names begin so, in their order; quick only those that are quick.

    Raises:
        AssertionError: a name is that of no part.
    """
    found = {name: [part for part in PARTS if part == name or part.startswith(f"{name}_")] for name in parts}
    assert all(found.values()), f"parts are {', '.join(PARTS)}"
    wanted = {part for each in found.values() for part in each}
    return [part for part in PARTS if part in wanted and not (quick and part in NOT_QUICK)]


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
    parser.add_argument("parts", nargs="+", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    main(options.quick, options.parts)
