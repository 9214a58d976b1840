"""A sampling function of a user: the neighbours that are asked for least, ties by a random word of the node."""

import numpy as np


def rare_ones(topology, node_ids, fanout, random):
    counts, sources = [], []
    for node, word in zip(node_ids, random.bits(node_ids, 1)[:, 0], strict=True):
        row = topology.indices[topology.indptr[node] : topology.indptr[node + 1]]
        order = np.lexsort((row ^ np.int64(word >> np.uint64(40)), topology.out_degree[row]))
        chosen = row[order[:fanout]] if fanout >= 0 else row
        counts.append(len(chosen))
        sources.append(np.sort(chosen))
    return np.array(counts), np.concatenate([*sources, topology.indices[:0]])
