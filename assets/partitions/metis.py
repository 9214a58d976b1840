"""Runs METIS in a process of its own, on a graph that it accepts.

The graph goes to the process in unnamed files, and the parts come back in one: nothing is left behind however either process ends. The
child asks the system to be killed with its parent.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphmill.assets.building.child import await_child, how_it_ended, start_child
from graphmill.assets.building.stage import Progress
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.metis_child import NO_MODULE
from graphmill.kernels.errors import InputError, install_extra
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array, Topology

POLL_SECONDS = 0.2
NEEDED = {"metis": ("pymetis", "pip install pymetis"), "metis-balanced": ("dgl", install_extra("dgl"))}


def metis_parts(
    topology: Topology, trained: Array, config: PartitionsConfig, folder: Path, progress: Progress, threads: int
) -> Array:
    """Returns i32[N], the parts of METIS.

    Args:
        topology: the graph, of any kind: reverses are added, duplicates and self-loops left out.
        trained: bool[N], training nodes.
        progress: listener, which is called several times per second and raises if the run was cancelled.
    """
    dst = np.repeat(np.arange(topology.num_nodes, dtype=topology.indices.dtype), np.diff(topology.indptr))
    both = build_csc(
        topology.indices, dst, topology.num_nodes, undirected=True, duplicates="merge", self_loops="drop",
        threads=threads,
    )  # fmt: skip
    del dst
    arrays = {"weights": node_weights(topology, trained), "trained": trained.astype(np.int8)}
    progress.start(config.method, None, "seconds")
    part_of = run_metis(both.indptr, both.indices, arrays, config, folder, progress)
    progress.done()
    return part_of


def run_metis(
    indptr: Array, indices: Array, more: Mapping[str, Array], config: PartitionsConfig, folder: Path, progress: Progress
) -> Array:
    """Returns i32[N], the parts of an undirected graph without duplicates and self-loops.

    Args:
        indptr, indices: i64[N+1] and integers[E].
        more: `weights` i64[N]; `trained` i8[N] for DGL; `edge_weights` i64[E] where edges count differently.

    Raises:
        InputError: the library is missing, or METIS failed.
    """
    num_nodes, num_parts, method = len(indptr) - 1, config.parts, config.method
    if num_nodes <= num_parts:  # METIS refuses it: it asks for a node per part
        return (np.arange(num_nodes) % num_parts).astype(np.int32)
    with _in_child({"indptr": indptr, "indices": indices, **more}, config, folder) as (child, files):
        status = await_child(child, lambda: progress.advance(0), POLL_SECONDS)  # a cancelled run is noticed here
        _require_success(status, files["error"], method)
        files["out"].seek(0)
        part_of = np.load(files["out"], allow_pickle=False)
    if part_of.shape != (num_nodes,) or not 0 <= part_of.min() <= part_of.max() < num_parts:
        raise InputError(f"{method} returned no parts of this graph", 'choose method = "ldg"')
    return part_of.astype(np.int32)


def node_weights(topology: Topology, trained: Array) -> Array:
    """Returns i64[N], one weight per node; nodes, in-edges and training nodes have the same total weight over the whole graph."""
    num_nodes, num_edges, num_trained = topology.num_nodes, max(1, topology.num_edges), max(1, int(trained.sum()))
    unit = 64
    weights = np.full(num_nodes, unit, np.int64)
    for low, high in node_ranges(num_nodes):
        weights[low:high] += unit * num_nodes * np.asarray(topology.in_degree[low:high], np.int64) // num_edges
        weights[low:high][trained[low:high]] += unit * num_nodes // num_trained
    return weights


@contextmanager
def _in_child(
    arrays: Mapping[str, Array], config: PartitionsConfig, folder: Path
) -> Iterator[tuple[subprocess.Popen[Any], Mapping[str, IO[bytes]]]]:
    """Starts the process and yields it and its files; kills the process at the end."""
    files = {name: tempfile.TemporaryFile(dir=folder) for name in (*arrays, "out", "error")}  # noqa: SIM115
    child = None
    try:
        for name, array in arrays.items():
            np.save(files[name], array)
            files[name].flush()
        fds = {name: file.fileno() for name, file in files.items()}
        arguments = map(str, (os.getpid(), config.method, config.parts, config.seed))
        command = [sys.executable, "-m", "graphmill.assets.partitions.metis_child", *arguments]
        command += [f"{name}={fd}" for name, fd in fds.items()]
        child = start_child(command, pass_fds=tuple(fds.values()), stderr=files["error"], stdout=subprocess.DEVNULL)
        yield child, files
    finally:
        if child is not None:
            child.kill()
            child.wait()
        for file in files.values():
            file.close()


def _require_success(status: int, output: IO[bytes], method: str) -> None:
    if status == 0:
        return
    if status == NO_MODULE:
        module, command = NEEDED[method]
        problem = f'method = "{method}" needs {module}, which is not installed'
        raise InputError(problem, f"{command}; or choose another method")
    output.seek(0)
    last = output.read().decode(errors="replace").strip().rpartition("\n")[2]
    problem = f"METIS ended with {how_it_ended(status)}{': ' + last if last else ''}"
    raise InputError(problem, 'if the memory ran out, choose method = "ldg"')
