"""The shards stage: the feature rows of each part of the graph, apart from those of the others (FastSample, section 3.3).

The topology of a graph is small beside its features, so hybrid partitioning copies the topology to every machine and cuts only the
features. A shard is an artifact of its own, so a rank needs the index and the shards of its own parts, and no rank needs all rows.

    row_of i32[N]       row of each node in the shard of its part, -1 for a node without features
    num_rows i64[P]     number of rows of each shard
    shards of parts:    rows [n_p, F], in the order of the nodes; node_ids ids[n_p], the node of each row, ascending

All shards are written by one sequential pass over the features, which compares every block with its digest. Peak memory: 36 bytes per
node, and a block of 1 MiB; the written files are mapped.
"""
