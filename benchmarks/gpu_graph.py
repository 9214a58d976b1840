"""The R-MAT graph of the benchmarks on GPUs, made by the processor or, byte-equal, by a GPU.

The full scale has 1.6 billion edges of 111 million nodes, the shape of papers100M. The edges are made anew for each range of destinations,
whose own are sorted as numbers `destination * N + source`, so that about `SORTED` of them are on the device at once.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from graphmill.kernels.cuda.device import device_of
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.types import Topology, id_dtype
from graphmill.trainers.devices.protocol import Device

SEED = 1
MADE, SORTED = 1 << 26, 1 << 28
"""Edges that a device makes at once, and about as many as it sorts at once."""


def make_topology(num_nodes: int, num_edges: int, device: Device) -> Topology:
    """Returns an R-MAT graph in the host's memory, repeated edges merged and edges to oneself dropped, made where a device computes."""
    if device.remote:
        return _made_there(num_nodes, num_edges, device)
    threads = torch.get_num_threads()
    src, dst = rmat_edges(num_nodes, num_edges, SEED, threads=threads)
    made = build_csc(src, dst, num_nodes, undirected=False, duplicates="merge", self_loops="drop", threads=threads)
    return Topology(indptr=made.indptr, indices=made.indices, in_degree=made.in_degree, out_degree=made.out_degree)


def _made_there(num_nodes: int, num_edges: int, device: Device) -> Topology:
    at = device.torch_device
    in_degree, out_degree = (torch.zeros(num_nodes, dtype=torch.int64, device=at) for _ in range(2))
    indices = np.empty(num_edges, id_dtype(num_nodes))
    ends = np.linspace(0, num_nodes, 1 + max(1, -(-num_edges // SORTED))).astype(np.int64).tolist()
    place = 0
    for low, high in pairwise(ends):
        pairs = torch.unique(torch.cat([*_pairs(num_nodes, num_edges, low, high, device)]))  # ascending
        src = pairs % num_nodes
        in_degree += torch.bincount(pairs // num_nodes, minlength=num_nodes)
        out_degree += torch.bincount(src, minlength=num_nodes)
        indices[place : place + len(src)] = src.cpu().numpy()
        place += len(src)
    degrees = [each.cpu().numpy().astype(np.int32) for each in (in_degree, out_degree)]
    indptr = np.concatenate([[0], np.cumsum(degrees[0], dtype=np.int64)])
    return Topology(indptr=indptr, indices=indices[:place], in_degree=degrees[0], out_degree=degrees[1])


def _pairs(num_nodes: int, num_edges: int, low: int, high: int, device: Device) -> list[torch.Tensor]:
    """Returns i64[n] tensors, `destination * N + source` of all edges into nodes low to high - 1 but those to oneself."""
    found, kernels = [], device_of(torch.empty(0, device=device.torch_device))
    for first in range(0, num_edges, MADE):
        last = min(first + MADE, num_edges)
        src, dst = rmat_edges(num_nodes, num_edges, SEED, lo=first, hi=last, device=kernels)
        kept = (dst >= low) & (dst < high) & (src != dst)
        found.append(dst[kept].long() * num_nodes + src[kept])
    return found
