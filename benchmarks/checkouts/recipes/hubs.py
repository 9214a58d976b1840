"""A sampling function of one's own. The example of docs/own-models.md."""

import numpy as np


def prefer_hubs(topology, node_ids, fanout, random):
    """The `fanout` neighbours with the most neighbours of their own; ties by a random number of the node."""
    counts, sources = [], []
    for node, word in zip(node_ids, random.bits(node_ids, 1)[:, 0], strict=True):
        row = topology.indices[topology.indptr[node] : topology.indptr[node + 1]]
        order = np.lexsort((row ^ np.int64(word >> np.uint64(40)), -topology.in_degree[row]))
        chosen = row[order[:fanout]] if fanout >= 0 else row
        counts.append(len(chosen))
        sources.append(np.sort(chosen))
    return np.array(counts), np.concatenate([*sources, topology.indices[:0]])
