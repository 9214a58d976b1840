"""The whole graph as one block, for passes that are not cut."""

from __future__ import annotations

import numpy as np

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block
from graphmill.trainers.batches.batch import DATA_WEIGHTS, attach_weights
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.own import OwnModule


def whole_block(run: Run) -> Block:
    """Returns the whole graph as one block, with weights and transpose.

    Raises:
        InputError: the graph has more edges than a block can number.
    """
    topology, given = run.graph.topology, run.graph.topology.weights
    if topology.num_edges >= 1 << 31 or topology.num_nodes >= 1 << 31:
        problem = f'mode = "device" makes one block of {topology.num_edges:,} edges, more than 2,147,483,647'
        raise InputError(problem, 'leave the key out, or set mode = "p2p+reuse"')
    indptr, reads_all = np.asarray(topology.indptr), isinstance(run.model, OwnModule)
    types = topology.edge_types if reads_all or run.model.reads_relations else None
    block = Block(
        num_dst=topology.num_nodes,
        num_src=topology.num_nodes,
        start=indptr[:-1].astype(np.int32),
        end=indptr[1:].astype(np.int32),
        indices=np.asarray(topology.indices).astype(np.int32),
        src_ids=np.arange(topology.num_nodes, dtype=topology.indices.dtype),
        edge_type=None if types is None else np.asarray(types),
        weight=None if given is None or not (reads_all or run.model.edge_weight in DATA_WEIGHTS) else np.array(given),
    )
    block = transpose(block)
    attach_weights((block,), topology, run.model.edge_weight)
    return block
