"""Our blocks as DGL blocks, for models written over DGL. DGL is imported at the first call; nothing else of `kernels` needs it."""

import os
from typing import Any

import numpy as np

from graphmill.kernels.blocks.pyg_blocks import edge_rows_at
from graphmill.kernels.errors import InputError, install_extra
from graphmill.kernels.types import Block


def to_dgl(block: Block) -> Any:
    """Returns the block as a `dgl` message flow graph.

    Edges keep their order and removed ones are left out. Ids are int64, for DGL 1.1.3 dies on sampled blocks of 32-bit ids. Global ids
    are in `srcdata[dgl.NID]` and `dstdata[dgl.NID]`; edge weights in `edata["weight"]`, shares of the mean in `edata["share"]` and the
    destinations' own weights in `dstdata["self_weight"]`, relations in `edata["edge_type"]` (int64) and rows of edges in
    `edata["feat"]`, if the block has them.

    Args:
        block: a block whose destinations are its first sources, as in every mini-batch.

    Raises:
        InputError: DGL is not installed, the destinations are elsewhere, or the block is on a device.
    """
    if not isinstance(block.indices, np.ndarray):
        raise InputError("blocks of DGL are made on the host, and the block is on a device", 'set device = "cpu"')
    if block.dst_pos is not None:
        raise InputError("the block's destinations are not its first sources", "DGL's blocks have no other form")
    os.environ["DGLBACKEND"] = "pytorch"  # whatever another project has set
    try:
        import dgl
    except ImportError as error:
        raise InputError(f"DGL cannot be imported: {error}", f"{install_extra('dgl')} on Python 3.11") from error
    import torch

    edges, indptr = present_edges(block)
    indices = torch.from_numpy(block.indices[edges].astype(np.int64))
    # DGL 1.1.3 fails in its sparse product when the edge ids are left to be understood.
    every = torch.arange(len(indices))
    made = dgl.create_block(
        ("csc", (torch.from_numpy(indptr), indices, every)), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst
    )
    made.srcdata[dgl.NID] = torch.from_numpy(block.src_ids.astype(np.int64))
    made.dstdata[dgl.NID] = made.srcdata[dgl.NID][: block.num_dst]
    if block.weight is not None:
        made.edata["weight"] = torch.from_numpy(block.weight[edges])
    if block.share is not None:
        made.edata["share"] = torch.from_numpy(block.share[edges])
    if block.edge_type is not None:
        made.edata["edge_type"] = torch.from_numpy(block.edge_type[edges].astype(np.int64))
    if block.edge_rows is not None:
        made.edata["feat"] = edge_rows_at(block, edges)
    if block.self_weight is not None:
        made.dstdata["self_weight"] = torch.from_numpy(block.self_weight)
    return made


def present_edges(block: Block) -> tuple[Any, Any]:
    """Returns the edges that are still in a block (a slice, or i64[E] positions) and the row pointers over them, i64[num_dst+1]."""
    counts = (block.end - block.start).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    if indptr[-1] == len(block.indices):
        return slice(None), indptr
    return np.arange(indptr[-1]) + np.repeat(block.start - indptr[:-1], counts), indptr
