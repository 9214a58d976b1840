"""PyG's GraphSAGE trained by ours beside PyG's NeighborLoader: sampling alone, and an epoch.

torch_geometric samples by pyg-lib or torch-sparse. PyPI has the sources of torch-sparse, which compile for half an hour on one core; the
interpreter may be another one than this:

    python -m venv FOLDER
    FOLDER/bin/pip install wheel "setuptools<80" torch torch-geometric
    FOLDER/bin/pip install --no-build-isolation torch-scatter torch-sparse
    export PYG_PYTHON=FOLDER/bin/python

Ours draws a batch as PyG's, one graph in which a node has the neighbours of where it was reached first ("ours"), and as one bipartite block
a layer ("ours, blocks"), each with the tensors that PyG's layers read. First PyG shows a batch: every node that was expanded has
min(degree, fan-out) neighbours, all of them edges of the graph. Neither fetches rows there. Ours draws somewhat more: each block has other
neighbours of the nodes nearer to the seeds, and these neighbours stay in the graph and are expanded.

An epoch trains `torch_geometric.nn.GraphSAGE` as it is on both sides. As blocks the same layers compute only the rows that the seeds need.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import rivals_epoch
from benchmarks.disk_inputs import home
from benchmarks.record import in_turn
from benchmarks.rival_process import RivalProcess, contestants, of_both_clocks
from benchmarks.rivals_sampling import SAME_EDGES, drawn_seeds
from benchmarks.sampling import are_edges
from graphmill.assets.sources.registry import config_class
from graphmill.kernels.blocks.pyg_blocks import Subgraph, to_pyg, to_subgraph
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream, Topology
from tests.graphs import GraphArtifacts, build_graph

QUICK = {"nodes": 20_000, "edges": 150_000, "features": 64, "classes": 16, "train_ratio": 0.1}
FULL = {"nodes": 1_000_000, "edges": 8_000_000, "features": 100, "classes": 16, "train_ratio": 0.005}
FANOUTS, BATCH_SIZE, THREADS, ROUNDS = (15, 10, 5), 1024, 2, 5
OURS = {"ours": "pyg", "ours, blocks": "pyg blocks"}


def measure(quick: bool) -> dict[str, Any]:
    """Returns seconds and ratios of sampling and of an epoch; nothing without the sampler."""
    if not contestants("pyg", quick=True):
        return {}
    size = QUICK if quick else FULL
    with home() as store, tempfile.TemporaryDirectory() as folder:
        graph = build_graph(store, config_class("rmat")(seed=1, valid_ratio=0.1, **size), threads=THREADS)
        sampling = sample(graph, Path(folder), quick)
        return {"graph": size, "sampling": sampling, "epoch": rivals_epoch.compare(graph, OURS, ("pyg",), quick)}


def sample(graph: GraphArtifacts, folder: Path, quick: bool) -> dict[str, Any]:
    """Returns the seconds of sampling batches, of the clock and of the processors, and their ratios.

    Args:
        folder: gets the seeds and the rivals' first batches.

    Raises:
        AssertionError: the rival's batch is not one of the graph, or it has more edges than ours.
    """
    topology, edges, versions = graph.open().topology, dict[str, int](), {}
    seeds = drawn_seeds(topology, BATCH_SIZE)
    np.save(folder / "seeds.npy", seeds)
    sampler = Sampler(topology, FANOUTS, seed=1, threads=THREADS)

    def ours(name: str, convert: Callable[[tuple[Block, ...]], list[Any]]) -> tuple[float, float]:
        edges[name], began, busy = 0, time.perf_counter(), time.process_time()
        for step, batch in enumerate(seeds):
            blocks = sampler.sample(BatchKey(Stream.TRAIN, 0, step), batch, transpose="none")
            edges[name] += sum(each.edge_index.shape[1] for each in convert(blocks))
        return time.perf_counter() - began, time.process_time() - busy

    def theirs(name: str, rival: RivalProcess) -> tuple[float, float]:
        answer = rival.ask("sample", seeds=str(folder / "seeds.npy"), way="pyg")
        edges[name] = answer["edges"]
        return answer["seconds"], answer["processor"]

    runs: dict[str, Any] = {
        "ours": lambda: ours("ours", lambda blocks: [to_subgraph(blocks)]),
        "ours, blocks": lambda: ours("ours, blocks", lambda blocks: [to_pyg(block) for block in blocks]),
    }
    files = {name: str(graph.graph.path / f"{name}.npy") for name in ("indptr", "indices")}
    spec = files | {"system": "pyg", "fanouts": list(FANOUTS), "threads": THREADS}
    with ExitStack() as opened:
        for name, python, kept in contestants("pyg", quick):
            rival = opened.enter_context(RivalProcess(python, spec, kept))
            check(topology, FANOUTS, first_batch(rival, folder))
            versions = rival.ask("versions")
            runs[name] = lambda name=name, rival=rival: theirs(name, rival)
        row = of_both_clocks(in_turn(runs, ROUNDS))
    for name, each in edges.items():
        assert each <= (1 + SAME_EDGES) * edges[name if name in OURS else "ours"], f"{name} draws more: {edges}"
    print(f"  sampling: seconds {row['seconds']}; {row['ratios']}; processors {row['processor_ratios']}", flush=True)
    return {"fanouts": FANOUTS, "batch_size": BATCH_SIZE, "versions": versions} | row | {"edges": edges}


def first_batch(rival: RivalProcess, folder: Path) -> Subgraph:
    """Returns the rival's batch of the first seeds of `seeds.npy` in a folder."""
    rival.ask("sampled", seeds=str(folder / "seeds.npy"), way="pyg", out=str(folder / "sampled.npz"))
    found = np.load(folder / "sampled.npz")
    return Subgraph(edge_index=found["edge_index"], batch_size=int(found["batch_size"]), n_id=found["n_id"])


def check(topology: Topology, fanouts: tuple[int, ...], graph: Subgraph) -> None:
    """Looks at a batch: the nodes of each hop are consecutive, and have neighbours by the hop in which they were reached.

    Raises:
        AssertionError: a row has another length, or an edge is not one of the graph.
    """
    (src, dst), ids = np.asarray(graph.edge_index), np.asarray(graph.n_id)
    degrees, lengths = np.diff(topology.indptr)[ids], np.bincount(dst, minlength=len(ids))
    begin, end = 0, graph.batch_size
    for hop, fanout in enumerate(fanouts):
        wanted = np.minimum(degrees[begin:end], fanout)
        assert (lengths[begin:end] == wanted).all(), f"rows of other lengths at hop {hop}"
        begin, end = end, max(end, 1 + int(src[dst < end].max(initial=-1)))
    assert end == len(ids) and not lengths[begin:].any(), "nodes that no edge reaches, or edges of the last hop"
    assert are_edges(topology.indptr, topology.indices, ids[dst], ids[src]), "an edge that the graph does not have"
