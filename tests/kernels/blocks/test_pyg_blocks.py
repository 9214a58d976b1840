"""Blocks as bipartite edges of PyG: every edge that is left, its source, destination, weight and relation, without PyG itself."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphmill.kernels.blocks.pyg_blocks import to_pyg
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Topology
from tests.trainers.graphs import random_topology


def sampled(topology: Topology, fanout: int = 3) -> Block:
    seeds = np.arange(0, topology.num_nodes, 2, dtype=np.int32)
    return Sampler(topology, (fanout,), seed=1).sample(BatchKey(0, 0, 0), seeds, transpose="none")[0]


def edges_of(block: Block) -> list[tuple[int, int, int]]:
    """(local source, local destination, place among the stored edges) of every edge that is left, one by one."""
    return [
        (int(block.indices[place]), destination, place)
        for destination in range(block.num_dst)
        for place in range(block.start[destination], block.end[destination])
    ]


def test_edges_sizes_and_attributes_are_those_of_the_block() -> None:
    plain = random_topology(80, 500, 6)
    random = np.random.default_rng(0)
    weights, types = random.random(plain.num_edges).astype(np.float32), random.integers(0, 5, plain.num_edges)
    topology = replace(plain, weights=weights, edge_types=types.astype(np.uint8))
    block = sampled(topology)
    made, edges = to_pyg(block), edges_of(block)
    assert made.size == (block.num_src, block.num_dst) and len(edges) == block.num_edges > 50
    assert made.edge_index.dtype == torch.int64 and made.edge_index.T.tolist() == [list(edge[:2]) for edge in edges]
    assert made.n_id.tolist() == block.src_ids.tolist()
    places = [place for _, _, place in edges]
    assert block.weight is not None and made.edge_weight.tolist() == block.weight[places].tolist()
    assert block.edge_type is not None and made.edge_type.tolist() == block.edge_type[places].tolist()
    # The weight of an edge is that of the graph: between the same two nodes.
    for (source, destination, _), weight in zip(edges, made.edge_weight.tolist(), strict=True):
        row = slice(topology.indptr[block.src_ids[destination]], topology.indptr[block.src_ids[destination] + 1])
        assert weight == weights[row][np.flatnonzero(topology.indices[row] == block.src_ids[source])[0]]


def test_removed_edges_are_left_out_and_missing_attributes_are_none() -> None:
    block = sampled(random_topology(80, 500, 6))
    whole = to_pyg(block).edge_index
    removed = np.flatnonzero(block.end > block.start)[::2]
    block.end = block.end.copy()
    block.end[removed] = block.start[removed]
    made = to_pyg(block)
    assert made.edge_index.T.tolist() == [list(edge[:2]) for edge in edges_of(block)]
    assert 0 < made.edge_index.shape[1] < whole.shape[1]
    assert not np.isin(made.edge_index[1].numpy(), removed).any()
    assert made.edge_weight is None and made.edge_type is None and made.x is None and made.y is None


def test_blocks_without_edges_and_without_destinations() -> None:
    topology = random_topology(20, 60, 1)
    empty = Sampler(topology, (3,), seed=1).sample(BatchKey(0, 0, 0), np.empty(0, np.int32), transpose="none")[0]
    assert to_pyg(empty).edge_index.shape == (2, 0) and to_pyg(empty).size == (0, 0)


def test_destinations_elsewhere_are_refused() -> None:
    block = sampled(random_topology(20, 60, 1))
    block.dst_pos = np.arange(block.num_dst, dtype=np.int32)[::-1].copy()
    with pytest.raises(InputError, match="destinations are not its first sources"):
        to_pyg(block)


def test_pyg_is_not_imported() -> None:
    code = (
        "import sys; from tests.kernels.blocks.test_pyg_blocks import *; to_pyg(sampled(random_topology(20, 60, 1)))\n"
        "assert 'torch_geometric' not in sys.modules and 'dgl' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
